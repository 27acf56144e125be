//! Name lookups of modules.

use watm_runtime::{Mode, Reach, Recording, Server};

use watm_test_support::{Client, builder, directory, guest, run, wait_until};

fn server(name: &str, patterns: &[&str]) -> Server {
    let reach = patterns.iter().fold(Reach::none(), |reach, pattern| {
        reach.allow(pattern).expect("a pattern")
    });
    builder(name).reach(reach).start().expect("starts")
}

/// Returns the module's final answer.
fn look_up(server: &Server, host: &str) -> String {
    let client = Client::new(server);
    let mut answer = client.ask(&format!("!lookup {host}"));
    wait_until("there is an answer", || {
        if answer == "Ok(None)" {
            answer = client.ask("!lookup ");
        }
        answer != "Ok(None)"
    });
    answer
}

#[test]
fn a_name_is_looked_up_where_datagrams_may_go_to_it() {
    for pattern in [
        "udp://localhost:53",
        "localhost:53",
        "udp://*",
        "udp://127.0.0.0/8:1-100",
    ] {
        let answer = look_up(&server("names", &[pattern]), "localhost 53");
        assert!(answer.contains("Ipv4((127, 0, 0, 1))"), "{answer}");
        assert!(answer.contains("port: 53"), "{answer}");
    }
    let denied = "ErrorCode::AccessDenied";
    for patterns in [&[][..], &["tcp://localhost:53"], &["udp://localhost:54"]] {
        let answer = look_up(&server("denied", patterns), "localhost 53");
        assert_eq!(answer, denied, "{patterns:?}");
    }
    // It could be among the addresses, but is not.
    let answer = look_up(
        &server("elsewhere", &["udp://192.0.2.0/24"]),
        "localhost 53",
    );
    assert_eq!(answer, format!("Err({denied})"));
}

#[test]
fn a_name_without_an_address_is_an_error() {
    let answer = look_up(&server("nowhere", &["udp://*"]), "nowhere.invalid 53");
    assert_eq!(answer, "Err(ErrorCode::NameUnresolvable)");
}

#[test]
fn what_was_found_is_in_a_recording() {
    let path = directory("names").join("life.watm");
    let reach = Reach::none().allow("udp://*").expect("a pattern");
    let server = builder("recorded")
        .reach(reach)
        .record(&path)
        .start()
        .expect("starts");
    look_up(&server, "localhost 7");
    server.close();
    run(server.wait_closed());
    for mode in [Mode::Exact, Mode::Fitting] {
        let recording = Recording::open(&path).expect("a recording");
        let report = recording.replay(&guest(), mode).expect("replayed");
        assert!(report.difference.is_none(), "{mode:?}: {report:?}");
    }
}
