//! The keys for decrypting a captured session, in the format of Wireshark (`wg.keylog_file`) and of
//! WireGuard's own extract-handshakes.sh.
//!
//! boringtun does not expose its ephemeral keys. It draws them from this workspace's `getrandom`,
//! which keeps the last draws while a key log is written. The key of a message is the one that
//! matches the message's public key.

use boringtun::x25519::{PublicKey, StaticSecret};

use crate::config::PeerConfig;
use crate::key;

/// Start or stop keeping private keys.
pub fn enable(wanted: bool) {
    getrandom::keep_keys(wanted);
}

/// The lines of the handshake whose message from here has this ephemeral key. `None` if the private
/// key was not kept.
pub(super) fn lines(
    public: &PublicKey,
    private_key: &StaticSecret,
    config: &PeerConfig,
) -> Option<String> {
    let is_its = |key: &[u8; 32]| PublicKey::from(&StaticSecret::from(*key)) == *public;
    let ephemeral = getrandom::take_keys().into_iter().rev().find(is_its)?;
    Some(format!(
        "LOCAL_STATIC_PRIVATE_KEY = {}\n\
         REMOTE_STATIC_PUBLIC_KEY = {}\n\
         LOCAL_EPHEMERAL_PRIVATE_KEY = {}\n\
         PRESHARED_KEY = {}\n",
        key::encode(private_key.as_bytes()),
        key::encode(config.public_key.as_bytes()),
        key::encode(&ephemeral),
        key::encode(config.preshared_key.as_ref().unwrap_or(&[0; 32])),
    ))
}
