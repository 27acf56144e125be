//! Registries as sources: a WebAssembly artifact by the distribution specification of the Open
//! Container Initiative and the artifact layout of the CNCF's wasm working group: one layer, the
//! module. Used by `fetch`.
//!
//! Manifests, tokens and error pages are read with a bound, so that a registry cannot fill the
//! memory of its clients. Addresses in manifests are not used.

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, IF_NONE_MATCH};
use reqwest::{Client, Response, StatusCode, Url};
use watm_seal::Digest;

use super::download::Download;
use super::{Fetched, Part};
use crate::authorization::Authorizer;
use crate::error::{FetchError, one_line};
use crate::manifest::{
    CONFIG_MEDIA_TYPE, Descriptor, LAYER_MEDIA_TYPE, MANIFEST_MEDIA_TYPE, Manifest,
};
use crate::network::{Network, NetworkOptions, read_small, refused, send};
use crate::record::Validators;
use crate::reference::Reference;

/// The largest manifest, in bytes. One with a single layer is below one KiB.
const MAX_MANIFEST_BYTES: usize = 256 << 10;

/// Fetches the module that this reference names, unless its manifest is the known one.
pub(super) async fn fetch(
    reference: &Reference,
    network: &Network,
    known: &Validators,
    part: &mut Part,
    limit: u64,
) -> Result<Fetched, FetchError> {
    let mut registry = Registry {
        client: network.client()?,
        reference,
        network: &network.options,
        authorization: None,
    };
    let Some((manifest, digest)) = registry.manifest(known.tag.as_deref()).await? else {
        return Ok(Fetched::NotModified);
    };
    let digest = format!("sha256:{digest}");
    if known.tag.as_ref() == Some(&digest) {
        return Ok(Fetched::NotModified);
    }
    let layer = layer(&manifest, limit)?;
    match registry.blob(layer, part).await? {
        // The request had no conditions.
        Fetched::NotModified => Err(FetchError::WrongRange("nothing".to_owned())),
        Fetched::File(bytes, _) => {
            if let Err(error) = check_digest(&layer.digest, &bytes) {
                part.discard().await?;
                return Err(error);
            }
            let validators = Validators {
                tag: Some(digest),
                modified: None,
            };
            Ok(Fetched::File(bytes, validators))
        }
    }
}

/// Returns the layer with the module. Fails if the manifest is not one of a module.
fn layer(manifest: &Manifest, limit: u64) -> Result<&Descriptor, FetchError> {
    let refuse = |reason: String| Err(FetchError::Artifact(one_line(&reason)));
    let config = manifest.config.media_type.as_str();
    if config != CONFIG_MEDIA_TYPE {
        return refuse(format!(
            "its configuration is {config:?}; must be {CONFIG_MEDIA_TYPE}"
        ));
    }
    let [layer] = manifest.layers.as_slice() else {
        let count = manifest.layers.len();
        return refuse(format!("has {count} layers; must have one"));
    };
    if layer.media_type != LAYER_MEDIA_TYPE {
        let found = &layer.media_type;
        return refuse(format!(
            "its layer is {found:?}; must be {LAYER_MEDIA_TYPE}"
        ));
    }
    // The digest becomes a part of an address.
    if sha256(&layer.digest).is_none() {
        let found = &layer.digest;
        return refuse(format!(
            "its layer has the digest {found:?}; must be sha256:…"
        ));
    }
    match layer.size <= limit {
        true => Ok(layer),
        false => Err(FetchError::TooLarge { limit }),
    }
}

fn sha256(digest: &str) -> Option<Digest> {
    digest.strip_prefix("sha256:")?.parse().ok()
}

fn check_digest(expected: &str, bytes: &[u8]) -> Result<Digest, FetchError> {
    let found = Digest::of(bytes);
    match sha256(expected) == Some(found) {
        true => Ok(found),
        false => Err(FetchError::WrongDigest {
            expected: expected.to_owned(),
            found,
        }),
    }
}

/// Builds the address of a registry's endpoint from its ending.
pub(crate) fn address(
    reference: &Reference,
    options: &NetworkOptions,
    end: &str,
) -> Result<Url, FetchError> {
    let scheme = match options.plain_http {
        true => "http",
        false => "https",
    };
    let registry = reference.host();
    Url::parse(&format!("{scheme}://{registry}/v2/{end}"))
        .map_err(|error| FetchError::Connection(error.to_string()))
}

struct Registry<'a> {
    client: Client,
    reference: &'a Reference,
    network: &'a NetworkOptions,
    /// The header that satisfied the registry.
    authorization: Option<HeaderValue>,
}

impl Registry<'_> {
    /// Fetches the manifest and its digest. Returns `None` if the registry says that the known one
    /// is current.
    async fn manifest(
        &mut self,
        known: Option<&str>,
    ) -> Result<Option<(Manifest, Digest)>, FetchError> {
        let which = self.reference.manifest();
        let url = self.address(&format!("manifests/{which}"))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(MANIFEST_MEDIA_TYPE));
        let tag = known.and_then(|tag| HeaderValue::try_from(format!("\"{tag}\"")).ok());
        if let Some(tag) = tag {
            headers.insert(IF_NONE_MATCH, tag);
        }
        let response = self.get(&url, headers).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if known.is_some() => return Ok(None),
            _ => return Err(refused(&response)),
        }
        let bytes = read_small(response, MAX_MANIFEST_BYTES, self.network).await?;
        let found = match self.reference.digest() {
            Some(_) => check_digest(&which, &bytes)?,
            None => Digest::of(&bytes),
        };
        let manifest = serde_json::from_slice(&bytes).map_err(|error| {
            let reason = format!("its manifest is not that of an artifact: {error}");
            FetchError::Artifact(one_line(&reason))
        })?;
        Ok(Some((manifest, found)))
    }

    /// Fetches a layer, or the bytes missing from the part.
    async fn blob(&self, layer: &Descriptor, part: &mut Part) -> Result<Fetched, FetchError> {
        let tag = Some(layer.digest.clone());
        if part.validators().tag != tag {
            part.discard().await?;
        }
        let mut headers = HeaderMap::new();
        headers.extend(self.authorization.clone().map(|it| (AUTHORIZATION, it)));
        let download = Download {
            client: &self.client,
            options: self.network,
            url: &self.address(&format!("blobs/{}", layer.digest))?,
            headers,
            limit: layer.size,
            digest: tag,
        };
        download.run(part).await
    }

    fn address(&self, end: &str) -> Result<Url, FetchError> {
        let repository = self.reference.repository();
        address(self.reference, self.network, &format!("{repository}/{end}"))
    }

    /// Sends a request, and repeats it with credentials if the registry requires them.
    async fn get(&mut self, url: &Url, headers: HeaderMap) -> Result<Response, FetchError> {
        let request = || self.client.get(url.clone()).headers(headers.clone());
        let response = send(request()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let authorizer = Authorizer {
            client: &self.client,
            options: self.network,
            registry: url,
            scope: format!("repository:{}:pull", self.reference.repository()),
        };
        let authorization = authorizer.satisfy(&response).await?.header()?;
        let request = request().header(AUTHORIZATION, authorization.clone());
        let response = send(request).await?;
        self.authorization = Some(authorization);
        Ok(response)
    }
}
