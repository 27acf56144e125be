//! Recordings and their replays.

use std::fs;
use std::path::Path;

use watm_runtime::{Error, Limits, Mode, Module, Recording, RecordingEnd, Report};

use watm_test_support::{
    Client, assert_serves, builder, directory, engine, guest, guest_bytes, life, records,
    reworded_guest, run, tcp_forward, wait_restarted, wait_until,
};

fn replay(path: &Path, module: &Module, mode: Mode) -> Report {
    let recording = Recording::open(path).expect("a recording");
    recording.replay(module, mode).expect("replayed")
}

/// Returns the guest as another file that behaves the same: with an empty section.
fn renamed_guest() -> Vec<u8> {
    [guest_bytes(), b"\x00\x04\x03new"].concat()
}

fn load(bytes: &[u8]) -> Module {
    engine().load("other", bytes).expect("loads")
}

#[test]
fn the_same_module_does_the_same_again() {
    records("replayed");
    let path = life("replayed");
    let warning = records("replayed").into_iter().find(|record| {
        record.level == tracing::Level::WARN && record.text.contains("recording to")
    });
    let warning = warning.expect("a record").text;
    assert!(
        warning.contains("payload") && warning.contains("keys"),
        "{warning}"
    );
    for mode in [Mode::Exact, Mode::Fitting] {
        let report = replay(&path, &guest(), mode);
        assert_eq!(report.difference, None, "{mode:?}");
        assert_eq!(report.instances, 4);
        assert_eq!(
            report.end,
            RecordingEnd::Ended("the server was closed".to_owned())
        );
        // On a busy machine, the end of the server may interrupt the last call.
        let own = |trap: &&String| !trap.ends_with("wasm trap: interrupt");
        let traps: Vec<&String> = report.traps.iter().filter(own).collect();
        let (count, traps) = (traps.len(), format!("{traps:?}"));
        assert_eq!(count, 3, "{traps}");
        assert!(traps.contains("unreachable"), "{traps}");
        assert!(traps.contains("of CPU time"), "{traps}");
        assert!(traps.contains("ran out of memory"), "{traps}");
        assert!(report.counters["received"] > 0);
        assert!(report.cpu_time > std::time::Duration::ZERO);
        // Another file with the same behaviour is accepted.
        assert_eq!(
            replay(&path, &load(&renamed_guest()), mode).difference,
            None
        );
    }
}

#[test]
fn another_module_is_told_by_what_it_does() {
    let path = directory("told-apart").join("life.watm");
    let server = builder("told apart").record(&path).start().expect("starts");
    let client = Client::new(&server);
    client.ask("!ping");
    client.ask("!nothing");
    client.send(b"!trap");
    wait_restarted(&server, 1);
    client.ask("!ping");
    drop(server);
    wait_until("the end is written", || {
        replay(&path, &guest(), Mode::Exact).end != RecordingEnd::Truncated
    });

    let exact = replay(&path, &load(&reworded_guest()), Mode::Exact);
    let difference = exact.difference.expect("found");
    assert_eq!(difference.during, "endpoint.process");
    let (expected, got) = (&difference.expected, &difference.got);
    assert!(
        expected.starts_with("sockets.datagram-socket.send"),
        "{expected}"
    );
    assert!(got.starts_with("sockets.datagram-socket.send"), "{got}");
    assert!(
        expected.contains("24 bytes") && got.contains("24 bytes"),
        "{got}"
    );
    assert_eq!((exact.instances, exact.end), (1, RecordingEnd::NotReached));

    let fitting = replay(&path, &load(&reworded_guest()), Mode::Fitting);
    assert_eq!(fitting.difference, Some(difference));
    assert_eq!(fitting.instances, 2);
    assert_eq!(
        fitting.traps,
        ["wasm trap: wasm `unreachable` instruction executed"]
    );
    assert!(matches!(fitting.end, RecordingEnd::Ended(_)));
    assert!(fitting.counters["received"] >= 1);

    for mode in [Mode::Exact, Mode::Fitting] {
        let report = replay(&path, &tcp_forward(), mode);
        let difference = report.difference.expect("found");
        assert_eq!(difference.call, 1, "{difference}");
        assert!(difference.got.contains("listener.open"), "{difference}");
    }
}

#[test]
fn a_changed_byte_is_found() {
    let path = life("changed");
    let bytes = fs::read(&path).expect("written");
    let changed = path.with_file_name("changed.watm");
    let positions = (0..40).chain((40..bytes.len()).step_by(bytes.len() / 60));
    for position in positions {
        let mut other = bytes.clone();
        other[position] ^= 0x10;
        fs::write(&changed, &other).expect("written");
        let result =
            Recording::open(&changed).and_then(|recording| recording.replay(&guest(), Mode::Exact));
        let error = result.err();
        let error = error.unwrap_or_else(|| panic!("byte {position} makes no difference"));
        assert!(matches!(error, Error::Recording { .. }), "{error:?}");
        assert!(error.to_string().contains("changed.watm: "), "{error}");
    }
}

