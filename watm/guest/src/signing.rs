//! The host's private keys.

use watm_core::ErrorCode;
use watm_core::signing::{PrivateKey, set_provider};

use crate::bindings::watm::transport::signing as wit;
use crate::convert::to_error;

/// Let this thread's transport ask for the host's keys. A module that does not say so does not
/// import them.
pub fn provide() {
    set_provider(Some(host_key));
}

fn host_key(name: &str) -> Result<Box<dyn PrivateKey>, ErrorCode> {
    let key = wit::PrivateKey::open(name).map_err(to_error)?;
    Ok(Box::new(HostKey(key)))
}

struct HostKey(wit::PrivateKey);

impl PrivateKey for HostKey {
    fn public_key(&self) -> Vec<u8> {
        self.0.public_key()
    }

    fn schemes(&self) -> Vec<u16> {
        self.0.schemes()
    }

    fn sign(&self, scheme: u16, message: &[u8]) -> Result<Vec<u8>, ErrorCode> {
        self.0.sign(scheme, message).map_err(to_error)
    }
}
