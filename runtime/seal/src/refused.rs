//! Reasons why a file is refused: the error type of this crate.

use watm_types::InvalidPattern;

use crate::bytes::malformed;
use crate::time::Moment;
use crate::{Digest, Name, PublicKey, Release};

/// The reason why a file is refused: a [code](Refused::code) for programs and a line for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The file or its seal exceeds the limit on size.
    #[error("{bytes} bytes; must be {limit} at most")]
    TooLarge {
        /// The size of the file or of its seal.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The file is not WebAssembly.
    #[error("not WebAssembly; a module begins with \\0asm and a version")]
    NotWasm,
    /// The module has no seal.
    #[error("not sealed; must be a module sealed under the root (watm seal)")]
    Unsealed,
    /// The seal is not the first section, or there is a second one.
    #[error("has a seal that is not its first section; must have one seal, as the first section")]
    MisplacedSeal,
    /// The encoding is not one that this version writes.
    #[error("{field}: {reason}")]
    Malformed {
        /// The name of the field.
        field: String,
        /// The fault, and what would be right.
        reason: String,
    },
    /// The file is not among the pinned ones.
    #[error("its SHA-256 {found} is not pinned; get the pinned file, or pin this one")]
    NotPinned {
        /// The SHA-256 of the file.
        found: Digest,
    },
    /// The file is sealed under another root.
    #[error("belongs to the root {found}; must be {expected}")]
    UnknownRoot {
        /// The root of the file.
        found: Digest,
        /// The root of the host.
        expected: Digest,
    },
    /// A version of the root does not follow from the trusted one.
    #[error("root version {version}: {reason}")]
    Rotation {
        /// The version that does not follow.
        version: u32,
        /// The reason.
        reason: String,
    },
    /// The newest version of the root has expired.
    #[error("root version {version} expired on {}; a newer version is needed", Moment(*expired))]
    RootExpired {
        /// The version of the root.
        version: u32,
        /// The time of expiry, in seconds since 1970.
        expired: u64,
    },
    /// A signature is not by the key that it names, or not over this content.
    #[error("{of}: the signature of {key} is wrong; get the file again")]
    BadSignature {
        /// The signed object.
        of: String,
        /// The key that the signature names.
        key: PublicKey,
    },
    /// Too few keys have signed.
    #[error("{name}: signed by {valid} of the keys of {delegation}; {needed} are needed")]
    Threshold {
        /// The module.
        name: Name,
        /// The delegation whose keys are needed.
        delegation: Name,
        /// The number of its keys that have signed.
        valid: usize,
        /// The number that must sign.
        needed: usize,
    },
    /// Too few keys have signed, not counting a revoked one.
    #[error("{name}: signed by {key}, which is revoked; {needed} keys of {delegation} are needed")]
    Revoked {
        /// The module.
        name: Name,
        /// The revoked key.
        key: PublicKey,
        /// The delegation whose keys are needed.
        delegation: Name,
        /// The number of keys needed.
        needed: usize,
    },
    /// The signers may not sign this.
    #[error("{name}: {reason}")]
    Delegation {
        /// The module.
        name: Name,
        /// The limit of the signers, and what exceeds it.
        reason: String,
    },
    /// The content differs from the signed content.
    #[error(
        "{name}: the content is {} bytes with the SHA-256 {}; the signature is for {} bytes with \
         {}; get the file again",
        found.0, found.1, expected.0, expected.1
    )]
    BadHash {
        /// The name in the manifest.
        name: Name,
        /// Length and SHA-256 in the manifest.
        expected: (u64, Digest),
        /// Length and SHA-256 of the file without its seal.
        found: (u64, Digest),
    },
    /// The module is valid but not the requested one.
    #[error("{name}: its {field} is {found}; must be {expected}")]
    WrongName {
        /// The module.
        name: Name,
        /// The field that differs: name, world, role, channel, audience, config-schema.
        field: &'static str,
        /// The value in the manifest.
        found: String,
        /// The value that the host requires.
        expected: String,
    },
    /// The host is older than the module requires.
    #[error("{name}: needs a host of version {needed}; this is {found}")]
    HostTooOld {
        /// The module.
        name: Name,
        /// The oldest version that suffices.
        needed: semver::Version,
        /// The version of the host.
        found: semver::Version,
    },
    /// The module is not valid yet.
    #[error("{name}: not valid before {}; it is {}", Moment(*from), Moment(*now))]
    NotYetValid {
        /// The module.
        name: Name,
        /// The time from which it is valid, in seconds since 1970.
        from: u64,
        /// The time it was judged by.
        now: u64,
    },
    /// The module has expired.
    #[error("{name}: expired on {}; it is {}, a newer release is needed", Moment(*expired), Moment(*now))]
    Expired {
        /// The module.
        name: Name,
        /// The time of expiry, in seconds since 1970.
        expired: u64,
        /// The time it was judged by.
        now: u64,
    },
    /// The release is older than the host accepts.
    #[error("{name}: release {found} is older than {least}, {floor}; {}", floor.remedy(name, *found))]
    Rollback {
        /// The module.
        name: Name,
        /// Its release.
        found: Release,
        /// The oldest acceptable release.
        least: Release,
        /// The origin of that limit.
        floor: Floor,
    },
    /// The release has the number of one accepted before, but other content.
    #[error(
        "{name}: release {release} was accepted with other content; a change needs a new sequence"
    )]
    Equivocation {
        /// The module.
        name: Name,
        /// The number of both.
        release: Release,
    },
    /// A required module is missing or too old.
    #[error("{name}: requires {required} {least} or newer; {}", match found {
        Some(found) => format!("this host has {found}"),
        None => "this host has none".to_owned(),
    })]
    Requires {
        /// The module.
        name: Name,
        /// The name of the required module.
        required: Name,
        /// The oldest release that suffices.
        least: Release,
        /// The release that is present, if any.
        found: Option<Release>,
    },
    /// The module requests capabilities that the user has not approved.
    #[error("{name}: asks for more than is approved: {}", more.join(", "))]
    NeedsApproval {
        /// The module.
        name: Name,
        /// The missing capabilities, readable for people.
        more: Vec<String>,
    },
    /// The state has no room for another name.
    #[error(
        "{name}: the state already has {limit} names, the maximum; remove unused ones (watm trust \
         --forget)"
    )]
    StateFull {
        /// The module.
        name: Name,
        /// The limit on names.
        limit: usize,
    },
}

