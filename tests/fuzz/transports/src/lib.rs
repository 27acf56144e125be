//! Fuzz targets for the bytes that strangers and peers can send to a transport: functions of bytes.
//!
//! A fuzzer chooses the bytes; each target reads them as a program ([`program`]), runs it in
//! virtual time, and checks what must hold whatever comes. `README.md` in the folder above says how
//! to run one.

mod config;
mod connections;
mod device;
mod dialled;
mod ends;
mod generations;
mod inner;
mod packet;
mod peer;
mod program;
mod proxied;
mod proxy;
mod shadowsocks;
mod socks5;
mod strangers;
#[path = "../../../../watm/wireguard/tests/support/mod.rs"]
mod support;

/// Runs the input, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("config", config::run),
    ("device", device::run),
    ("dialled", dialled::run),
    ("ends", ends::run),
    ("generations", generations::run),
    ("inner", inner::run),
    ("peer", peer::run),
    ("proxied", proxied::run),
    ("proxy", proxy::run),
    ("shadowsocks", shadowsocks::run),
    ("socks5", socks5::run),
    ("strangers", strangers::run),
];
