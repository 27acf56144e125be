//! Module files: damaged ones, unknown imports, and errors that name them.

use watm_runtime::{Error, ModuleKind, Server, inspect};

use watm_test_support::{LOCALHOST, directory, engine, guest_bytes, older_host_case_bytes};

fn refusal(bytes: &[u8]) -> String {
    match engine().load("some.wasm", bytes) {
        Ok(_) => panic!("loaded"),
        Err(error @ Error::Module { .. }) => error.to_string(),
        Err(other) => panic!("another kind of error: {other:?}"),
    }
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("valid text")
}

#[test]
fn a_component_is_described_without_running_it() {
    let info = inspect(guest_bytes()).expect("a component");
    assert_eq!(info.kind, ModuleKind::Component);
    assert_eq!(info.world.as_deref(), Some("watm:transport/module@0.2.0"));
    assert!(
        info.imports
            .contains(&"watm:transport/sockets@0.2.0".to_owned())
    );
    let exports = ["datagram-dialer", "endpoint", "network-observer"];
    let exports = exports.map(|name| format!("watm:transport/{name}@0.2.0"));
    assert_eq!(info.exports, exports);
    assert_eq!(info.size, guest_bytes().len());
    assert_eq!(info.sha256.len(), 64);
}

/// Modules are not built again for another version. The kit for hosts runs all its modules of 0.1.2.
#[test]
fn a_module_that_was_built_for_a_version_before_runs() {
    for before in ["@0.1.0", "@0.1.1", "@0.1.2"] {
        let mut old = older_host_case_bytes("datagram-train");
        let built = b"@0.1.2";
        while before.as_bytes() != built
            && let Some(at) = old.windows(built.len()).position(|part| part == built)
        {
            old[at..at + built.len()].copy_from_slice(before.as_bytes());
        }
        let info = inspect(&old).expect("a component");
        assert_eq!(
            info.world,
            Some(format!("watm:transport/module{before}")),
            "{before}"
        );
        let module = engine().load("old", &old).expect("loads");
        let server = Server::builder(&module)
            .udp("listen", LOCALHOST)
            .start()
            .expect("starts");
        let status = server.status().expect("answers");
        assert_eq!(status.counters["kit.failed"], 0, "{before}");
    }
}

