use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use semver::Version;

use crate::time::{DAY, Moment};
use crate::{Capabilities, Digest, ModuleRole, Name, Release, World};

/// What a host wants of a module beyond a good seal. By default any sealed module is wanted, and
/// what it asks for has to be approved already.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The module that was asked for.
    pub name: Option<Name>,
    /// The worlds that this host has. Empty: not looked at.
    pub worlds: Vec<World>,
    /// What it is to do with connections.
    pub role: Option<ModuleRole>,
    /// The channel that this host follows.
    pub channel: Option<Name>,
    /// The groups that this host belongs to. A module for one audience is for no other host.
    pub audiences: BTreeSet<Name>,
    /// This host's.
    pub host: Option<Version>,
    /// The configuration that is at hand.
    pub config_schema: Option<u32>,
    /// The oldest releases that this release of the host accepts, whatever its state says: they
    /// are what is left when the state is lost.
    pub floors: BTreeMap<Name, Release>,
    /// What is here already, for modules that require it.
    pub present: BTreeMap<Name, Release>,
    /// Accept exactly this release although a newer one has been accepted, for this time only. It
    /// is never below a floor.
    pub allow_downgrade: Option<(Name, Release)>,
    /// Accept files with one of these SHA-256 only. Empty: any.
    pub pins: BTreeSet<Digest>,
    /// Whether the module's capabilities have been approved.
    pub approval: Approval,
    /// Capabilities approved beside [`Approval::Recorded`], such as those in a file of the user.
    /// The state learns nothing of it. By default nothing.
    pub approved: Capabilities,
    /// Accept modules that have no seal at all, for development. A broken seal is never accepted.
    pub allow_unsealed: bool,
    /// How many seconds before a module expires to warn of it. By default 14 days.
    pub warn_before: u64,
}

/// Where the approval of a module's capabilities comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// From the state: what was approved for this name before.
    Recorded,
    /// From the user, who has seen what this module asks for and said yes. The state will have it
    /// once the module is accepted.
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

/// What somebody should look at although the module is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// It has no seal; the switch for development is on.
    Unsealed,
    /// It is older than one that was accepted; the user has allowed that.
    Downgrade {
        /// What is loaded.
        release: Release,
        /// What was accepted before.
        newest: Release,
    },
    /// It will soon be loaded no more.
    ExpiresSoon {
        /// When.
        expires: u64,
    },
    /// It goes on running, but would not be loaded again.
    Expired {
        /// When it did.
        expires: u64,
    },
    /// It can be held back from updates for years: its signer was generous, or the clock is slow.
    ExpiryFarOff {
        /// When it expires.
        expires: u64,
    },
    /// A freshness note says that there is a newer release, which did not come here.
    Outdated {
        /// What is loaded.
        release: Release,
        /// What there is.
        newest: Release,
    },
    /// The clock has been later before.
    ClockBehind {
        /// What it says.
        now: u64,
        /// What it has said.
        greatest: u64,
    },
}

impl Warning {
    /// The same for ever, for programs.
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
                "not sealed: accepted, as modules without a seal are allowed for development",
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
                write!(f, "expired on {expires}; it would not be loaded again")
            }
            Warning::ExpiryFarOff { expires } => {
                let expires = Moment(*expires);
                write!(f, "expires only on {expires}; or is the clock slow?")
            }
            Warning::Outdated { release, newest } => {
                write!(f, "is release {release}, and {newest} has been announced")
            }
            Warning::ClockBehind { now, greatest } => {
                let (now, greatest) = (Moment(*now), Moment(*greatest));
                write!(f, "the clock says {now}, and has said {greatest} before")
            }
        }
    }
}
