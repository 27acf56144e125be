//! Publishing of sealed modules to registries, for `watm publish`.

use std::collections::BTreeMap;

use oci_client::client::{
    Certificate, CertificateEncoding, ClientConfig, ClientProtocol, Config, ImageLayer,
};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use rustls::crypto::{CryptoProvider, ring};
use watm_seal::{Digest, Refused, Sealed, World};

use crate::authorization::Authorizer;
use crate::error::{FetchError, one_line};
use crate::fetch::{CONFIG_MEDIA_TYPE, LAYER_MEDIA_TYPE, address};
use crate::network::{Credentials, Network, NetworkOptions, send};
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
/// The registry is trusted to end its answers: use your own.
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
    let layer = ImageLayer::new(file.to_vec(), LAYER_MEDIA_TYPE.to_owned(), None);
    let config = Config::new(
        configuration(&sealed, file),
        CONFIG_MEDIA_TYPE.to_owned(),
        None,
    );
    let manifest = OciImageManifest {
        media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
        ..OciImageManifest::build(
            std::slice::from_ref(&layer),
            &config,
            Some(annotations(&sealed)),
        )
    };
    let encoded =
        serde_json::to_vec(&manifest).map_err(|error| PublishError::Registry(error.to_string()))?;
    let digest = format!("sha256:{}", Digest::of(&encoded));
    let client = client(network)?;
    let upload = async {
        let authorization = authorize(reference, network).await?;
        let push = RegistryOperation::Push;
        client.auth(reference, &authorization, push).await?;
        for (data, descriptor) in [
            (layer.data, &manifest.layers[0]),
            (config.data, &manifest.config),
        ] {
            client
                .push_blob(reference, data, &descriptor.digest)
                .await?;
        }
        let kind = HeaderValue::from_static(OCI_IMAGE_MEDIA_TYPE);
        client.push_manifest_raw(reference, encoded, kind).await?;
        Ok::<String, PublishError>(digest)
    };
    match tokio::time::timeout(network.total_timeout, upload).await {
        Ok(outcome) => outcome,
        Err(_) => Err(PublishError::Registry("took too long".to_owned())),
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

fn client(network: &NetworkOptions) -> Result<Client, PublishError> {
    // The library uses the process's default provider. An error means that one is installed
    // already.
    let _ = CryptoProvider::install_default(ring::default_provider());
    let authorities = (!network.authorities.is_empty()).then(|| Certificate {
        encoding: CertificateEncoding::Pem,
        data: network.authorities.clone(),
    });
    let config = ClientConfig {
        protocol: match network.plain_http {
            true => ClientProtocol::Http,
            false => ClientProtocol::Https,
        },
        extra_root_certificates: authorities.into_iter().collect(),
        connect_timeout: Some(network.connect_timeout),
        read_timeout: Some(network.idle_timeout),
        user_agent: concat!("watm/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    Ok(Client::try_from(config)?)
}

/// Returns the authentication that the registry requires. Tokens are fetched here, since the
/// library would send the password to any token service that the registry names.
async fn authorize(
    reference: &Reference,
    options: &NetworkOptions,
) -> Result<RegistryAuth, PublishError> {
    let failed = |error: FetchError| PublishError::Registry(error.to_string());
    let client = Network::from(options.clone()).client().map_err(failed)?;
    let registry = address(reference, options, "").map_err(failed)?;
    let request = client.get(registry.clone());
    let response = send(request).await.map_err(failed)?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(RegistryAuth::Anonymous);
    }
    let authorizer = Authorizer {
        client: &client,
        options,
        registry: &registry,
        scope: format!("repository:{}:pull,push", reference.repository()),
    };
    match authorizer.satisfy(&response).await.map_err(failed)? {
        Credentials::Basic(user, password) => Ok(RegistryAuth::Basic(user, password)),
        Credentials::Bearer(token) => Ok(RegistryAuth::Bearer(token)),
    }
}

impl From<OciDistributionError> for PublishError {
    fn from(error: OciDistributionError) -> PublishError {
        PublishError::Registry(one_line(&error.to_string()))
    }
}
