use crate::time::Moment;
use crate::{Digest, Name, PublicKey, Release};

/// Why a file is not accepted: a [code](Refused::code) for programs, and a line for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Larger than anything that is looked at.
    #[error("{bytes} bytes; must be {limit} at most")]
    TooLarge {
        /// Of the file or of its seal.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// Something else than a module.
    #[error("no WebAssembly; a module begins with \\0asm and a version")]
    NotWasm,
    /// A module without a seal.
    #[error("not sealed; must be a module sealed under the root (watm seal)")]
    Unsealed,
    /// A seal that is not the first section, or a second one.
    #[error("has a seal that is not its first section; must have one seal, in front")]
    MisplacedSeal,
    /// What there is cannot have been written by this version.
    #[error("{field}: {reason}")]
    Malformed {
        /// Which field.
        field: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Another file than the one that was pinned.
    #[error("its SHA-256 is {found}, which is not among those that are pinned")]
    NotPinned {
        /// Of the file.
        found: Digest,
    },
    /// Sealed under another root.
    #[error("belongs to the root {found}; must be {expected}")]
    UnknownRoot {
        /// The file's.
        found: Digest,
        /// The host's.
        expected: Digest,
    },
    /// A version of the root that does not follow from the one that is trusted.
    #[error("root version {version}: {reason}")]
    Rotation {
        /// The one that does not follow.
        version: u32,
        /// Why.
        reason: String,
    },
    /// The newest version of the root is too old.
    #[error("root version {version} expired on {}; a newer version is needed", Moment(*expired))]
    RootExpired {
        /// Of the root.
        version: u32,
        /// When.
        expired: u64,
    },
    /// A signature is not by the key that it names, or not over this.
    #[error("{of}: the signature of {key} is wrong")]
    BadSignature {
        /// What was signed.
        of: String,
        /// By whom it is said to be.
        key: PublicKey,
    },
    /// Too few have signed.
    #[error("{name}: signed by {valid} of the keys of {delegation}; {needed} are needed")]
    Threshold {
        /// The module.
        name: Name,
        /// Whose keys.
        delegation: Name,
        /// How many have.
        valid: usize,
        /// How many must.
        needed: usize,
    },
    /// Too few have signed, not counting a key that has been revoked.
    #[error(
        "{name}: {key} has signed it, which is revoked; {needed} keys of {delegation} are needed"
    )]
    Revoked {
        /// The module.
        name: Name,
        /// That key.
        key: PublicKey,
        /// Whose keys are needed.
        delegation: Name,
        /// How many.
        needed: usize,
    },
    /// Who has signed may not sign this.
    #[error("{name}: {reason}")]
    Delegation {
        /// The module.
        name: Name,
        /// What they may not, and what they may.
        reason: String,
    },
    /// Something else than what was signed.
    #[error(
        "{name}: the content is {} bytes with the SHA-256 {}; signed are {} bytes with {}",
        found.0, found.1, expected.0, expected.1
    )]
    BadHash {
        /// What it is said to be.
        name: Name,
        /// Length and SHA-256 in the manifest.
        expected: (u64, Digest),
        /// Of the file without its seal.
        found: (u64, Digest),
    },
    /// Good, but not what was asked for.
    #[error("{name}: its {field} is {found}; must be {expected}")]
    WrongName {
        /// The module.
        name: Name,
        /// What of it: name, world, role, channel, audience, config-schema.
        field: &'static str,
        /// What it has.
        found: String,
        /// What the host asked for.
        expected: String,
    },
    /// The host does not have what the module needs.
    #[error("{name}: needs a host of version {needed}; this is {found}")]
    HostTooOld {
        /// The module.
        name: Name,
        /// At least.
        needed: semver::Version,
        /// The host's.
        found: semver::Version,
    },
    /// Too early.
    #[error("{name}: not valid before {}; it is {}", Moment(*from), Moment(*now))]
    NotYetValid {
        /// The module.
        name: Name,
        /// From when on it is.
        from: u64,
        /// The time it was judged by.
        now: u64,
    },
    /// Too late.
    #[error("{name}: expired on {}; it is {}, a newer release is needed", Moment(*expired), Moment(*now))]
    Expired {
        /// The module.
        name: Name,
        /// When.
        expired: u64,
        /// The time it was judged by.
        now: u64,
    },
    /// Older than what was there already.
    #[error("{name}: is release {found}; must be at least {least}, {because}")]
    Rollback {
        /// The module.
        name: Name,
        /// Its release.
        found: Release,
        /// The oldest one that would do.
        least: Release,
        /// Where that comes from.
        because: &'static str,
    },
    /// Another module under the number of one that was accepted.
    #[error(
        "{name}: release {release} was accepted with other content; a change needs a new sequence"
    )]
    Equivocation {
        /// The module.
        name: Name,
        /// The number of both.
        release: Release,
    },
    /// What it belongs with is missing or too old.
    #[error("{name}: requires {required} {least} or newer; {}", match found {
        Some(found) => format!("{found} is here"),
        None => "it is not here".to_owned(),
    })]
    Requires {
        /// The module.
        name: Name,
        /// What it requires.
        required: Name,
        /// At least.
        least: Release,
        /// What there is.
        found: Option<Release>,
    },
    /// It asks for more than its user has approved.
    #[error("{name}: asks for what is not approved: {}", more.join(", "))]
    NeedsApproval {
        /// The module.
        name: Name,
        /// Each thing, for people.
        more: Vec<String>,
    },
    /// The state has no room for another name.
    #[error("{name}: the state knows {limit} names already; remove what is not used any more")]
    StateFull {
        /// The module.
        name: Name,
        /// The most it has.
        limit: usize,
    },
}

impl Refused {
    /// The same for ever, for programs.
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
