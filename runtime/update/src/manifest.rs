//! The manifest of an artifact in a registry, by the image specification of the Open Container
//! Initiative, and what it is for a WebAssembly module. Used by `publish` and `fetch`.

use std::collections::BTreeMap;

use serde_derive::{Deserialize, Serialize};

/// The media type of the manifest itself.
pub(crate) const MANIFEST_MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of a WebAssembly artifact's configuration.
pub(crate) const CONFIG_MEDIA_TYPE: &str = "application/vnd.wasm.config.v0+json";
/// The media type of its one layer.
pub(crate) const LAYER_MEDIA_TYPE: &str = "application/wasm";

/// A manifest, without what hosts do not use.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u8,
    #[serde(default)]
    pub(crate) media_type: Option<String>,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    #[serde(default)]
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

/// The type, digest and size of a file, as a manifest names it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
}
