//! Programs within their seals: the addresses to listen on, the destinations and the limits.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use watm_runtime::seal::{Capabilities, Manifest};
use watm_runtime::{Error, Module, Program, ProgramOptions, Reach};

use super::{Maker, folder, load};
use crate::programs::{forwards, report_of, run_on_threads};
use watm_test_support::{LOCALHOST, forward_bytes, obedient_bytes};

/// Seals a program with these capabilities, and loads it.
fn sealed(folder: &Path, bytes: &[u8], capabilities: Capabilities) -> Result<Module, Error> {
    let maker = Maker::new();
    let manifest = Manifest {
        world: "wasi:cli/command@0.2.0".parse().expect("a world"),
        roles: ["relay".parse().expect("a role")].into(),
        ..maker.manifest(1, capabilities)
    };
    load(&maker.host(folder), &maker.sign(bytes, manifest))
}

fn needs(sockets: &[&str], connect: &[String]) -> Capabilities {
    Capabilities {
        sockets: sockets
            .iter()
            .map(|text| text.parse().expect("a socket"))
            .collect(),
        connect: connect
            .iter()
            .map(|text| text.parse().expect("a pattern"))
            .collect(),
        memory_bytes: 32 << 20,
        cpu_permille: 1000,
        flows: 100,
        instances: 1,
        ..Capabilities::default()
    }
}

fn listening(kind: &str) -> ProgramOptions {
    let mut options = ProgramOptions::default();
    match kind {
        "tcp" => options.tcp.push(LOCALHOST),
        _ => options.udp.push(LOCALHOST),
    }
    options
}

#[test]
fn a_sealed_program_listens_only_by_the_sockets_of_its_seal() {
    run_on_threads(async {
        let module = sealed(
            &folder("program-sockets"),
            obedient_bytes(),
            needs(&["tcp listen"], &[]),
        );
        let module = module.expect("loads");
        for (kind, expected) in [("tcp", true), ("udp", false)] {
            let started = Program::builder(&module).start(listening(kind));
            match started {
                Ok(_) => assert!(expected, "{kind}"),
                Err(Error::NotGranted { reason, .. }) => {
                    assert!(!expected, "{kind}: {reason}");
                    assert!(reason.contains("has no socket \"udp listen\""), "{reason}");
                }
                Err(error) => panic!("another error: {error}"),
            }
        }
    });
}

#[test]
fn a_sealed_program_reaches_no_more_than_its_seal_names() {
    run_on_threads(async {
        let upstream = TcpListener::bind(LOCALHOST).expect("a port");
        let address = upstream.local_addr().expect("bound");
        let everything = Reach::none().allow("*").expect("a pattern");
        let other: SocketAddr = ([127, 0, 0, 1], address.port() ^ 1).into();
        for (named, result) in [(address, "done"), (other, "Permission denied (os error 2)")] {
            let may = needs(&[], &[format!("tcp://{named}")]);
            let module = sealed(
                &folder(&format!("program-{}", named == address)),
                obedient_bytes(),
                may,
            );
            let module = module.expect("loads");
            let arguments = ["connect", "", &address.to_string()];
            let said = report_of(&module, &arguments, |it| it.reach(everything.clone())).await;
            assert_eq!(said, result, "{named}");
        }
        // The destination of the application needs no entry.
        let module = sealed(
            &folder("program-own"),
            forward_bytes(),
            needs(&["tcp listen"], &[]),
        );
        forwards(&module.expect("loads"), "sealed").await;
    });
}

#[test]
fn a_seal_for_another_world_is_refused() {
    let maker = Maker::new();
    let host = maker.host(&folder("program-world"));
    let manifest = maker.manifest(1, needs(&[], &[]));
    let refused = load(&host, &maker.sign(obedient_bytes(), manifest));
    let said = refused.expect_err("refused").to_string();
    let expected = "is built for wasi:cli/command@0.2.0, but its seal declares \
                    watm:transport/module@0.2.0";
    assert!(said.contains(expected), "{said}");
}
