//! Attacks by someone who delivers modules to a host, and their outcomes. The numbers are those of
//! the list on the page of `watm-seal`, whose own tests contain the rest.

mod bombs;
mod datagrams;
#[cfg(feature = "programs")]
mod programs;
mod shares;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use watm_runtime::seal::{
    Capabilities, Delegation, Digest, Manifest, PrivateKey, Purpose, Release, Root, RootRecord,
    SignedRoot, seal,
};
use watm_runtime::{
    CacheDir, Engine, EngineConfig, Error, FixedDialer, LoadOptions, Module, Reach, Server,
    SwapOptions, Trust,
};

use watm_test_support::{
    self, Client, LOCALHOST, assert_serves, counter, directory, guest_bytes, serve, small_limits,
    wait_restarted, wait_until,
};

/// A maker of sealed modules.
struct Maker {
    root: Root,
    key: PrivateKey,
}

impl Maker {
    fn new() -> Maker {
        let own = PrivateKey::generate().expect("random numbers");
        let key = PrivateKey::generate().expect("random numbers");
        let record = RootRecord {
            version: 1,
            first: None,
            epoch: 1,
            expires: 4_000_000_000,
            threshold: 1,
            keys: [own.public()].into(),
            delegations: vec![Delegation {
                name: "release".parse().expect("a name"),
                purpose: Purpose::Seal,
                threshold: 1,
                keys: [key.public()].into(),
                names: ["demo/*".parse().expect("a pattern")].into(),
                ceiling: Capabilities::unlimited(),
            }],
            revoked: Default::default(),
        };
        let signed = SignedRoot::new(record).and_then(|root| root.sign(&own));
        Maker {
            root: Root::trust(signed.expect("a record")).expect("signed"),
            key,
        }
    }

    /// Seals the module of `tests/guests` as this release.
    fn seal(&self, sequence: u64, capabilities: Capabilities) -> Vec<u8> {
        self.seal_bytes(guest_bytes(), sequence, capabilities)
    }

    fn seal_bytes(&self, bytes: &[u8], sequence: u64, capabilities: Capabilities) -> Vec<u8> {
        self.sign(bytes, self.manifest(sequence, capabilities))
    }

    fn sign(&self, bytes: &[u8], manifest: Manifest) -> Vec<u8> {
        seal(bytes, manifest, &[], std::slice::from_ref(&self.key)).expect("a module")
    }

    fn manifest(&self, sequence: u64, capabilities: Capabilities) -> Manifest {
        Manifest {
            root: self.root.id(),
            name: "demo/guest".parse().expect("a name"),
            world: "watm:transport/module@0.2.0".parse().expect("a world"),
            roles: ["listener".parse().expect("a role")].into(),
            release: Release { epoch: 1, sequence },
            version: "0.1.0".to_owned(),
            body_length: 0,
            body_sha256: Digest::of(b""),
            not_before: 1_700_000_000,
            expires: 4_000_000_000,
            channel: "stable".parse().expect("a name"),
            audience: None,
            min_host: "0.1.0".parse().expect("a version"),
            config_schema: 0,
            capabilities,
            floors: BTreeMap::new(),
            requires: BTreeMap::new(),
            source_commit: String::new(),
            toolchain: String::new(),
        }
    }

    /// Makes a host with its state in this folder.
    fn host(&self, folder: &Path) -> Engine {
        self.host_with_floor(folder, None)
    }

    fn host_with_floor(&self, folder: &Path, floor: Option<Release>) -> Engine {
        let floors = floor.map(|floor| ("demo/guest".parse().expect("a name"), floor));
        let trust = Trust::at(folder.join("trust"))
            .built_in(Some(self.root.clone()), floors.into_iter().collect());
        Engine::new(EngineConfig {
            cache: CacheDir::Path(folder.join("cache")),
            trust,
        })
        .expect("an engine")
    }
}

