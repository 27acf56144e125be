//! Readiness checks through a tunnel: the option `--ready-check`, which `/readyz` runs.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use watm_runtime::{Destination, Error};
use watm_socks::{Carried, Dial};

/// The time limit of a check. Monitors that ask for readiness usually wait no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A stream that carries HTTP.
trait Carrying: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Carrying for S {}

/// A check: its destination and protocol.
#[derive(Debug, Clone)]
pub(crate) enum Check {
    /// Passes if the destination accepts a connection, and then sends something or closes after the
    /// client's half-close.
    Tcp(Destination),
    /// Passes if the destination answers a GET with a status below 500.
    Http(Destination, Uri),
    /// Passes as with HTTP, over TLS with a certificate that this machine trusts.
    Https(Destination, Tls, Uri),
}

/// The server's name in TLS, and the trusted roots.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl FromStr for Check {
    type Err = String;

    fn from_str(text: &str) -> Result<Check, String> {
        let wrong = || {
            "must be http://HOST[:PORT]/PATH, https://HOST[:PORT]/PATH or tcp:HOST:PORT".to_owned()
        };
        let destination = |text: &str| text.parse().map_err(|error: Error| error.to_string());
        if let Some(place) = text.strip_prefix("tcp:") {
            return Ok(Check::Tcp(destination(place)?));
        }
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err(wrong());
        };
        let to = |usual: u16| {
            let port = uri.port_u16().unwrap_or(usual);
            destination(&format!("{host}:{port}"))
        };
        match scheme {
            "http" => Ok(Check::Http(to(80)?, uri)),
            "https" => Ok(Check::Https(to(443)?, Tls::new(host)?, uri)),
            _ => Err(wrong()),
        }
    }
}

impl Check {
    /// Runs the check. Fails with the reason.
    pub(crate) async fn pass(&self, dialer: &impl Dial) -> Result<(), String> {
        let (Check::Tcp(to) | Check::Http(to, _) | Check::Https(to, ..)) = self;
        let asking = async {
            let stream = dialer.stream(to).await;
            let stream = stream.map_err(|refusal| refusal.to_string())?;
            match self {
                Check::Tcp(_) => answers(stream).await,
                Check::Http(_, uri) => serves(stream, uri).await,
                Check::Https(_, tls, uri) => serves(tls.connect(stream).await?, uri).await,
            }
        };
        let asked = timeout(PATIENCE, asking).await;
        let asked = asked.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}")));
        asked.map_err(|reason| format!("{to}: {reason}"))
    }
}

impl Tls {
    /// Creates the settings with this machine's roots, or those that `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` name.
    fn new(host: &str) -> Result<Tls, String> {
        let refused = |error: rustls::Error| format!("cannot check certificates: {error}");
        let bare = host.trim_matches(['[', ']']).to_owned();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(BuilderVerifierExt::with_platform_verifier)
            .map_err(refused)?
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls {
            name: bare
                .try_into()
                .map_err(|error| format!("{host}: {error}"))?,
            config: Arc::new(config),
        })
    }

    async fn connect<S: Carried>(&self, stream: S) -> Result<TlsStream<S>, String> {
        let connecting = TlsConnector::from(self.config.clone()).connect(self.name.clone(), stream);
        connecting.await.map_err(|error| format!("TLS: {error}"))
    }
}

/// Waits for data or an end. A connection may exist at this end before the other, so its success
/// alone proves nothing.
async fn answers(mut stream: impl Carried) -> Result<(), String> {
    let said = async {
        stream.shutdown().await?;
        stream.read(&mut [0]).await
    };
    said.await.map(drop).map_err(|error| error.to_string())
}

async fn serves(stream: impl Carrying, uri: &Uri) -> Result<(), String> {
    let words = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(words)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path)
        .header(HOST, host)
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(words)?;
        match response.status().is_server_error() {
            false => Ok(()),
            true => Err(format!("answered {}", response.status())),
        }
    };
    let broken = async {
        match connection.await {
            Ok(()) => std::future::pending().await,
            Err(error) => words(error),
        }
    };
    tokio::select! {
        answered = answer => answered,
        reason = broken => Err(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_urls_or_ports() {
        let read = |text: &str| match text.parse::<Check>() {
            Ok(Check::Tcp(to)) => format!("tcp {to}"),
            Ok(Check::Http(to, uri)) => format!("http {to} {}", uri.path()),
            Ok(Check::Https(to, tls, uri)) => {
                format!("https {to} {} as {}", uri.path(), tls.name.to_str())
            }
            Err(reason) => reason,
        };
        assert_eq!(read("tcp:10.0.0.1:22"), "tcp 10.0.0.1:22");
        assert_eq!(read("http://example.com"), "http example.com:80 /");
        assert_eq!(
            read("http://[fd00::1]:8080/up?x=1"),
            "http [fd00::1]:8080 /up"
        );
        assert_eq!(
            read("https://[fd00::1]/up"),
            "https [fd00::1]:443 /up as fd00::1"
        );
        assert_eq!(
            read("https://example.com:8443"),
            "https example.com:8443 / as example.com"
        );
        for wrong in [
            "https://a..b/",
            "example.com:80",
            "ftp://x",
            "tcp:x",
            "http://",
            "",
        ] {
            assert!(wrong.parse::<Check>().is_err(), "{wrong:?}");
        }
    }
}
