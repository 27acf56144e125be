//! Manifests in JSON, as people write them for `watm seal` and `watm verify` prints them.

use std::collections::BTreeMap;

use serde_derive::{Deserialize, Serialize};
use watm_policy::inspection::ModuleInfo;
use watm_seal::{Digest, Manifest, Moment, Name, Refused, Release};
use watm_types::{ModuleKind, Role};

use crate::capabilities::{CapabilitiesText, texts};

/// A manifest as a person writes it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ManifestText {
    name: String,
    /// Epoch and sequence, such as `1.42`.
    release: String,
    #[serde(default)]
    version: String,
    /// The world. By default the one that the module is built for.
    world: Option<String>,
    /// The roles. By default those of a WATER module's exports, and for a component that of a
    /// listener.
    roles: Option<Vec<String>>,
    /// The time from which it is valid. By default now.
    not_before: Option<String>,
    /// A date such as `2027-11-21`.
    expires: String,
    #[serde(default = "stable")]
    channel: String,
    audience: Option<String>,
    /// The oldest host. By default the version of this program.
    #[serde(default = "this_version")]
    min_host: String,
    #[serde(default)]
    config_schema: u32,
    #[serde(default)]
    capabilities: CapabilitiesText,
    #[serde(default)]
    floors: BTreeMap<String, String>,
    #[serde(default)]
    requires: BTreeMap<String, String>,
    #[serde(default)]
    source_commit: String,
    #[serde(default)]
    toolchain: String,
}

fn stable() -> String {
    "stable".to_owned()
}

fn this_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

impl ManifestText {
    /// Makes the manifest of this module under this root, and checks it.
    pub fn parse(&self, root: Digest, info: &ModuleInfo, now: u64) -> Result<Manifest, Refused> {
        let own_world = || world_of(info);
        let own_roles = || match info.kind {
            ModuleKind::Component => vec!["listener".to_owned()],
            _ => info.roles.iter().copied().map(role_text).collect(),
        };
        let malformed = |field: &str, reason: String| Refused::Malformed {
            field: field.to_owned(),
            reason,
        };
        let manifest = Manifest {
            root,
            name: self.name.parse()?,
            world: self.world.clone().unwrap_or_else(own_world).parse()?,
            roles: self
                .roles
                .clone()
                .unwrap_or_else(own_roles)
                .iter()
                .map(|text| text.parse())
                .collect::<Result<_, _>>()?,
            release: self.release.parse()?,
            version: self.version.clone(),
            // `watm_seal::seal` fills in both.
            body_length: 0,
            body_sha256: Digest::of(&[]),
            not_before: match &self.not_before {
                Some(text) => text.parse::<Moment>()?.0,
                None => now,
            },
            expires: self.expires.parse::<Moment>()?.0,
            channel: self.channel.parse()?,
            audience: self
                .audience
                .as_ref()
                .map(|text| text.parse())
                .transpose()?,
            min_host: self
                .min_host
                .parse()
                .map_err(|error: semver::Error| malformed("min-host", error.to_string()))?,
            config_schema: self.config_schema,
            capabilities: self.capabilities.parse()?,
            floors: parse_releases(&self.floors)?,
            requires: parse_releases(&self.requires)?,
            source_commit: self.source_commit.clone(),
            toolchain: self.toolchain.clone(),
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// Describes the manifest for people: lines, each with its subject before it.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = vec![("name", self.name.clone())];
        let version = match self.version.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.version),
        };
        words.push(("release", format!("{}{version}", self.release)));
        words.push(("channel", self.channel.clone()));
        words.extend(self.audience.clone().map(|audience| ("audience", audience)));
        words.extend(self.world.clone().map(|world| ("world", world)));
        let roles = self.roles.iter().flatten().cloned();
        words.push(("roles", roles.collect::<Vec<_>>().join(", ")));
        let from = self
            .not_before
            .iter()
            .map(|from| ("valid", format!("from {from}")));
        words.extend(from);
        words.push(("expires", self.expires.clone()));
        words.push(("host", format!("{} or newer", self.min_host)));
        let may = self.capabilities.words().into_iter();
        words.extend(may.map(|line| ("may have", line)));
        let releases = |map: &BTreeMap<String, String>| -> Vec<String> {
            map.iter()
                .map(|(name, release)| format!("{name} {release} or newer"))
                .collect()
        };
        words.extend(
            releases(&self.requires)
                .into_iter()
                .map(|line| ("requires", line)),
        );
        words.extend(
            releases(&self.floors)
                .into_iter()
                .map(|line| ("floor", line)),
        );
        for (what, text) in [
            ("source", &self.source_commit),
            ("toolchain", &self.toolchain),
        ] {
            if !text.is_empty() {
                words.push((what, text.clone()));
            }
        }
        words
    }
}

/// Formats the module's world as [`watm_seal::World`] does.
fn world_of(info: &ModuleInfo) -> String {
    match info.kind {
        ModuleKind::WaterV0 => "water-v0".to_owned(),
        ModuleKind::WaterV1 => "water-v1".to_owned(),
        _ => info.world.clone().unwrap_or_default(),
    }
}

fn role_text(role: Role) -> String {
    match role {
        Role::Dialer => "dialer",
        Role::FixedDialer => "fixed-dialer",
        Role::Listener => "listener",
        Role::Relay => "relay",
    }
    .to_owned()
}

fn parse_releases(texts: &BTreeMap<String, String>) -> Result<BTreeMap<Name, Release>, Refused> {
    texts
        .iter()
        .map(|(name, release)| Ok((name.parse()?, release.parse()?)))
        .collect()
}

impl From<&Manifest> for ManifestText {
    fn from(manifest: &Manifest) -> ManifestText {
        let releases = |map: &BTreeMap<Name, Release>| {
            map.iter()
                .map(|(name, release)| (name.to_string(), release.to_string()))
                .collect()
        };
        ManifestText {
            name: manifest.name.to_string(),
            release: manifest.release.to_string(),
            version: manifest.version.clone(),
            world: Some(manifest.world.to_string()),
            roles: Some(texts(&manifest.roles)),
            not_before: Some(Moment(manifest.not_before).to_string()),
            expires: Moment(manifest.expires).to_string(),
            channel: manifest.channel.to_string(),
            audience: manifest.audience.as_ref().map(ToString::to_string),
            min_host: manifest.min_host.to_string(),
            config_schema: manifest.config_schema,
            capabilities: (&manifest.capabilities).into(),
            floors: releases(&manifest.floors),
            requires: releases(&manifest.requires),
            source_commit: manifest.source_commit.clone(),
            toolchain: manifest.toolchain.clone(),
        }
    }
}