#[test]
fn what_is_no_component_is_named() {
    let core = wat("(module (func (export \"run\")))");
    let cases: [(&[u8], &str); 7] = [
        (b"", "the file is empty"),
        (b"\0as", "cut short"),
        (b"(module)", "WebAssembly text"),
        (b"  (component\n)", "WebAssembly text"),
        (b"#!/bin/sh\n", "not WebAssembly"),
        (&core, "a core module"),
        (b"\0asm\x01\0\0", "cut short or damaged"),
    ];
    for (bytes, expected) in cases {
        let message = refusal(bytes);
        assert!(message.starts_with("some.wasm: "), "{message}");
        assert!(message.contains(expected), "{message} / {expected}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_name_with_a_line_break_does_not_break_the_line() {
    // A component that imports an empty instance as "a\nb".
    let component = b"\0asm\x0d\0\x01\0\x07\x03\x01\x42\0\x0a\x08\x01\0\x03a\nb\x05\0";
    let message = refusal(component);
    assert!(message.contains("imports a\u{fffd}b,"), "{message}");
    // A component that contains an invalid module.
    let component = b"\0asm\x0d\0\x01\0\x01\x08\x02asm\x01\0\0\0";
    let message = refusal(component);
    assert!(message.contains("damaged at byte 10"), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn water_modules_are_told_apart() {
    use ModuleKind::{CoreModule, WaterV0, WaterV1, WaterV1Final, WaterV1Preview};
    for (exports, kind) in [
        (&["watm_init_v1"][..], WaterV1),
        (&["watm_dial_v1"], WaterV1),
        (&["_water_init"], WaterV0),
        (&["_water_v0"], WaterV0),
        (&["_water_v0", "watm_dial_v1", "_water_init"], WaterV1),
        (&["watm_dial_v1", "watm_userpipe_v1"], WaterV1Final),
        (&["watm_userpipe_v1", "watm_init_v1"], WaterV1),
        (&["_water_init", "_water_v1", "v1_listen"], WaterV1Preview),
        (&["run"], CoreModule),
    ] {
        let mut text = "(module (func $f (result i32) i32.const 0)".to_owned();
        for name in exports {
            text += &format!("(export \"{name}\" (func $f))");
        }
        let bytes = wat(&(text + ")"));
        assert_eq!(inspect(&bytes).expect("wasm").kind, kind, "{exports:?}");
        // None of them is complete.
        assert!(!refusal(&bytes).is_empty());
    }
}

#[test]
fn what_a_water_module_lacks_is_named() {
    let lacking = |text: &str| inspect(&wat(text)).expect("wasm").problems.join("\n");
    let problems = lacking(
        r#"(module
            (import "env" "water_dial" (func (param i32)))
            (import "env" "host_dial" (func (result i32)))
            (import "env" "memory" (memory 1))
            (import "wasi_snapshot_preview1" "fd_read" (func))
            (import "wasi_snapshot_preview1" "fd_open" (func))
            (import "wasi_unstable" "fd_read" (func))
            (func (export "watm_init_v1") (param i64) (result i32) i32.const 0)
            (global (export "watm_start_v1") i32 i32.const 0))"#,
    );
    for expected in [
        "does not export its memory",
        "exports watm_init_v1 as (i64)->i32; must be ()->i32",
        "does not export watm_ctrlpipe_v1, of type (i32)->i32",
        "exports watm_start_v1, which is not a function",
        "has no role: it exports none of watm_dial_v1, watm_dial_fixed_v1, watm_accept_v1, watm_associate_v1",
        "imports env.water_dial as (i32)->(); must be (i32,i32,i32,i32)->i32",
        "imports env.host_dial, which the host of a WATER v1 module does not have; it has water_dial_fixed, water_dial, water_accept",
        "imports env.memory, which",
        "imports wasi_snapshot_preview1.fd_read as ()->(); must be (i32,i32,i32,i32)->i32",
        "imports wasi_snapshot_preview1.fd_open, which WASI preview 1",
        "imports wasi_unstable.fd_read, which this host does not provide",
    ] {
        assert!(problems.contains(expected), "{expected}\n\n{problems}");
    }
    let message = refusal(&wat("(module (func (export \"_water_v0\")))"));
    assert!(message.contains("; and 2 more"), "{message}");
}

#[test]
fn drafts_of_water_are_refused_by_name() {
    let named = |name: &str| refusal(&wat(&format!("(module (func (export \"{name}\")))")));
    assert!(named("watm_userpipe_v1").contains("v1-final draft"));
    assert!(named("_water_v1").contains("only water-rs runs"));
}

#[test]
fn a_file_cut_short_anywhere_is_refused() {
    let whole = guest_bytes();
    let step = whole.len() / 60;
    for len in (1..whole.len()).step_by(step) {
        let message = refusal(&whole[..len]);
        assert!(
            message.contains("cut short"),
            "{len} of {} bytes: {message}",
            whole.len()
        );
    }
}

#[test]
fn damaged_bytes_never_do_harm() {
    let whole = guest_bytes();
    // A fixed sequence, so that a failure can be repeated (Knuth's MMIX generator).
    let mut state = 1u64;
    for _ in 0..20 {
        let mut bytes = whole.to_vec();
        for _ in 0..3 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] ^= 1 << (state >> 61);
        }
        // Refused or, if the damage is in code or data, loaded; nothing else.
        let _ = engine().load("damaged.wasm", &bytes);
    }
}

/// Makes a component with these imports, and an endpoint if `version` is given.
fn component(imports: &[&str], version: Option<&str>) -> Vec<u8> {
    let mut text = "(component\n".to_owned();
    for import in imports {
        text += &format!("(import \"{import}\" (instance))\n");
    }
    if let Some(version) = version {
        text += &format!(
            "(instance $endpoint)\n(export \"watm:transport/endpoint@{version}\" (instance $endpoint))\n"
        );
    }
    wat(&(text + ")"))
}

#[test]
fn imports_are_checked_by_name() {
    for import in [
        "wasi:cli/environment@0.2.6",
        "wasi:filesystem/types@0.2.3",
        "wasi:sockets/tcp@0.2.0",
        "wasi:random/insecure@0.2.0",
        "wasi:random/random@0.3.0",
        "watm:transport/secrets@0.1.0",
        "some:other/thing",
    ] {
        let message = refusal(&component(&[import], Some("0.1.0")));
        assert!(message.contains(&format!("imports {import}")), "{message}");
    }
}

#[test]
fn another_version_of_the_interface_is_refused_naming_both() {
    for bytes in [
        component(&[], Some("0.3.0")),
        component(&["watm:transport/sockets@0.3.0"], Some("0.1.0")),
    ] {
        let message = refusal(&bytes);
        assert!(
            message.contains("built for watm:transport@0.3.0"),
            "{message}"
        );
        assert!(
            message.contains("implements watm:transport@0.2.0 and 0.1.2"),
            "{message}"
        );
    }
}

#[test]
fn a_component_without_an_endpoint_is_no_transport() {
    let message = refusal(&component(&[], None));
    assert!(
        message.contains("does not export watm:transport/endpoint"),
        "{message}"
    );
}

#[test]
fn an_endpoint_of_another_shape_is_refused() {
    let message = refusal(&component(&[], Some("0.1.0")));
    assert!(message.contains("does not fit watm:transport"), "{message}");
    assert!(message.contains("build it again"), "{message}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let directory = directory("files");
    let missing = directory.join("missing.wasm");
    let message = engine()
        .load_file(&missing)
        .expect_err("refused")
        .to_string();
    assert!(message.contains("missing.wasm"), "{message}");
    let message = engine()
        .load_file(&directory)
        .expect_err("refused")
        .to_string();
    assert!(message.contains("is a directory"), "{message}");
    let file = directory.join("guest.wasm");
    std::fs::write(&file, guest_bytes()).expect("written");
    let module = engine().load_file(&file).expect("loads");
    assert!(module.name().ends_with("guest.wasm"));
}

#[test]
fn a_file_that_is_far_too_large_is_refused_by_size() {
    let mut bytes = b"\0asm".to_vec();
    bytes.resize((64 << 20) + 1, 0);
    assert!(refusal(&bytes).contains("larger than 64 MiB"));
}
