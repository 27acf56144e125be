//! Publishing of sealed modules to registries, for `watm publish`.

use std::collections::BTreeMap;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use watm_seal::{Digest, Refused, Sealed, World};

use crate::authorization::Authorizer;
use crate::error::FetchError;
use crate::fetch::address;
use crate::manifest::{
    CONFIG_MEDIA_TYPE, Descriptor, LAYER_MEDIA_TYPE, MANIFEST_MEDIA_TYPE, Manifest,
};
use crate::network::{Network, NetworkOptions, refused, send};
use crate::reference::Reference;
use crate::source::{Kind, Source};

/// The reason why a module was not published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The file is not a sealed module.
    #[error("{0}")]
    Module(#[from] Refused),
    /// The destination is not a registry with a tag.
    #[error("{0}: must be oci://REGISTRY/REPOSITORY:TAG")]
    Destination(String),
    /// The registry refused, or did not answer.
    #[error("{0}")]
    Registry(String),
}

/// Uploads a sealed module to a registry as an artifact that [`Updater`](crate::Updater) and other
/// registry clients can download, under the tag of `to`. An existing tag moves. Returns `sha256:…`,
/// the digest of its manifest, which identifies it permanently.
///
/// A registry takes a module in [`NetworkOptions::total_timeout`] or not at all.
pub async fn publish(
    file: &[u8],
    to: &Source,
    network: &NetworkOptions,
) -> Result<String, PublishError> {
    let sealed = Sealed::parse(file)?;
    let reference = match &to.0 {
        Kind::Oci(reference) if reference.digest().is_none() => reference,
        _ => return Err(PublishError::Destination(to.to_string())),
    };
    let config = configuration(&sealed, file);
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(MANIFEST_MEDIA_TYPE.to_owned()),
        config: describe(CONFIG_MEDIA_TYPE, &config),
        layers: vec![describe(LAYER_MEDIA_TYPE, file)],
        annotations: Some(annotations(&sealed)),
    };
    let encoded =
        serde_json::to_vec(&manifest).map_err(|error| PublishError::Registry(error.to_string()))?;
    let digest = format!("sha256:{}", Digest::of(&encoded));
    let upload = async {
        let registry = Registry::connect(reference, network).await?;
        registry.put_blob(&manifest.layers[0], file).await?;
        registry.put_blob(&manifest.config, &config).await?;
        registry.put_manifest(encoded).await
    };
    match tokio::time::timeout(network.total_timeout, upload).await {
        Ok(Ok(())) => Ok(digest),
        Ok(Err(error)) => Err(PublishError::Registry(error.to_string())),
        Err(_) => Err(PublishError::Registry("took too long".to_owned())),
    }
}

fn describe(media_type: &str, content: &[u8]) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest: format!("sha256:{}", Digest::of(content)),
        size: content.len() as u64,
    }
}

/// Returns the configuration that the CNCF's layout requires for a module.
fn configuration(sealed: &Sealed<'_>, file: &[u8]) -> Vec<u8> {
    let system = match sealed.manifest().world {
        World::Component { .. } => "wasip2",
        World::WaterV0 | World::WaterV1 => "wasip1",
    };
    let layer = Digest::of(file);
    let text =
        format!(r#"{{"architecture":"wasm","layerDigests":["sha256:{layer}"],"os":"{system}"}}"#);
    text.into_bytes()
}

/// Returns annotations for people who look at the registry. Only the seal counts for hosts.
fn annotations(sealed: &Sealed<'_>) -> BTreeMap<String, String> {
    let manifest = sealed.manifest();
    let entry = |key: &str, value: String| (format!("org.opencontainers.image.{key}"), value);
    [
        entry("title", manifest.name.to_string()),
        entry("version", manifest.release.to_string()),
    ]
    .into()
}

/// A registry that accepts uploads to one repository.
struct Registry<'a> {
    client: Client,
    reference: &'a Reference,
    network: &'a NetworkOptions,
    /// The header that satisfied the registry, if it requires one.
    authorization: Option<HeaderValue>,
}

impl<'a> Registry<'a> {
    /// Asks the registry which credentials an upload needs, and gets them.
    async fn connect(
        reference: &'a Reference,
        network: &'a NetworkOptions,
    ) -> Result<Registry<'a>, FetchError> {
        let client = Network::from(network.clone()).client()?;
        let registry = address(reference, network, "")?;
        let response = send(client.get(registry.clone())).await?;
        let authorization = match response.status() {
            StatusCode::UNAUTHORIZED => {
                let authorizer = Authorizer {
                    client: &client,
                    options: network,
                    registry: &registry,
                    scope: format!("repository:{}:pull,push", reference.repository()),
                };
                Some(authorizer.satisfy(&response).await?.header()?)
            }
            _ => None,
        };
        Ok(Registry {
            client,
            reference,
            network,
            authorization,
        })
    }

    /// Uploads a file in one piece, to the place that the registry names for it.
    async fn put_blob(&self, described: &Descriptor, content: &[u8]) -> Result<(), FetchError> {
        let start = self.address("blobs/uploads/")?;
        let response = self.send(&start, self.client.post(start.clone())).await?;
        if response.status() != StatusCode::ACCEPTED {
            return Err(refused(&response));
        }
        let mut place = place(&response)?;
        place
            .query_pairs_mut()
            .append_pair("digest", &described.digest);
        let request = self
            .client
            .put(place.clone())
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(content.to_vec());
        self.put(&place, request).await
    }

    async fn put_manifest(&self, manifest: Vec<u8>) -> Result<(), FetchError> {
        let place = self.address(&format!("manifests/{}", self.reference.manifest()))?;
        let request = self
            .client
            .put(place.clone())
            .header(CONTENT_TYPE, MANIFEST_MEDIA_TYPE)
            .body(manifest);
        self.put(&place, request).await
    }

    async fn put(&self, place: &Url, request: RequestBuilder) -> Result<(), FetchError> {
        let response = self.send(place, request).await?;
        match response.status() {
            StatusCode::CREATED => Ok(()),
            _ => Err(refused(&response)),
        }
    }

    /// Sends a request, with the credentials if it goes to the registry itself.
    async fn send(&self, to: &Url, request: RequestBuilder) -> Result<Response, FetchError> {
        let own = self.address("")?.origin() == to.origin();
        match self.authorization.clone().filter(|_| own) {
            Some(header) => send(request.header(AUTHORIZATION, header)).await,
            None => send(request).await,
        }
    }

    fn address(&self, end: &str) -> Result<Url, FetchError> {
        let repository = self.reference.repository();
        address(self.reference, self.network, &format!("{repository}/{end}"))
    }
}

/// Returns the address that a registry names for an upload. It may be relative.
fn place(response: &Response) -> Result<Url, FetchError> {
    let named = response.headers().get(LOCATION);
    let place = named
        .and_then(|place| place.to_str().ok())
        .and_then(|place| response.url().join(place).ok())
        .ok_or_else(|| FetchError::Redirect("names no place for an upload".to_owned()))?;
    match (response.url().scheme(), place.scheme()) {
        (_, "https") | ("http", "http") => Ok(place),
        _ => Err(FetchError::Redirect(
            "names a place for an upload without TLS; must be HTTPS".to_owned(),
        )),
    }
}
