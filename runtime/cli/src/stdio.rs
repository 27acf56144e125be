//! Joins a connection with standard input and output, for `dial`, `listen` and `tunnel --stdio`.

use tokio::io::{AsyncWriteExt, stdin, stdout};
use watm_runtime::{Connection, ErrorCode};
use watm_socks::{Error, pump};

use crate::failure::Failure;
use crate::stop::Stop;
use crate::system;

/// Copies standard input to the stream, and the stream to standard output, until both have ended,
/// one fails, or a signal ends the program.
pub(crate) async fn join(mut carried: Connection, stop: &mut Stop) -> Result<(), Failure> {
    let result = {
        let (mut reader, mut writer) = tokio::io::split(&mut carried);
        let outgoing = async {
            pump(
                ("standard input", &mut stdin()),
                ("connection", &mut writer),
            )
            .await
        };
        let incoming = async {
            let mut output = stdout();
            pump(
                ("connection", &mut reader),
                ("standard output", &mut output),
            )
            .await?;
            let told = output.flush().await.and_then(|()| system::close_output());
            told.map_err(|error| Error::Broken("standard output", error))
        };
        tokio::select! {
            result = async { tokio::try_join!(outgoing, incoming) } => result.map(drop),
            () = stop.requested() => Ok(()),
        }
    };
    if result.is_err() {
        carried.abort(ErrorCode::ConnectionAborted);
    }
    carried.close().await;
    result.map_err(Failure::failed)
}
