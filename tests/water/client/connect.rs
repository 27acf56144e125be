//! The ways in which the client connects.

use std::error::Error;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes, duplex};
use tokio::net::TcpStream;
use watm_runtime::{Dialer, Engine, EngineConfig, Trust};

/// A connection of any kind.
pub type Stream = Box<dyn Connection>;

/// Bytes both ways.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// One read of the native copy, as large as one read of a module of this project.
const HOP_BUFFER: usize = 64 * 1024;
/// The capacity of the native copy's queue in each direction, in bytes.
const HOP_QUEUE: usize = 64 * 1024;

/// The way in which connections are made.
pub enum Connect {
    /// TCP.
    Raw,
    /// TCP behind a queue in memory and a task that copies: the work of a module in native code.
    Hop,
    /// A module.
    Module(Dialer),
}

impl Connect {
    /// By name, or a module by its file.
    pub fn choose(kind: &str) -> Result<Self, Box<dyn Error>> {
        Ok(match kind {
            "raw" => Self::Raw,
            "hop" => Self::Hop,
            file => {
                let engine = Engine::new(EngineConfig {
                    trust: Trust::of_user().allow_unsealed(true),
                    ..EngineConfig::default()
                })?;
                let module = engine.load_file(file)?;
                Self::Module(Dialer::builder(&module).build()?)
            }
        })
    }

    /// A new connection.
    pub async fn open(&self, to: &str) -> Result<Stream, String> {
        match self {
            Self::Raw => Ok(Box::new(tcp(to).await?)),
            Self::Hop => {
                let mut outer = tcp(to).await?;
                let (caller, mut inner) = duplex(HOP_QUEUE);
                tokio::spawn(async move {
                    // An error is the other end's, which the caller sees as the end.
                    let _ = copy_bidirectional_with_sizes(
                        &mut inner, &mut outer, HOP_BUFFER, HOP_BUFFER,
                    )
                    .await;
                });
                Ok(Box::new(caller))
            }
            Self::Module(dialer) => {
                let connection = dialer.dial(to).await.map_err(|error| error.to_string())?;
                Ok(Box::new(connection))
            }
        }
    }
}

async fn tcp(to: &str) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(to)
        .await
        .map_err(|error| format!("{to}: {error}"))?;
    stream
        .set_nodelay(true)
        .map_err(|error| format!("{to}: {error}"))?;
    Ok(stream)
}
