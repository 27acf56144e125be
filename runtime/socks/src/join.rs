//! Joins a client and a connection, and moves bytes between them until both have ended. Used
//! throughout the crate.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{Carried, Error};

/// The size of the copy buffer, in bytes: the amount that a fast path brings between two turns of a
/// thread.
const PIECE: usize = 64 << 10;

/// Moves bytes between a client and a connection until both directions have ended or one fails.
/// Writes `first` before all other bytes.
pub(crate) async fn join(
    client: TcpStream,
    mut connection: impl Carried,
    first: &[u8],
) -> Result<(), Error> {
    if let Err(error) = connection.write_all(first).await {
        // If this fails, the client sees an orderly end.
        let _ = client.set_zero_linger();
        connection.reset();
        return Err(Error::Broken("connection", error));
    }
    connection.carry(client).await
}

/// Implements [`Carried::carry`].
pub(crate) async fn pump_both(
    mut client: TcpStream,
    mut connection: impl Carried,
) -> Result<(), Error> {
    let result = {
        let (mut near_reader, mut near_writer) = client.split();
        let (mut far_reader, mut far_writer) = tokio::io::split(&mut connection);
        let outgoing = pump(
            ("client", &mut near_reader),
            ("connection", &mut far_writer),
        );
        let incoming = pump(
            ("connection", &mut far_reader),
            ("client", &mut near_writer),
        );
        tokio::try_join!(outgoing, incoming).map(drop)
    };
    if result.is_err() {
        // If this fails, the client sees an orderly end.
        let _ = client.set_zero_linger();
        connection.reset();
    }
    result
}

/// Moves bytes until the end, and passes that end on. Each side has a name, which its error repeats.
pub async fn pump(
    (from, reader): (&'static str, &mut (impl AsyncRead + Unpin)),
    (to, writer): (&'static str, &mut (impl AsyncWrite + Unpin)),
) -> Result<(), Error> {
    let reading = |error: io::Error| Error::Broken(from, error);
    let writing = |error: io::Error| Error::Broken(to, error);
    let mut buffer = vec![0; PIECE];
    loop {
        match reader.read(&mut buffer).await.map_err(reading)? {
            0 => return writer.shutdown().await.map_err(writing),
            len => {
                writer.write_all(&buffer[..len]).await.map_err(writing)?;
                // Standard output buffers incomplete lines.
                writer.flush().await.map_err(writing)?;
            }
        }
    }
}
