//! The imports of a component.

use watm_componentize::componentize;
use wit_component::{DecodedWasm, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const WORLD: &str = "package a:b; world w { export run: func(); }";

/// A core module for [`WORLD`] that imports these from `wasi_snapshot_preview1`.
fn module(imports: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::from("(module ");
    for (name, kind) in imports {
        text += &format!("(import \"wasi_snapshot_preview1\" \"{name}\" (func {kind}))");
    }
    text += "(memory (export \"memory\") 1) (func (export \"run\")))";
    let mut module = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    let package = resolve.push_str("w.wit", WORLD).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
    module
}

fn imports(component: &[u8]) -> Vec<String> {
    let DecodedWasm::Component(resolve, world) = wit_component::decode(component).unwrap() else {
        panic!("a component");
    };
    resolve.worlds[world]
        .imports
        .keys()
        .map(|key| resolve.name_world_key(key))
        .collect()
}

#[test]
fn of_wasi_it_asks_for_what_it_uses_and_no_more_than_clock_and_randomness() {
    let clock = ("clock_time_get", "(param i32 i64 i32) (result i32)");
    let random = ("random_get", "(param i32 i32) (result i32)");
    let others = [
        ("environ_get", "(param i32 i32) (result i32)"),
        ("environ_sizes_get", "(param i32 i32) (result i32)"),
        ("fd_write", "(param i32 i32 i32 i32) (result i32)"),
        ("proc_exit", "(param i32)"),
        ("sched_yield", "(result i32)"),
    ];
    let component = componentize(&module(&others)).unwrap();
    assert!(imports(&component).is_empty());
    let component = componentize(&module(&[random])).unwrap();
    assert_eq!(imports(&component), ["wasi:random/random@0.2.0"]);
    let component = componentize(&module(&[&others[..], &[clock, random]].concat())).unwrap();
    let mut all = imports(&component);
    all.sort();
    assert_eq!(
        all,
        ["wasi:clocks/wall-clock@0.2.0", "wasi:random/random@0.2.0"]
    );
}

#[test]
fn a_module_that_wants_files_is_refused_and_told_which_function() {
    let open = (
        "path_open",
        "(param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)",
    );
    let error = format!("{:#}", componentize(&module(&[open])).unwrap_err());
    assert!(error.contains("path_open"), "{error}");
}

#[test]
fn what_is_no_module_of_ours_is_refused() {
    let error = componentize(b"hello").unwrap_err();
    assert_eq!(error.to_string(), "not a core module");
    let error = componentize(&wat::parse_str("(module)").unwrap()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the module has no component types")
    );
}
