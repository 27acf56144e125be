//! A connection through a module, and what is at its other end.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use watm_runtime::{Connection, ErrorCode};

use crate::stop::Stop;

/// Bytes that are moved at once: what a fast path brings between two turns of a thread.
const PIECE: usize = 64 << 10;

/// Join a stream to a TCP connection, until both directions have ended, one fails, or the
/// program is asked to end. A failure at one side, and the end of the program, resets the other, so
/// that what is cut short does not look whole.
pub(crate) async fn with_tcp(
    carried: Connection,
    tcp: TcpStream,
    stop: &mut Stop,
) -> Result<(), String> {
    let result = tokio::select! {
        joined = carried.join(Box::new(tcp), Arc::new(())) => {
            joined.map_err(|error| error.to_string())
        }
        () = stop.requested() => Ok(()),
    };
    if result.is_err() {
        carried.abort(ErrorCode::ConnectionReset);
    }
    carried.close().await;
    result
}

/// Have the other end see a failure when `tcp` is dropped.
pub(crate) fn reset(tcp: &TcpStream) {
    // If it cannot be set, the other end sees an end.
    let _ = tcp.set_zero_linger();
}

/// Move bytes until the end, and pass that on. Errors say at which side.
pub(crate) async fn pump(
    (from, reader): (&str, &mut (impl AsyncRead + Unpin)),
    (to, writer): (&str, &mut (impl AsyncWrite + Unpin)),
) -> Result<(), String> {
    let reading = |error: io::Error| format!("{from}: {error}");
    let writing = |error: io::Error| format!("{to}: {error}");
    let mut buffer = vec![0; PIECE];
    loop {
        match reader.read(&mut buffer).await.map_err(reading)? {
            0 => break,
            len => {
                writer.write_all(&buffer[..len]).await.map_err(writing)?;
                // Standard output keeps what is no whole line.
                writer.flush().await.map_err(writing)?;
            }
        }
    }
    writer.shutdown().await.map_err(writing)
}
