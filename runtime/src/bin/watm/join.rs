//! A connection through a module, and what is at its other end.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use watm_runtime::{Connection, ErrorCode};

use crate::stop::Stop;

/// Bytes that are moved at once: what a fast path brings between two turns of a thread.
const PIECE: usize = 64 << 10;

/// How long it may take to pass on what came before one side failed: nobody waits for more than what
/// is there, and who failed is told after it.
const PASSING_ON: Duration = Duration::from_millis(200);

/// Join a stream to a TCP connection, until both directions have ended, one fails, or the
/// program is asked to end. A failure at one side resets the other, so that what is cut short
/// does not look whole.
pub(crate) async fn with_tcp(
    mut carried: Connection,
    mut tcp: TcpStream,
    stop: &mut Stop,
) -> Result<(), String> {
    let result = {
        let (mut near_reader, mut near_writer) = tcp.split();
        let (mut far_reader, mut far_writer) = tokio::io::split(&mut carried);
        let mut towards = pin!(pump(
            ("client", &mut near_reader),
            ("connection", &mut far_writer)
        ));
        let mut back = pin!(pump(
            ("connection", &mut far_reader),
            ("client", &mut near_writer)
        ));
        let both = async {
            tokio::select! {
                ended = &mut towards => match ended {
                    Ok(()) => back.await,
                    Err(reason) => {
                        // What the connection had brought before is passed on; it is there already.
                        let _ = timeout(PASSING_ON, back).await;
                        Err(reason)
                    }
                },
                ended = &mut back => {
                    ended?;
                    towards.await
                }
            }
        };
        tokio::select! {
            result = both => result,
            () = stop.requested() => Ok(()),
        }
    };
    if result.is_err() {
        reset(&tcp);
        carried.abort(ErrorCode::ConnectionReset);
    }
    drop(tcp);
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
