//! Manifests, and their encoding that is signed. `seal` writes them, and `verify` reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use semver::Version;
use watm_types::Role;

use crate::bytes::{Reader, Writer, check_count, check_text, malformed};
use crate::time::Moment;
use crate::world::{check_version, read_version, write_version};
use crate::{Capabilities, Digest, Name, Refused, Release, World};

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 64;
const MAX_VERSION: usize = 64;
const MAX_COMMIT: usize = 64;
const MAX_TOOLCHAIN: usize = 128;
/// The most floors or requirements: sets of modules that belong together are small.
const MAX_RELEASES: usize = 32;
/// The version of this encoding.
const FORMAT: u8 = 1;

/// All statements of the signers about a module. The signature covers its encoding: see the crate's
/// page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The [id](crate::Root::id) of the root that it is sealed under.
    pub root: Digest,
    /// The module's name, which its updates share.
    pub name: Name,
    /// The interface that it is built for.
    pub world: World,
    /// Its roles; at least one.
    pub roles: BTreeSet<ModuleRole>,
    /// The release, which decides which of two modules is newer.
    pub release: Release,
    /// The version shown to people. At most 64 printable characters.
    pub version: String,
    /// The length of the body in bytes: the WebAssembly header and everything after the seal.
    pub body_length: u64,
    /// The SHA-256 of the body.
    pub body_sha256: Digest,
    /// The earliest time at which it may be loaded, in seconds since 1970.
    pub not_before: u64,
    /// The time from which it is no longer loaded, in seconds since 1970.
    pub expires: u64,
    /// The stage of a rollout that it is for: `stable`, `beta`.
    pub channel: Name,
    /// The group of hosts that it is for. `None` means all.
    pub audience: Option<Name>,
    /// The oldest version of the host that runs it.
    pub min_host: Version,
    /// The version of the configuration that it understands.
    pub config_schema: u32,
    /// The capabilities that it requests.
    pub capabilities: Capabilities,
    /// The oldest release of each name that a host accepts once it has accepted this one. At most
    /// 32.
    pub floors: BTreeMap<Name, Release>,
    /// Modules that must be present with it, and their oldest releases. At most 32.
    pub requires: BTreeMap<Name, Release>,
    /// The source commit it was built from. At most 64 printable characters.
    pub source_commit: String,
    /// The toolchain it was built with. At most 128 printable characters.
    pub toolchain: String,
}

/// A role of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModuleRole {
    /// Dials an address that the application names.
    Dialer,
    /// Dials an address of its own choice.
    FixedDialer,
    /// Accepts connections or datagrams for the application.
    Listener,
    /// Accepts connections and passes each on.
    Relay,
}

impl ModuleRole {
    /// All roles; the first is the lowest bit of the encoding.
    pub const ALL: [ModuleRole; 4] = [
        ModuleRole::Dialer,
        ModuleRole::FixedDialer,
        ModuleRole::Listener,
        ModuleRole::Relay,
    ];
}

impl Manifest {
    /// Returns the bytes that are signed, after the domain. Fails if a field is out of its bounds.
    pub fn encode(&self) -> Result<Vec<u8>, Refused> {
        self.check()?;
        Ok(self.write())
    }

