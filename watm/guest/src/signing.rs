//! The host's private keys, on the import `signing`.

use watm_core::ErrorCode;
use watm_core::signing::{PrivateKey, set_provider};

use crate::bindings::watm::transport::signing as wit;
use crate::convert::to_error;

/// Enables the host's keys for this thread's transport. A module without this call does not import
/// the interface.
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
