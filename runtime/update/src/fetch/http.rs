//! Web servers as sources. Used by `fetch`.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};

use super::download::Download;
use super::{Fetched, Part};
use crate::error::FetchError;
use crate::network::Network;
use crate::record::Validators;

/// Fetches the file at this address, unless the server says that the known one is current.
pub(super) async fn fetch(
    url: &Url,
    network: &Network,
    known: &Validators,
    part: &mut Part,
    limit: u64,
) -> Result<Fetched, FetchError> {
    let mut headers = HeaderMap::new();
    let mut insert = |name: HeaderName, value: Option<HeaderValue>| {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    };
    let header = |text: &Option<String>| HeaderValue::try_from(text.as_deref()?).ok();
    insert(IF_NONE_MATCH, header(&known.tag));
    insert(IF_MODIFIED_SINCE, header(&known.modified));
    // A password must not travel unencrypted.
    let is_private = url.scheme() == "https" || network.options.plain_http;
    if let Some(credentials) = network.options.credentials.as_ref().filter(|_| is_private) {
        insert(AUTHORIZATION, Some(credentials.header()?));
    }
    let download = Download {
        client: &network.client()?,
        options: &network.options,
        url,
        headers,
        limit,
        digest: None,
    };
    download.run(part).await
}
