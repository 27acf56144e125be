//! The HTTP client for sources and registries: TLS roots, credentials, redirections, time limits.
//! Used throughout the crate.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::header::{CONTENT_ENCODING, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use tokio::time::Instant;

use crate::error::{FetchError, one_line};

/// The most redirections: more than the two that servers need, to their other name and to the
/// files' server.
const MOST_REDIRECTS: usize = 5;
/// The longest delay from `Retry-After` that is obeyed.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Options for connections to servers.
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    /// Certificates in PEM that are trusted as roots beside the system's.
    pub authorities: Vec<u8>,
    /// Talk to registries over HTTP without TLS, and follow redirections from HTTPS to HTTP.
    pub plain_http: bool,
    /// Credentials for servers that ask for them, over HTTPS or where plain HTTP was requested.
    /// They go to the host of the source.
    pub credentials: Option<Credentials>,
    /// Other hosts that get a password if a registry names them as its token service. None by
    /// default.
    pub credential_hosts: Vec<String>,
    /// The time limit for connecting. 10 s by default.
    pub connect_timeout: Duration,
    /// The longest silence of a server. 30 s by default.
    pub idle_timeout: Duration,
    /// The fewest bytes that must arrive in each [`idle_timeout`](Self::idle_timeout) until the
    /// last one has. 4 KiB by default: with 30 s, 137 bytes a second.
    pub least_progress: usize,
    /// The time limit for one file. Bytes received by then are kept, and the next attempt continues
    /// from there. 15 min by default, in which 64 MiB arrive at 600 kbit/s.
    pub total_timeout: Duration,
}

impl Default for NetworkOptions {
    fn default() -> NetworkOptions {
        NetworkOptions {
            authorities: Vec::new(),
            plain_http: false,
            credentials: None,
            credential_hosts: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
            least_progress: 4 << 10,
            total_timeout: Duration::from_secs(15 * 60),
        }
    }
}

/// Credentials for a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user's name and password.
    Basic(String, String),
    /// A bearer token, sent unchanged.
    Bearer(String),
}

impl Credentials {
    /// Parses `user:password` or `Bearer TOKEN`. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Credentials> {
        let text = text.trim_end_matches(['\r', '\n']);
        if let Some(token) = text.strip_prefix("Bearer ") {
            return Some(Credentials::Bearer(token.to_owned()));
        }
        let (user, password) = text.split_once(':')?;
        Some(Credentials::Basic(user.to_owned(), password.to_owned()))
    }

    /// Returns the header `Authorization`, marked so that no log shows it. Fails if the token has a
    /// character that headers cannot contain.
    pub(crate) fn header(&self) -> Result<HeaderValue, FetchError> {
        let text = match self {
            Credentials::Basic(user, password) => {
                format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
            }
            Credentials::Bearer(token) => format!("Bearer {token}"),
        };
        let mut header = HeaderValue::try_from(text).map_err(|_| {
            FetchError::Unauthorized("the token contains invalid characters".to_owned())
        })?;
        header.set_sensitive(true);
        Ok(header)
    }
}

/// Writes everything but the secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::Basic(user, _) => f.debug_tuple("Basic").field(user).finish(),
            Credentials::Bearer(_) => f.write_str("Bearer"),
        }
    }
}

/// The connection options and the client of updates. Clones share the client, and with it the
/// system's certificates, which are read on first use.
#[derive(Debug, Clone, Default)]
pub struct Network {
    pub(crate) options: NetworkOptions,
    client: Arc<OnceLock<Client>>,
}

impl From<NetworkOptions> for Network {
    fn from(options: NetworkOptions) -> Network {
        Network {
            options,
            client: Arc::default(),
        }
    }
}

impl Network {
    pub(crate) fn client(&self) -> Result<Client, FetchError> {
        match self.client.get() {
            Some(client) => Ok(client.clone()),
            // Several callers may do so at once. One client is kept.
            None => {
                let client = self.options.client()?;
                Ok(self.client.get_or_init(|| client).clone())
            }
        }
    }
}

