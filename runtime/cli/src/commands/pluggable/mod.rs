//! Modules in place of plugins: of shadowsocks (SIP003), and of Tor.

pub(crate) mod plugin;
pub(crate) mod tor;

mod options;