#[test]
fn a_file_that_is_cut_short_is_good_up_to_there() {
    let path = life("cut");
    let bytes = fs::read(&path).expect("written");
    let whole = replay(&path, &guest(), Mode::Exact).events;
    let cut = path.with_file_name("cut.watm");
    let mut events = 0;
    for part in 1..20 {
        let len = bytes.len() * part / 20;
        let mut kept = bytes[..len].to_vec();
        // As a file system leaves it after allocating space in advance.
        kept.resize(len + 100 * (part % 2), 0);
        fs::write(&cut, &kept).expect("written");
        for mode in [Mode::Exact, Mode::Fitting] {
            let report = replay(&cut, &guest(), mode);
            assert_eq!(report.difference, None, "{len} bytes");
            assert_eq!(report.end, RecordingEnd::Truncated);
            assert!((events..whole).contains(&report.events));
            events = report.events;
        }
    }
    assert!(events > 0);
}

#[test]
fn what_is_no_recording_is_refused() {
    let directory = directory("no-recording");
    let path = directory.join("file");
    let huge = [b"watm-rec\x02\x00".as_slice(), &[0xff; 12]].concat();
    for (content, expected) in [
        (b"".as_slice(), "not a recording"),
        (b"watm", "not a recording"),
        (guest_bytes(), "not a recording"),
        (b"watm-rec", "cut short"),
        (b"watm-rec\x01\x00", "format 1"),
        (b"watm-rec\x02\x00\x05", "cut short"),
        (&huge, "damaged"),
    ] {
        fs::write(&path, content).expect("written");
        let error = Recording::open(&path).err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let absent = Recording::open(directory.join("absent")).err();
    assert!(matches!(absent, Some(Error::File { .. })), "{absent:?}");
}

#[test]
#[cfg(unix)]
fn a_recording_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let path = directory("owner").join("life.watm");
    let server = builder("owner").record(&path).start().expect("starts");
    let mode = fs::metadata(&path).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(server);
}

#[test]
fn a_recording_replaces_no_file() {
    let path = directory("taken").join("notes.txt");
    fs::write(&path, "mine").expect("written");
    let error = builder("taken").record(&path).start().err();
    let error = error.expect("refused").to_string();
    assert!(error.contains("notes.txt already exists"), "{error}");
    assert_eq!(fs::read(&path).expect("there"), b"mine");
    let error = builder("taken")
        .record(path.join("below"))
        .start()
        .err()
        .expect("refused");
    assert!(error.to_string().contains("below"), "{error}");
}

#[test]
fn a_recording_ends_at_its_limit_and_the_server_goes_on() {
    let path = directory("limited").join("life.watm");
    records("limited");
    let limits = Limits {
        record_bytes: 8192,
        ..Limits::default()
    };
    let server = builder("limited")
        .limits(limits)
        .record(&path)
        .start()
        .expect("starts");
    let client = Client::new(&server);
    for _ in 0..100 {
        client.ask("!ping");
    }
    assert_serves(&server);
    server.close();
    run(server.wait_closed());
    let size = fs::metadata(&path).expect("made").len();
    assert!((4096..=8192).contains(&size), "{size}");
    let said = |record: &watm_test_support::Record| record.text.contains("size limit of 8192");
    assert!(records("limited").iter().any(said));
    let report = replay(&path, &guest(), Mode::Exact);
    assert_eq!(report.difference, None);
    assert_eq!(
        report.end,
        RecordingEnd::Ended("the size limit of 8192 bytes was reached".to_owned())
    );
}

#[test]
fn what_the_module_logged_is_told_again() {
    let path = directory("logged").join("life.watm");
    let limits = Limits {
        record_bytes: 1 << 20,
        ..Limits::default()
    };
    let server = builder("logged").limits(limits).record(&path).start();
    let server = server.expect("starts");
    assert_eq!(Client::new(&server).ask("!log"), "logged");
    server.close();
    run(server.wait_closed());
    let report = replay(&path, &guest(), Mode::Exact);
    assert_eq!(report.difference, None);
    assert_eq!(report.log.len(), 1000);
    for (number, record) in report.log.iter().enumerate() {
        assert_eq!(
            (record.level, record.part.as_str()),
            (tracing::Level::ERROR, "flood")
        );
        assert!(record.message.starts_with(&format!("record {number} x")));
        assert!(record.message.len() <= 512);
    }
}

#[test]
fn a_start_that_fails_is_recorded() {
    for (config, instances) in [("trap", 1), ("syntax", 1)] {
        let path = directory(&format!("start-{config}")).join("life.watm");
        let started = builder("at start").config(config).record(&path).start();
        started.err().expect("refused");
        wait_until("the end is written", || {
            replay(&path, &guest(), Mode::Exact).end != RecordingEnd::Truncated
        });
        let report = replay(&path, &guest(), Mode::Exact);
        assert_eq!(report.difference, None);
        assert_eq!(report.instances, instances);
    }
}
