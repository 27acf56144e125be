//! Recorded signatures, for a module that asks for them in another order. `world` uses it.

use std::collections::BTreeMap;

use super::answers::{done, encoded, refused};
use watm_component::recording::Digest;
use watm_component::wit::types::ErrorCode;

/// The keys of one instance, in the recording and in this run.
#[derive(Default)]
pub(super) struct Signing {
    keys: BTreeMap<String, Key>,
    /// The names of keys by their handles in the recording; `handles`: in this run.
    recorded: BTreeMap<u32, String>,
    handles: BTreeMap<u32, String>,
    /// The number of handles given in this run.
    given: u32,
}

/// The host's answers about a key, and its signatures.
#[derive(Default)]
pub(super) struct Key {
    pub(super) public_key: Vec<u8>,
    pub(super) schemes: Vec<u16>,
    /// The signatures by the scheme and the message.
    signatures: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Signing {
    /// Notes a key that was opened in the recording.
    pub(super) fn opened(&mut self, name: String, handle: u32) {
        self.keys.entry(name.clone()).or_default();
        self.recorded.insert(handle, name);
    }

    /// Returns a key by its handle in the recording.
    pub(super) fn recorded(&mut self, handle: u32) -> Option<&mut Key> {
        self.keys.get_mut(self.recorded.get(&handle)?)
    }

    /// Opens a key in this run, if the recording has it.
    pub(super) fn open(&mut self, name: String) -> Vec<u8> {
        if !self.keys.contains_key(&name) {
            return refused(ErrorCode::AccessDenied);
        }
        self.given += 1;
        self.handles.insert(self.given, name);
        done(&self.given)
    }

    /// Returns a key by its handle in this run.
    pub(super) fn key(&self, handle: u32) -> Option<&Key> {
        self.keys.get(self.handles.get(&handle)?)
    }

    pub(super) fn close(&mut self, handle: u32) {
        self.handles.remove(&handle);
    }
}

impl Key {
    /// Notes a signature of the recording.
    pub(super) fn signed(&mut self, scheme: u16, message: Digest, signature: Vec<u8>) {
        self.signatures
            .insert(encoded(&(scheme, message)), signature);
    }

    /// Returns the recorded signature, or an error if there is none.
    pub(super) fn sign(&self, scheme: u16, message: Digest) -> Vec<u8> {
        match self.signatures.get(&encoded(&(scheme, message))) {
            Some(signature) => done(signature),
            None => refused(ErrorCode::Other(Some(
                "the recording does not contain such a signature".to_owned(),
            ))),
        }
    }
}