/// Returns the capabilities that the module of the tests needs.
fn needs() -> Capabilities {
    Capabilities {
        sockets: ["udp listen".parse().expect("a socket")].into(),
        host_crypto: true,
        memory_bytes: 32 << 20,
        cpu_permille: 1000,
        flows: 100,
        instances: 1,
        ..Capabilities::default()
    }
}

fn approved() -> LoadOptions {
    LoadOptions {
        approve: true,
        ..LoadOptions::default()
    }
}

fn load(host: &Engine, bytes: &[u8]) -> Result<Module, Error> {
    host.load_with("guest", bytes, &approved())
}

fn start(module: &Module) -> Server {
    let server = Server::builder(module).udp("listen", LOCALHOST);
    server.start().expect("starts")
}

/// Loads it, and checks that it serves.
fn run(host: &Engine, bytes: &[u8]) {
    assert_serves(&start(&load(host, bytes).expect("loads")));
}

fn code(result: Result<Module, Error>) -> &'static str {
    match result {
        Err(Error::Untrusted { code, .. }) => code,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it is loaded"),
    }
}

fn folder(name: &str) -> PathBuf {
    directory(&format!("attack-{name}"))
}

#[test]
fn a_4_a_seal_that_was_taken_off_is_missed() {
    let maker = Maker::new();
    let host = maker.host(&folder("stripped"));
    run(&host, &maker.seal(1, needs()));
    assert_eq!(code(host.load("guest", guest_bytes())), "unsealed");
    let switched = LoadOptions {
        unsealed: true,
        ..LoadOptions::default()
    };
    let module = host.load_with("guest", guest_bytes(), &switched);
    let module = module.expect("loads");
    assert!(module.seal().is_none());
    assert_eq!(module.warnings()[0].code(), "unsealed");
    // The switch applies to modules without a seal, and not to another's seal.
    let stranger = Maker::new().seal(1, needs());
    assert_eq!(
        code(host.load_with("guest", &stranger, &switched)),
        "unknown-root"
    );
    let mut broken = maker.seal(2, needs());
    *broken.last_mut().expect("bytes") ^= 1;
    assert_eq!(
        code(host.load_with("guest", &broken, &switched)),
        "bad-hash"
    );
}

#[test]
fn a_6_an_older_release_is_refused_and_without_its_state_the_host_has_its_floors() {
    let maker = Maker::new();
    let folder = folder("rollback");
    let floor = Release {
        epoch: 1,
        sequence: 5,
    };
    let host = || maker.host_with_floor(&folder, Some(floor));
    assert_eq!(code(load(&host(), &maker.seal(4, needs()))), "rollback");
    let (six, seven) = (maker.seal(6, needs()), maker.seal(7, needs()));
    run(&host(), &seven);
    assert_eq!(code(load(&host(), &six)), "rollback");
    // After a new installation the host still has its state; without that, the floors of its own
    // release.
    fs::remove_file(folder.join("trust")).expect("removed");
    assert_eq!(code(load(&host(), &maker.seal(4, needs()))), "rollback");
    run(&host(), &six);
}

#[test]
fn a_module_that_does_not_start_is_not_remembered() {
    let maker = Maker::new();
    let host = maker.host(&folder("probation"));
    run(&host, &maker.seal(1, needs()));
    let newer = load(&host, &maker.seal(9, needs())).expect("loads");
    let failed = Server::builder(&newer)
        .udp("listen", LOCALHOST)
        .config("trap")
        .start();
    assert!(matches!(failed, Err(Error::Trap { .. })));
    run(&host, &maker.seal(1, needs()));
    start(&newer);
    assert_eq!(code(load(&host, &maker.seal(1, needs()))), "rollback");
}

