//! Refuses to build a wheel that lacks a module it is there to carry, and links the library as Python's tools do.

use std::path::Path;
use std::{env, fs};

/// The module that mitmproxy's users need, and the root that it is sealed under. `make wheel` seals the
/// others too.
const FILES: [&str; 2] = ["root.watm", "wireguard.wasm"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link_for_macos();
    export_for_windows();
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

/// Leaves Python's symbols to the process that loads the library, and names no path of this machine in it.
fn link_for_macos() {
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos") {
        println!("cargo::rustc-cdylib-link-arg=-undefined");
        println!("cargo::rustc-cdylib-link-arg=dynamic_lookup");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,@rpath/_native.abi3.so");
    }
}

/// Exports one function. LLVM's linker exports all 58,000 otherwise, and keeps those that nothing calls.
fn export_for_windows() {
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "windows")
        && env::var("CARGO_CFG_TARGET_ABI").is_ok_and(|abi| abi == "llvm")
    {
        let folder = env::var("OUT_DIR").expect("cargo sets it for a build script");
        let file = Path::new(&folder).join("_native.def");
        fs::write(&file, "EXPORTS\n  PyInit__native\n").expect("cargo's folder can be written");
        println!("cargo::rustc-cdylib-link-arg={}", file.display());
    }
}
