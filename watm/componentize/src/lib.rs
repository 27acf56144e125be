//! Turns a transport built for wasm32-wasip1 into a component whose imports of WASI are those that
//! a host grants: wall clock and randomness. `main` and the tests call it.
//!
//! The usual adapter between the two generations of WASI adds files, environment and sockets;
//! [`adapter`] does not.

use anyhow::{Context, Result, ensure};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata, metadata};
use wit_parser::Resolve;

/// Makes a component of a core module that was built with the guest shell. Fails if the bytes are
/// no module, contain no component types, or import a function that [`adapter`] lacks; the error's
/// chain names it.
pub fn componentize(module: &[u8]) -> Result<Vec<u8>> {
    let (with_types_taken_out, _) = metadata::decode(module).context("not a core module")?;
    ensure!(
        with_types_taken_out.is_some(),
        "the module has no component types; call `watm_guest::export!` in the transport's crate"
    );
    ComponentEncoder::default()
        .module(module)?
        .adapter("wasi_snapshot_preview1", &adapter()?)?
        .validate(true)
        .encode()
}

/// Builds the adapter: a core module that exports the functions of `wasi_snapshot_preview1` that
/// the standard library imports, and lists its own imports in a custom section.
pub fn adapter() -> Result<Vec<u8>> {
    let mut module = wat::parse_str(include_str!("adapter.wat"))?;
    let mut resolve = Resolve::default();
    let package = resolve.push_str("adapter.wit", include_str!("adapter.wit"))?;
    let world = resolve.select_world(&[package], Some("adapter"))?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)?;
    Ok(module)
}
