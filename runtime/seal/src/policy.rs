//! Policies: the requirements of a host beyond a valid seal. `verify` takes one and returns
//! warnings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use semver::Version;

use crate::time::{DAY, Moment};
use crate::{Capabilities, Digest, ModuleRole, Name, Release, World};

/// The requirements of a host beyond a valid seal. By default it accepts any sealed module whose
/// capabilities are approved already.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The name of the requested module.
    pub name: Option<Name>,
    /// The worlds that this host supports. Empty means that the world is not checked.
    pub worlds: Vec<World>,
    /// The role that the module must have.
    pub role: Option<ModuleRole>,
    /// The channel that this host follows.
    pub channel: Option<Name>,
    /// The groups that this host belongs to. A module for one audience is for no other host.
    pub audiences: BTreeSet<Name>,
    /// The version of this host.
    pub host: Option<Version>,
    /// The version of the configuration that the host has.
    pub config_schema: Option<u32>,
    /// The oldest releases that this version of the host accepts, whatever its state says. They
    /// remain when the state is lost.
    pub floors: BTreeMap<Name, Release>,
    /// Modules that are present already, for modules that require them.
    pub present: BTreeMap<Name, Release>,
    /// Accept exactly this release although a newer one has been accepted, for this call only. It
    /// cannot go below a floor.
    pub allow_downgrade: Option<(Name, Release)>,
    /// Accept only files with one of these SHA-256 digests. Empty means any.
    pub pins: BTreeSet<Digest>,
    /// The source of the approval of the module's capabilities.
    pub approval: Approval,
    /// Capabilities approved in addition to [`Approval::Recorded`], such as those in a
    /// configuration file. The state does not record them. Empty by default.
    pub approved: Capabilities,
    /// Accept modules without a seal, for development. A broken seal is never accepted.
    pub allow_unsealed: bool,
    /// The number of seconds before expiry from which to warn. 14 days by default.
    pub warn_before: u64,
}

/// The source of the approval of a module's capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// The state: capabilities approved for this name before.
    Recorded,
    /// The user, who has seen this module's request and approved it. The state records it once the
    /// module is accepted.
    Given,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            name: None,
            worlds: Vec::new(),
            role: None,
            channel: None,
            audiences: BTreeSet::new(),
            host: None,
            config_schema: None,
            floors: BTreeMap::new(),
            present: BTreeMap::new(),
            allow_downgrade: None,
            pins: BTreeSet::new(),
            approval: Approval::Recorded,
            approved: Capabilities::default(),
            allow_unsealed: false,
            warn_before: 14 * DAY,
        }
    }
}

/// A reason for concern about a module that is accepted nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// It has no seal, and modules without a seal are allowed for development.
    Unsealed,
    /// It is older than a release accepted before, as the user has allowed.
    Downgrade {
        /// The loaded release.
        release: Release,
        /// The newest release accepted before.
        newest: Release,
    },
    /// It will expire soon.
    ExpiresSoon {
        /// The time of expiry, in seconds since 1970.
        expires: u64,
    },
    /// It has expired. It keeps running, but would not be loaded again.
    Expired {
        /// The time of expiry, in seconds since 1970.
        expires: u64,
    },
    /// It expires so late that updates could be withheld for years: its signer was generous, or the
    /// clock is slow.
    ExpiryFarOff {
        /// The time of expiry, in seconds since 1970.
        expires: u64,
    },
    /// A freshness note announces a newer release, which has not arrived.
    Outdated {
        /// The loaded release.
        release: Release,
        /// The announced release.
        newest: Release,
    },
    /// The clock is behind an earlier reading.
    ClockBehind {
        /// The clock's time, in seconds since 1970.
        now: u64,
        /// The greatest time that it has shown.
        greatest: u64,
    },
}

impl Warning {
    /// Returns a stable code, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Warning::Unsealed => "unsealed",
            Warning::Downgrade { .. } => "downgrade",
            Warning::ExpiresSoon { .. } => "expires-soon",
            Warning::Expired { .. } => "expired",
            Warning::ExpiryFarOff { .. } => "expiry-far-off",
            Warning::Outdated { .. } => "outdated",
            Warning::ClockBehind { .. } => "clock-behind",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Unsealed => f.write_str(
                "not sealed; accepted because unsealed modules are allowed for development",
            ),
            Warning::Downgrade { release, newest } => {
                write!(f, "release {release} is older than {newest}, as allowed")
            }
            Warning::ExpiresSoon { expires } => {
                let expires = Moment(*expires);
                write!(f, "expires on {expires}; a newer release is needed")
            }
            Warning::Expired { expires } => {
                let expires = Moment(*expires);
                write!(f, "expired on {expires}; it cannot be loaded again")
            }
            Warning::ExpiryFarOff { expires } => {
                let expires = Moment(*expires);
                write!(f, "expires unusually late, on {expires}; check the clock")
            }
            Warning::Outdated { release, newest } => {
                write!(f, "is release {release}, but {newest} was announced")
            }
            Warning::ClockBehind { now, greatest } => {
                let (now, greatest) = (Moment(*now), Moment(*greatest));
                write!(
                    f,
                    "the clock went back: it says {now}, but said {greatest} before"
                )
            }
        }
    }
}