impl NetworkOptions {
    /// Builds a client that trusts the system's roots and the given ones.
    fn client(&self) -> Result<Client, FetchError> {
        let refuse = |reason: &dyn fmt::Display| FetchError::Certificates(reason.to_string());
        let provider = Arc::new(ring::default_provider());
        let authorities = CertificateDer::pem_slice_iter(&self.authorities)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| refuse(&error))?;
        if authorities.is_empty() && !self.authorities.is_empty() {
            return Err(refuse(&"no certificate found; must be PEM"));
        }
        let verifier = Verifier::new_with_extra_roots(authorities, provider.clone())
            .map_err(|error| refuse(&error))?;
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let plain_http = self.plain_http;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("watm/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::custom(move |attempt| follow(attempt, plain_http)))
            .referer(false)
            .connect_timeout(self.connect_timeout)
            .read_timeout(self.idle_timeout)
            // Checks are minutes or hours apart.
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(client)
    }
}

fn follow(attempt: Attempt<'_>, plain_http: bool) -> reqwest::redirect::Action {
    if attempt.previous().len() > MOST_REDIRECTS {
        return attempt.error(format!("more than {MOST_REDIRECTS} in a row"));
    }
    let was_https = attempt.previous().iter().any(|url| url.scheme() == "https");
    match attempt.url().scheme() {
        "https" => attempt.follow(),
        "http" if plain_http || !was_https => attempt.follow(),
        "http" => attempt.error("from HTTPS to HTTP; must stay with HTTPS"),
        scheme => {
            let reason = format!("to {}:; must be HTTPS or HTTP", one_line(scheme));
            attempt.error(reason)
        }
    }
}

/// Sends a request and waits for the head of the answer. Each redirection may take
/// [`NetworkOptions::idle_timeout`]. Refuses compressed bodies.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, FetchError> {
    let response = request.send().await?;
    match response.headers().get(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let encoding = String::from_utf8_lossy(encoding.as_bytes());
            Err(FetchError::Encoded(one_line(&encoding)))
        }
        _ => Ok(response),
    }
}

/// Reads an answer that is not a module, up to `limit` bytes.
pub(crate) async fn read_small(
    mut response: Response,
    limit: usize,
    options: &NetworkOptions,
) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::new();
    let mut pace = Pace::new(options);
    while let Some(chunk) = response.chunk().await? {
        pace.check(chunk.len())?;
        if bytes.len() + chunk.len() > limit {
            return Err(FetchError::TooLarge {
                limit: limit as u64,
            });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The pace of a body. The client itself detects silence.
pub(crate) struct Pace {
    /// The fewest bytes in each period of `time`.
    least: usize,
    time: Duration,
    since: Instant,
    came: usize,
}

impl Pace {
    /// Starts measuring now.
    pub(crate) fn new(options: &NetworkOptions) -> Pace {
        Pace {
            least: options.least_progress,
            time: options.idle_timeout,
            since: Instant::now(),
            came: 0,
        }
    }

    /// Counts received bytes. Fails if the server is too slow.
    pub(crate) fn check(&mut self, bytes: usize) -> Result<(), FetchError> {
        self.came = self.came.saturating_add(bytes);
        if self.came >= self.least {
            self.came = 0;
            self.since = Instant::now();
        }
        match self.since.elapsed() > self.time {
            true => Err(FetchError::TimedOut(format!(
                "received {} bytes in {} s; must be at least {}",
                self.came,
                self.time.as_secs_f64(),
                self.least
            ))),
            false => Ok(()),
        }
    }
}

/// Returns the error for an answer with an unexpected status.
pub(crate) fn refused(response: &Response) -> FetchError {
    match response.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FetchError::Unauthorized(format!(
            "answered with status {}; other credentials are needed",
            response.status().as_u16()
        )),
        status => FetchError::Status {
            status: status.as_u16(),
            retry_after: retry_after(response.headers()),
        },
    }
}

/// Parses `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(SystemTime::now())
            .unwrap_or_default(),
    };
    Some(asked.min(LONGEST_RETRY_AFTER))
}
