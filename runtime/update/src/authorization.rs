//! Authentication to registries: answers challenges with a password or a token. Downloads
//! (`fetch::oci`) and `publish` use it.

use http_auth::ChallengeRef;
use reqwest::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url};
use serde_derive::Deserialize;

use crate::error::{FetchError, one_line};
use crate::network::{Credentials, NetworkOptions, read_small, refused, send};

/// The largest token that is accepted, in bytes. Those of registries have some KiB.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// Answers the challenges of one registry.
///
/// A password goes to the host of the registry and to [`NetworkOptions::credential_hosts`]. A
/// server to which the registry redirects gets nothing, whatever it requests.
pub(crate) struct Authorizer<'a> {
    pub(crate) client: &'a Client,
    pub(crate) options: &'a NetworkOptions,
    /// An address of the registry.
    pub(crate) registry: &'a Url,
    /// The access that a token must grant, as `repository:NAME:pull`.
    pub(crate) scope: String,
}

impl Authorizer<'_> {
    /// Returns the credentials that satisfy the challenge in an answer with status 401.
    pub(crate) async fn satisfy(&self, response: &Response) -> Result<Credentials, FetchError> {
        let (asking, registry) = (response.url(), self.registry);
        if asking.origin() != registry.origin() {
            return Err(refuse(format!(
                "the registry {1} redirects to {0}, which asks for credentials; only the registry \
                 itself may ask for them",
                host(asking),
                host(registry)
            )));
        }
        if let Some(Credentials::Bearer(_)) = &self.options.credentials {
            return self.own();
        }
        for value in response.headers().get_all(WWW_AUTHENTICATE) {
            let challenges = value.to_str().ok().map(http_auth::parse_challenges);
            for challenge in challenges.and_then(Result::ok).into_iter().flatten() {
                if challenge.scheme.eq_ignore_ascii_case("bearer") {
                    return self.token(&challenge).await;
                }
                if challenge.scheme.eq_ignore_ascii_case("basic") {
                    return self.own();
                }
            }
        }
        Err(refuse(
            "the registry offers no supported authentication (Basic or Bearer)",
        ))
    }

    /// Returns the user's credentials.
    fn own(&self) -> Result<Credentials, FetchError> {
        let own = self.options.credentials.clone();
        own.ok_or_else(|| refuse("the registry requires credentials"))
    }

    /// Fetches a token from the service that the registry names.
    async fn token(&self, challenge: &ChallengeRef<'_>) -> Result<Credentials, FetchError> {
        let parameter = |name: &str| {
            let mut all = challenge.params.iter();
            all.find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_unescaped())
        };
        let realm = parameter("realm").and_then(|realm| Url::parse(&realm).ok());
        let realm = realm.ok_or_else(|| refuse("the registry names no token service"))?;
        match realm.scheme() {
            "https" => {}
            "http" if self.options.plain_http => {}
            _ => return Err(refuse("the token service does not use HTTPS")),
        }
        let mut request = self.client.get(realm.clone());
        if let Some(credentials) = &self.options.credentials {
            self.check_host(&realm)?;
            request = request.header(AUTHORIZATION, credentials.header()?);
        }
        request = request.query(&[("scope", &self.scope)]);
        if let Some(service) = parameter("service") {
            request = request.query(&[("service", service)]);
        }
        let response = send(request).await?;
        if response.status() != StatusCode::OK {
            return Err(refused(&response));
        }
        let bytes = read_small(response, MAX_TOKEN_BYTES, self.options).await?;
        let token: Token = serde_json::from_slice(&bytes)
            .map_err(|_| refuse("the token service sent no token"))?;
        let token = token.token.or(token.access_token).unwrap_or_default();
        Ok(Credentials::Bearer(token))
    }

    /// Checks that a password may be sent to this token service.
    fn check_host(&self, realm: &Url) -> Result<(), FetchError> {
        let named = realm.host_str().unwrap_or_default();
        let mut hosts = self.options.credential_hosts.iter();
        if realm.host() == self.registry.host() || hosts.any(|it| it.eq_ignore_ascii_case(named)) {
            return Ok(());
        }
        Err(refuse(format!(
            "the registry {} names a token service at {named}, which is not sent the registry's \
             password; allow it with --credentials-for {named}",
            host(self.registry)
        )))
    }
}

/// A token under one of two names, for old services and for OAuth 2.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

fn refuse(reason: impl AsRef<str>) -> FetchError {
    FetchError::Unauthorized(one_line(reason.as_ref()))
}