/// The origin of the oldest release that a host accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Floor {
    /// This build of the host.
    #[error("which this program requires")]
    Host,
    /// A module that was accepted before, by its `floors`.
    #[error("which an accepted module requires")]
    Module,
    /// The release that was accepted before.
    #[error("which was accepted before")]
    Accepted,
    /// The release in the place of an update.
    #[error("which is installed")]
    Installed,
}

impl Floor {
    fn remedy(self, name: &Name, found: Release) -> String {
        match self {
            Floor::Host | Floor::Module => "install a newer release".to_owned(),
            Floor::Accepted | Floor::Installed => format!(
                "install a newer release, or allow this one with --name {name} \
                 --allow-downgrade {found}"
            ),
        }
    }
}

impl Refused {
    /// Returns a stable code, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Refused::TooLarge { .. } => "too-large",
            Refused::NotWasm => "not-wasm",
            Refused::Unsealed => "unsealed",
            Refused::MisplacedSeal => "misplaced-seal",
            Refused::Malformed { .. } => "malformed",
            Refused::NotPinned { .. } => "not-pinned",
            Refused::UnknownRoot { .. } => "unknown-root",
            Refused::Rotation { .. } => "bad-root",
            Refused::RootExpired { .. } => "root-expired",
            Refused::BadSignature { .. } => "bad-signature",
            Refused::Threshold { .. } => "threshold",
            Refused::Revoked { .. } => "revoked",
            Refused::Delegation { .. } => "delegation",
            Refused::BadHash { .. } => "bad-hash",
            Refused::WrongName { .. } => "wrong-name",
            Refused::HostTooOld { .. } => "host-too-old",
            Refused::NotYetValid { .. } => "not-yet-valid",
            Refused::Expired { .. } => "expired",
            Refused::Rollback { .. } => "rollback",
            Refused::Equivocation { .. } => "equivocation",
            Refused::Requires { .. } => "requires",
            Refused::NeedsApproval { .. } => "needs-approval",
            Refused::StateFull { .. } => "state-full",
        }
    }
}

impl From<InvalidPattern> for Refused {
    fn from(error: InvalidPattern) -> Refused {
        malformed("connect pattern", error)
    }
}