    /// Parses the bytes that [`encode`](Manifest::encode) returns. Fails on any others.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, Refused> {
        let mut reader = Reader::new(bytes);
        match reader.u8("manifest format")? {
            FORMAT => {}
            other => {
                let reason = format!("{other}; this host knows {FORMAT}");
                return Err(malformed("manifest format", reason));
            }
        }
        let manifest = Manifest {
            root: Digest(reader.array("root")?),
            name: read_name(&mut reader, "name")?,
            world: World::read(&mut reader)?,
            roles: read_roles(&mut reader)?,
            release: Release::read(&mut reader, "release")?,
            version: reader.text("version", MAX_VERSION)?.to_owned(),
            body_length: reader.u64("body-length")?,
            body_sha256: Digest(reader.array("body-sha256")?),
            not_before: reader.u64("not-before")?,
            expires: reader.u64("expires")?,
            channel: read_name(&mut reader, "channel")?,
            audience: match reader.bool("audience")? {
                true => Some(read_name(&mut reader, "audience")?),
                false => None,
            },
            min_host: read_version(&mut reader, "min-host")?,
            config_schema: reader.u32("config-schema")?,
            capabilities: Capabilities::read(&mut reader)?,
            floors: read_releases(&mut reader, "floors")?,
            requires: read_releases(&mut reader, "requires")?,
            source_commit: reader.text("source-commit", MAX_COMMIT)?.to_owned(),
            toolchain: reader.text("toolchain", MAX_TOOLCHAIN)?.to_owned(),
        };
        reader.end("manifest")?;
        manifest.check()?;
        // The strict reader ensures this. It is checked nevertheless, as signatures depend on it.
        match manifest.write() == bytes {
            true => Ok(manifest),
            false => Err(malformed("manifest", "is not in its canonical encoding")),
        }
    }

    /// Checks that every field is within its bounds.
    pub fn check(&self) -> Result<(), Refused> {
        self.world.check()?;
        if self.roles.is_empty() {
            return Err(malformed("roles", "none; must be at least one"));
        }
        check_text("version", self.version.as_bytes(), MAX_VERSION)?;
        if self.not_before >= self.expires {
            let (from, to) = (Moment(self.not_before), Moment(self.expires));
            let reason = format!("{to} is not after not-before, {from}");
            return Err(malformed("expires", reason));
        }
        check_version("min-host", &self.min_host)?;
        self.capabilities.check()?;
        if let Some(socket) = self
            .capabilities
            .sockets
            .iter()
            .find(|socket| !socket.label.is_exact())
        {
            let reason = format!("{socket}; must be an exact label, without a wildcard");
            return Err(malformed("sockets", reason));
        }
        check_count("floors", self.floors.len(), MAX_RELEASES)?;
        if let Some(floor) = self.floors.get(&self.name)
            && *floor > self.release
        {
            let reason = format!(
                "{floor} for the module itself, whose release is {}",
                self.release
            );
            return Err(malformed("floors", reason));
        }
        check_count("requires", self.requires.len(), MAX_RELEASES)?;
        check_text("source-commit", self.source_commit.as_bytes(), MAX_COMMIT)?;
        check_text("toolchain", self.toolchain.as_bytes(), MAX_TOOLCHAIN)
    }

    fn write(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(FORMAT).bytes(&self.root.0);
        write_name(&mut writer, &self.name);
        self.world.write(&mut writer);
        writer.u8(role_bits(&self.roles));
        self.release.write(&mut writer);
        writer
            .record(self.version.as_bytes())
            .u64(self.body_length)
            .bytes(&self.body_sha256.0)
            .u64(self.not_before)
            .u64(self.expires);
        write_name(&mut writer, &self.channel);
        writer.u8(self.audience.is_some().into());
        if let Some(audience) = &self.audience {
            write_name(&mut writer, audience);
        }
        write_version(&mut writer, &self.min_host);
        writer.u32(self.config_schema);
        self.capabilities.write(&mut writer);
        write_releases(&mut writer, &self.floors);
        write_releases(&mut writer, &self.requires);
        writer
            .record(self.source_commit.as_bytes())
            .record(self.toolchain.as_bytes());
        writer.finish()
    }
}

pub(crate) fn read_name(reader: &mut Reader<'_>, field: &str) -> Result<Name, Refused> {
    reader.text(field, MAX_NAME)?.parse()
}

pub(crate) fn write_name(writer: &mut Writer, name: &Name) {
    writer.record(name.as_str().as_bytes());
}

fn read_roles(reader: &mut Reader<'_>) -> Result<BTreeSet<ModuleRole>, Refused> {
    let bits = reader.u8("roles")?;
    let roles: BTreeSet<ModuleRole> = ModuleRole::ALL
        .into_iter()
        .filter(|role| bits & role_bit(*role) != 0)
        .collect();
    match role_bits(&roles) == bits {
        true => Ok(roles),
        false => Err(malformed("roles", format!("{bits:#x} has unknown bits"))),
    }
}

fn role_bits(roles: &BTreeSet<ModuleRole>) -> u8 {
    roles.iter().fold(0, |bits, role| bits | role_bit(*role))
}

fn role_bit(role: ModuleRole) -> u8 {
    1 << role as u8
}

fn read_releases(reader: &mut Reader<'_>, field: &str) -> Result<BTreeMap<Name, Release>, Refused> {
    let list = reader.list(field, MAX_RELEASES, |reader| {
        let name = read_name(reader, field)?;
        Ok((name, Release::read(reader, field)?))
    })?;
    let count = list.len();
    let releases: BTreeMap<Name, Release> = list.into_iter().collect();
    match releases.len() == count {
        true => Ok(releases),
        false => Err(malformed(field, "has a duplicate name")),
    }
}

fn write_releases(writer: &mut Writer, releases: &BTreeMap<Name, Release>) {
    writer.count(releases.len());
    for (name, release) in releases {
        write_name(writer, name);
        release.write(writer);
    }
}

/// Parses the form that `Display` writes.
impl FromStr for ModuleRole {
    type Err = Refused;

    fn from_str(text: &str) -> Result<ModuleRole, Refused> {
        let role = ModuleRole::ALL
            .into_iter()
            .find(|role| role.to_string() == text);
        role.ok_or_else(|| {
            let reason = format!("{text:?}; must be dialer, fixed-dialer, listener or relay");
            malformed("role", reason)
        })
    }
}

impl fmt::Display for ModuleRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModuleRole::Dialer => "dialer",
            ModuleRole::FixedDialer => "fixed-dialer",
            ModuleRole::Listener => "listener",
            ModuleRole::Relay => "relay",
        })
    }
}

impl From<ModuleRole> for Role {
    fn from(role: ModuleRole) -> Role {
        match role {
            ModuleRole::Dialer => Role::Dialer,
            ModuleRole::FixedDialer => Role::FixedDialer,
            ModuleRole::Listener => Role::Listener,
            ModuleRole::Relay => Role::Relay,
        }
    }
}
