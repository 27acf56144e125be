//! Worlds: the interfaces that modules are built for. Manifests name one, and policies list those
//! of a host.

use std::fmt;
use std::str::FromStr;

use semver::Version;

use crate::Refused;
use crate::bytes::{Reader, Writer, malformed};

/// The longest name of a world, and the longest version, in bytes.
const LIMIT: usize = 64;

/// The interface that a module is built for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum World {
    /// A component.
    Component {
        /// Package and world, without a version: `watm:transport/module`.
        name: String,
        /// The version of the package.
        version: Version,
    },
    /// A core module of WATER's first interface.
    WaterV0,
    /// A core module of WATER's second interface.
    WaterV1,
}

impl World {
    /// Returns true if a host with this world can run a module for the other: the same kind, with
    /// versions that differ at most in the last number.
    pub fn runs(&self, module: &World) -> bool {
        match (self, module) {
            (
                World::Component { name, version },
                World::Component {
                    name: other,
                    version: built,
                },
            ) => name == other && (version.major, version.minor) == (built.major, built.minor),
            (own, other) => own == other,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Refused> {
        let World::Component { name, version } = self else {
            return Ok(());
        };
        let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b':' | b'/');
        if name.is_empty() || name.len() > LIMIT || !name.bytes().all(allowed) {
            let reason = format!("{name:?}; must be like watm:transport/module");
            return Err(malformed("world", reason));
        }
        check_version("world version", version)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<World, Refused> {
        match reader.u8("world")? {
            1 => {
                let name = reader.text("world", LIMIT)?.to_owned();
                let version = read_version(reader, "world version")?;
                Ok(World::Component { name, version })
            }
            2 => Ok(World::WaterV0),
            3 => Ok(World::WaterV1),
            other => Err(malformed(
                "world",
                format!("{other}; must be 1 (component), 2 (WATER v0) or 3 (WATER v1)"),
            )),
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        match self {
            World::Component { name, version } => {
                writer.u8(1).record(name.as_bytes());
                write_version(writer, version);
            }
            World::WaterV0 => drop(writer.u8(2)),
            World::WaterV1 => drop(writer.u8(3)),
        }
    }
}

/// Checks that a version is short enough to encode.
pub(crate) fn check_version(field: &str, version: &Version) -> Result<(), Refused> {
    match version.to_string().len() <= LIMIT {
        true => Ok(()),
        false => Err(malformed(field, format!("longer than {LIMIT} bytes"))),
    }
}

/// Reads a semantic version, which has one spelling.
pub(crate) fn read_version(reader: &mut Reader<'_>, field: &str) -> Result<Version, Refused> {
    let text = reader.text(field, LIMIT)?;
    Version::parse(text).map_err(|error| malformed(field, format!("{text:?}: {error}")))
}

pub(crate) fn write_version(writer: &mut Writer, version: &Version) {
    writer.record(version.to_string().as_bytes());
}

/// Parses the form that `Display` writes: `watm:transport/module@0.1.0`, `water-v0` or `water-v1`.
impl FromStr for World {
    type Err = Refused;

    fn from_str(text: &str) -> Result<World, Refused> {
        let world = match (text, text.split_once('@')) {
            ("water-v0", _) => World::WaterV0,
            ("water-v1", _) => World::WaterV1,
            (_, Some((name, version))) => World::Component {
                name: name.to_owned(),
                version: Version::parse(version)
                    .map_err(|error| malformed("world version", format!("{version:?}: {error}")))?,
            },
            _ => {
                let reason = format!(
                    "{text:?}; must be like watm:transport/module@0.1.0, or water-v0 or water-v1"
                );
                return Err(malformed("world", reason));
            }
        };
        world.check()?;
        Ok(world)
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            World::Component { name, version } => write!(f, "{name}@{version}"),
            World::WaterV0 => f.write_str("water-v0"),
            World::WaterV1 => f.write_str("water-v1"),
        }
    }
}