#[test]
fn a_14_what_asks_for_more_waits_for_its_approval_and_the_old_one_serves() {
    let maker = Maker::new();
    let host = maker.host(&folder("creep"));
    let serving = start(&load(&host, &maker.seal(1, needs())).expect("loads"));
    let more = Capabilities {
        connect: ["tcp://*:*".parse().expect("a pattern")].into(),
        flows: 101,
        ..needs()
    };
    let update = maker.seal(2, more);
    match host.load("guest", &update) {
        Err(Error::Untrusted { code, reason, .. }) => {
            assert_eq!(code, "needs-approval");
            for part in ["connect tcp://*:*", "flows 101", "watm trust --approve"] {
                assert!(reason.contains(part), "{reason}");
            }
        }
        other => panic!("{:?}", other.map(|module| module.name().to_owned())),
    }
    assert_serves(&serving);
    // A module that requests less needs no approval.
    let less = Capabilities {
        flows: 10,
        ..needs()
    };
    host.load("guest", &maker.seal(3, less)).expect("loads");
    run(&host, &update);
    host.load("guest", &update).expect("it is approved now");
}

/// Ends a loop of another thread, also if a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_16_what_is_verified_is_what_is_run_whatever_becomes_of_the_file() {
    let maker = Maker::new();
    let folder = folder("swapped");
    let host = maker.host(&folder);
    let (good, bad) = (folder.join("good.wasm"), folder.join("bad.wasm"));
    let sealed = maker.seal(1, needs());
    fs::write(&good, &sealed).expect("written");
    fs::write(&bad, guest_bytes()).expect("written");
    let link = folder.join("module.wasm");
    let turn = |to: &Path| {
        let new = folder.join("new");
        std::os::unix::fs::symlink(to, &new).expect("linked");
        fs::rename(&new, &link).expect("renamed");
    };
    turn(&good);
    let expected = Digest::of(&sealed).to_string();
    let (mut loaded, mut refused) = (0, 0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let turning = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                turn(&bad);
                turn(&good);
            }
        });
        let _over = Over(&over);
        let begin = Instant::now();
        while loaded < 200 && begin.elapsed() < Duration::from_secs(20) && !turning.is_finished() {
            match host.load_file_with(&link, &approved()) {
                Ok(module) => {
                    assert_eq!(module.info().sha256, expected);
                    assert!(module.seal().is_some());
                    loaded += 1;
                }
                Err(Error::Untrusted { code, .. }) => {
                    assert_eq!(code, "unsealed");
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert!(loaded > 0, "{loaded} loaded, {refused} refused");
    let module = host.load_file_with(&good, &approved()).expect("loads");
    fs::remove_file(&good).expect("removed");
    assert_serves(&start(&module));
}

#[test]
fn a_17_compiled_code_comes_from_the_compiler_and_a_poisoned_cache_is_not_used() {
    let maker = Maker::new();
    let folder = folder("compiled");
    let host = maker.host(&folder);
    // Collects records from here on.
    watm_test_support::records_about("");
    let sealed = maker.seal(1, needs());
    run(&host, &sealed);
    let entry = fs::read_dir(folder.join("cache"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "bin"))
        .expect("an entry");
    let kept = fs::read(&entry).expect("readable");
    // The code that wasmtime itself would load, without the tag of this host.
    let code = &kept[32..];
    assert_eq!(&code[..4], b"\x7fELF");
    let shipped = folder.join("module.cwasm");
    fs::write(&shipped, code).expect("written");
    for options in [
        approved(),
        LoadOptions {
            unsealed: true,
            ..approved()
        },
    ] {
        let error = host.load_file_with(&shipped, &options).err();
        let error = error.expect("refused").to_string();
        assert!(error.contains("not WebAssembly"), "{error}");
    }
    let refusals =
        || watm_test_support::records_about(&format!("{}: not written", entry.display()));
    for (number, poison) in [code.to_vec(), [&[0; 32], code].concat()]
        .iter()
        .enumerate()
    {
        assert_eq!(refusals().len(), number);
        fs::write(&entry, poison).expect("written");
        run(&host, &sealed);
        // Compiled again, which gives the same code and tag.
        assert!(
            fs::read(&entry).expect("readable") == kept,
            "the poison is still there"
        );
        assert_eq!(refusals().len(), number + 1);
    }
}

/// Makes a module that is limited to these capabilities.
fn held_to(name: &str, capabilities: Capabilities) -> Module {
    static MAKER: OnceLock<Maker> = OnceLock::new();
    let maker = MAKER.get_or_init(Maker::new);
    load(&maker.host(&folder(name)), &maker.seal(1, capabilities)).expect("loads")
}

#[test]
fn a_23_an_import_that_is_not_the_worlds_is_refused_though_it_is_signed() {
    let maker = Maker::new();
    let host = maker.host(&folder("import"));
    let component = wat::parse_str(
        r#"(component
            (import "wasi:filesystem/types@0.2.3" (instance))
            (instance $i)
            (export "watm:transport/endpoint@0.1.0" (instance $i)))"#,
    );
    let sealed = maker.seal_bytes(&component.expect("valid text"), 1, needs());
    let error = load(&host, &sealed).expect_err("refused").to_string();
    // In the host's own words, before the file is compiled.
    let expected = "imports wasi:filesystem/types@0.2.3, which this host does not provide";
    assert!(error.contains(expected), "{error}");
}

/// Makes a device in a network namespace of its own, which ends with it. `None` without root.
#[cfg(target_os = "linux")]
fn device() -> Option<watm_runtime::PacketDevice> {
    let make = || {
        // SAFETY: it affects this thread alone, and takes no pointers.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => Some(watm_runtime::PacketDevice::open("watm-test").expect("root may")),
            _ => None,
        }
    };
    std::thread::spawn(make).join().expect("no panic")
}

