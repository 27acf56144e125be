//! Joins a connection through a module with a TCP connection, and copies bytes. `dial`, `listen`
//! and `standard` use it.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use watm_runtime::{Connection, ErrorCode};

use crate::stop::Stop;

/// The size of the copy buffer, in bytes: the amount that a fast path brings between two turns of a
/// thread.
const PIECE: usize = 64 << 10;

/// Joins a stream to a TCP connection until both directions have ended, one fails, or a signal ends
/// the program. A failure at one side, and the end of the program, resets the other, so that
/// truncated data does not look complete.
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

/// Makes the other end see a failure when `tcp` is dropped.
pub(crate) fn reset(tcp: &TcpStream) {
    // If this fails, the other end sees an orderly end.
    let _ = tcp.set_zero_linger();
}

/// Copies bytes until the end, and passes that end on. Errors name the side.
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
                // Standard output buffers incomplete lines.
                writer.flush().await.map_err(writing)?;
            }
        }
    }
    writer.shutdown().await.map_err(writing)
}
