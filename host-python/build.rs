//! Refuses to build a wheel that lacks a module it is there to carry.

use std::env;
use std::path::Path;

/// The module that mitmproxy's users need, and the root that it is sealed under. `make wheel` seals the
/// others too.
const FILES: [&str; 2] = ["root.watm", "wireguard.wasm"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_WHEEL").is_none() {
        return;
    }
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it for a build script");
    for name in FILES {
        let module = format!("python/mitmproxy_watm/modules/{name}");
        println!("cargo::rerun-if-changed={module}");
        if !Path::new(&folder).join(&module).is_file() {
            println!(
                "cargo::error=host-python/{module} is missing: a wheel carries it, make it with `make sealed` first"
            );
        }
    }
}
