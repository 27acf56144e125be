//! The import `signing`: private keys of the user that a module signs with, from `keys`.

use std::sync::Arc;

use wasmtime::component::Resource;

use super::bindings::watm::transport::signing;
use super::{Failure, HostObject, State};
use crate::ErrorCode;
use crate::recording::{Digest, import};
use watm_policy::keys::{Signer, is_of_handshake};

/// A key that a module may sign with.
pub struct PrivateKey(Arc<dyn Signer>);

impl HostObject for PrivateKey {
    /// Returns 0: the key itself is the user's.
    fn bytes(&self) -> usize {
        0
    }
}

impl signing::Host for State {}

impl signing::HostPrivateKey for State {
    fn open(&mut self, name: String) -> Result<Resource<PrivateKey>, Failure> {
        self.turn(import::PrivateKeyOpen, || (&name,))
            .take(self, |state| {
                let key = state.private_keys.get(&name);
                let key = key.ok_or(ErrorCode::AccessDenied)?;
                Ok(state.keep(PrivateKey(key))?.rep())
            })
            .map(Resource::new_own)
    }

    fn public_key(&mut self, key: Resource<PrivateKey>) -> wasmtime::Result<Vec<u8>> {
        self.turn(import::PrivateKeyPublicKey, || (key.rep(),))
            .take(self, |state| Ok(state.table.get(&key)?.0.public_key()))
            .map_err(Failure::into_trap)
    }

    fn schemes(&mut self, key: Resource<PrivateKey>) -> wasmtime::Result<Vec<u16>> {
        self.turn(import::PrivateKeySchemes, || (key.rep(),))
            .take(self, |state| Ok(state.table.get(&key)?.0.schemes()))
            .map_err(Failure::into_trap)
    }

    fn sign(
        &mut self,
        key: Resource<PrivateKey>,
        scheme: u16,
        message: Vec<u8>,
    ) -> Result<Vec<u8>, Failure> {
        self.turn(import::PrivateKeySign, || {
            (key.rep(), scheme, Digest::of(&message))
        })
        .take(self, |state| {
            let signer = state.table.get(&key)?.0.clone();
            if !signer.schemes().contains(&scheme) {
                return Err(ErrorCode::NotSupported.into());
            }
            if !is_of_handshake(&message) {
                return Err(ErrorCode::InvalidArgument.into());
            }
            state.hub.counters.usage.signs();
            signer.sign(scheme, &message).map_err(|reason| {
                let reason = format!("the host's key failed to sign: {reason}");
                state
                    .logger
                    .record(tracing::Level::WARN, "signing", &reason);
                ErrorCode::Other("the host's key failed to sign".into()).into()
            })
        })
    }

    fn drop(&mut self, key: Resource<PrivateKey>) -> wasmtime::Result<()> {
        self.turn(import::PrivateKeyDrop, || (key.rep(),))
            .take(self, |state| {
                state.release(key)?;
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}
