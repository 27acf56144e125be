//! Refuses to build a wheel that lacks the module it is there to carry.

use std::env;
use std::path::Path;

const MODULE: &str = "python/mitmproxy_watm/modules/wireguard.wasm";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_WHEEL").is_none() {
        return;
    }
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it for a build script");
    println!("cargo::rerun-if-changed={MODULE}");
    if !Path::new(&folder).join(MODULE).is_file() {
        println!(
            "cargo::error=host-python/{MODULE} is missing: a wheel carries the module, build it with `make modules` first"
        );
    }
}