#[cfg(target_os = "linux")]
#[test]
fn a_23_a_module_has_the_device_that_its_seal_names_and_no_other() {
    let Some(own) = device() else { return };
    let with = |socket: &str| Capabilities {
        sockets: ["udp listen", socket]
            .map(|text| text.parse().expect("a socket"))
            .into(),
        ..needs()
    };
    let start = |module: &Module, device| {
        let builder = Server::builder(module).udp("listen", LOCALHOST);
        builder.packets("tun", device).start()
    };
    match start(&held_to("other device", with("packets other")), own).err() {
        Some(Error::NotGranted { reason, .. }) => {
            let expected =
                "its seal has no socket \"packets tun\"; it has \"udp listen\", \"packets other\"";
            assert_eq!(reason, expected);
        }
        other => panic!("{other:?}"),
    }
    let own = device().expect("as before");
    let server = start(&held_to("device", with("packets tun")), own).expect("starts");
    let answer = Client::new(&server).ask("!open devices");
    assert_eq!(answer, "Some(ErrorCode::AccessDenied) None");
}

#[test]
fn a_23_a_module_is_held_to_its_seal() {
    let neighbour = serve("beside a held one");
    // A socket that it may not have.
    let module = held_to("sockets", needs());
    for builder in [
        Server::builder(&module).udp("other", LOCALHOST),
        Server::builder(&module).tcp("listen", LOCALHOST),
    ] {
        match builder.start().err() {
            Some(Error::NotGranted { reason, .. }) => {
                assert!(reason.contains("it has \"udp listen\""), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    // No destinations, whatever the user allows.
    let reach = watm_runtime::Reach::none().allow("*").expect("a pattern");
    let server = Server::builder(&module)
        .udp("listen", LOCALHOST)
        .reach(reach)
        .start()
        .expect("starts");
    let answer = Client::new(&server).ask("!connect");
    assert!(answer.contains("AccessDenied"), "{answer}");
    // No flows beyond its own number, and no host ciphers.
    let few = Capabilities {
        flows: 3,
        host_crypto: false,
        ..needs()
    };
    let server = start(&held_to("flows", few));
    let answer = Client::new(&server).ask("!flows");
    assert!(answer.contains('3'), "{answer}");
    let answer = Client::new(&server).ask("!crypto");
    assert!(answer.contains("AccessDenied"), "{answer}");
    // Nothing at all.
    let nothing = Capabilities {
        instances: 0,
        ..needs()
    };
    let module = held_to("nothing", nothing);
    let refused = Server::builder(&module).udp("listen", LOCALHOST).start();
    assert!(matches!(refused, Err(Error::NotGranted { .. })));
    assert_serves(&neighbour);
}

#[test]
fn a_23_hogs_and_floods_cost_their_own_instance() {
    let neighbour = serve("beside a hog");
    for (name, command) in [("hog", "!eat"), ("loop", "!spin"), ("trap", "!trap")] {
        let module = held_to(name, needs());
        let server = Server::builder(&module)
            .udp("listen", LOCALHOST)
            .limits(small_limits());
        let server = server.start().expect("starts");
        Client::new(&server).send(command.as_bytes());
        assert_serves(&neighbour);
        wait_restarted(&server, 1);
        assert_serves(&server);
    }
    let server = start(&held_to("flood", needs()));
    assert_eq!(Client::new(&server).ask("!log"), "logged");
    assert!(counter(&server, "host.dropped.log_records") > 90_000);
    assert_serves(&neighbour);
}

/// Tests attack 21: after failures the previous module runs, but never one below a floor.
#[test]
fn a_crash_loop_leads_to_nothing_that_a_floor_excludes() {
    for (floor, expected) in [(None, "old"), (Some(2), "new")] {
        let folder = directory(&format!("fallback-{expected}"));
        let maker = Maker::new();
        let host = maker.host(&folder);
        let load = |name, bytes: Vec<u8>| host.load_with(name, &bytes, &approved()).expect("loads");
        let old = load("old", maker.seal(1, needs()));
        let server = Server::builder(&old)
            .config("old")
            .udp("listen", LOCALHOST)
            .start()
            .expect("starts");
        let mut manifest = maker.manifest(2, needs());
        let floor = floor.map(|sequence| Release { epoch: 1, sequence });
        manifest
            .floors
            .extend(floor.map(|floor| (manifest.name.clone(), floor)));
        let new = load("new", maker.sign(guest_bytes(), manifest));
        let options = SwapOptions {
            config: Some(b"new".to_vec()),
            probation: Duration::ZERO,
            ..SwapOptions::default()
        };
        server.swap(&new, options).expect("swapped");
        let client = Client::new(&server);
        for failures in 1..=3 {
            client.send(b"!trap");
            wait_until("it runs again", || {
                counter(&server, "host.restarts") == failures
            });
        }
        client.send(b"hello");
        let flow = watm_test_support::run(server.accept()).expect("a flow");
        assert_eq!(flow.info().attributes[0].1, expected);
    }
}

/// Tests attacks 14 and 23: a module that is swapped in has the capabilities of its own seal, not
/// those of the one before.
#[test]
fn a_swap_hands_nothing_on_that_the_new_seal_does_not_allow() {
    let folder = directory("narrower");
    let maker = Maker::new();
    let host = maker.host(&folder);
    let bytes = fs::read(watm_test_support::command::plain()).expect("there");
    let load = |sequence, connect: &[&str]| {
        let patterns = connect.iter().map(|text| text.parse().expect("a pattern"));
        let capabilities = Capabilities {
            connect: patterns.collect(),
            instances: 10,
            ..needs()
        };
        let manifest = Manifest {
            world: "water-v1".parse().expect("a world"),
            roles: watm_runtime::seal::ModuleRole::ALL.into(),
            ..maker.manifest(sequence, capabilities)
        };
        host.load_with("plain", &maker.sign(&bytes, manifest), &approved())
            .expect("loads")
    };
    let (wide, narrow) = (load(1, &["tcp://127.0.0.1:*"]), load(2, &[]));
    watm_test_support::run(async {
        let address = crate::water::echo().await.to_string();
        let dialer = FixedDialer::builder(&wide)
            .config(address.clone())
            .reach(Reach::none().allow(&address).expect("a pattern"))
            .build()
            .expect("builds");
        drop(dialer.dial().await.expect("allowed"));
        dialer.swap(&narrow).await.expect("swapped");
        let error = dialer.dial().await.expect_err("denied");
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
        dialer.swap(&wide).await.expect("swapped back");
        drop(dialer.dial().await.expect("allowed"));
    });
}
