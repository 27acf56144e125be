//! The results of a verification. `verify` makes them, and hosts and `state` keep them.

use crate::policy::{Approval, Warning};
use crate::{Digest, Manifest, Name, PublicKey, Root};

/// A module that may be loaded. It borrows the verified bytes, so a caller cannot compile others by
/// mistake: no path could lead to another file a moment later.
#[derive(Debug, Clone)]
pub struct Verified<'a> {
    pub(crate) file: &'a [u8],
    pub(crate) sha256: Digest,
    pub(crate) proof: Option<Proof>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) time: u64,
}

/// The evidence for which a sealed module is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The statements of its signers.
    pub manifest: Manifest,
    /// The newest version of the root.
    pub root: Root,
    /// The delegation that the module is signed under.
    pub delegation: Name,
    /// The keys of the delegation that have signed.
    pub signers: Vec<PublicKey>,
    /// The source of the approval.
    pub approval: Approval,
}

impl<'a> Verified<'a> {
    /// Returns the file, a valid module for any runtime.
    pub fn module(&self) -> &'a [u8] {
        self.file
    }

    /// Returns the SHA-256 of the file, to show and to pin.
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// Returns the evidence. `None` if the module is not sealed and the policy allows that.
    pub fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    /// Returns the warnings, for a person.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the time of the host's clock, in seconds since 1970.
    pub fn time(&self) -> u64 {
        self.time
    }
}
