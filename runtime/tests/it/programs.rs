//! Programs of WASI 0.2, which know nothing of this host: `examples/forward`, and one of
//! `tests/guests/programs` that misbehaves on request.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use watm_runtime::{
    Destination, Dialer, Limits, Module, ModuleKind, Program, ProgramOptions, Reach, Relay,
    RoleBuilder, Target, Wire,
};

use watm_test_support::{
    LOCALHOST, PATIENCE, engine, forward_bytes, guest, obedient_bytes, records, wait_until,
};

/// Runs a future to its end on several threads, within a time limit.
pub fn run_on_threads<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    let result = runtime.block_on(async {
        tokio::time::timeout(PATIENCE, future)
            .await
            .expect("in time")
    });
    runtime.shutdown_background();
    result
}

pub fn forward() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    let load = || engine().load("forward", forward_bytes()).expect("loads");
    MODULE.get_or_init(load).clone()
}

pub fn obedient() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    let load = || engine().load("obedient", obedient_bytes()).expect("loads");
    MODULE.get_or_init(load).clone()
}

fn options(arguments: &[&str]) -> ProgramOptions {
    ProgramOptions {
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        ..ProgramOptions::default()
    }
}

fn start(arguments: &[&str]) -> Program {
    Program::builder(&obedient())
        .start(options(arguments))
        .expect("starts")
}

fn limited(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::for_connections_of(ModuleKind::Program);
    limits.cpu_per_call = Duration::from_millis(100);
    limits.memory_bytes = 32 << 20;
    change(&mut limits);
    limits
}

fn bound() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(LOCALHOST).expect("a port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

async fn accepted(listener: TcpListener) -> TcpStream {
    let accepting = spawn_blocking(move || listener.accept().expect("accepts").0);
    let stream = accepting.await.expect("no panic");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

async fn rest_of(mut stream: TcpStream) -> String {
    let reading = spawn_blocking(move || {
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    });
    reading.await.expect("no panic").expect("a regular end")
}

/// Runs the obedient program, and returns its report. Its second argument becomes the address of the
/// test, which is its destination.
pub async fn report_of(
    module: &Module,
    arguments: &[&str],
    change: impl FnOnce(RoleBuilder<Program>) -> RoleBuilder<Program>,
) -> String {
    let (listener, address) = bound();
    let mut options = options(arguments);
    options.arguments[1] = address.to_string();
    options.destination = Some(Destination::Address(address));
    let program = change(Program::builder(module))
        .start(options)
        .expect("starts");
    let report = accepted(listener);
    let report = tokio::select! {
        stream = report => rest_of(stream).await,
        // A program that has reported ends well.
        Err(error) = program.ended() => panic!("it failed: {error}"),
    };
    program.close().await;
    report
}

async fn report(arguments: &[&str]) -> String {
    report_of(&obedient(), arguments, |builder| builder).await
}

fn reach(pattern: &str) -> Reach {
    Reach::none().allow(pattern).expect("a pattern")
}

/// Checks that a forwarder forwards, with half-closed connections.
pub async fn forwards(module: &Module, name: &str) {
    let (upstream, destination) = bound();
    let program = Program::builder(module).name(name).start(ProgramOptions {
        tcp: vec![LOCALHOST],
        destination: Some(Destination::Address(destination)),
        ..options(&["127.0.0.1:0", &destination.to_string()])
    });
    let program = program.expect("starts");
    let [address] = program.local_addrs()[..] else {
        panic!("one address");
    };
    let client = TcpStream::connect(address).expect("connects");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut server = accepted(upstream).await;
    let question: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
    let sent = question.clone();
    let mut half = client.try_clone().expect("a clone");
    let sending = spawn_blocking(move || {
        half.write_all(&sent).expect("written");
        half.shutdown(std::net::Shutdown::Write).expect("shut");
    });
    let answering = spawn_blocking(move || {
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).expect("a regular end");
        server.write_all(b"answer").expect("written");
        heard
    });
    sending.await.expect("no panic");
    assert!(answering.await.expect("no panic") == question);
    assert_eq!(rest_of(client).await, "answer");
    program.close().await;
}

#[test]
fn a_program_forwards_connections() {
    run_on_threads(forwards(&forward(), "forwards"));
}

#[test]
fn a_program_sees_its_input_and_nothing_of_the_machine() {
    let said = run_on_threads(report_of(&obedient(), &["world", ""], |builder| {
        builder.config("settings")
    }));
    assert_eq!(
        said,
        "input \"settings\", 0 variables, 0 files, written: false"
    );
}

pub const DENIED: &str = "Permission denied (os error 2)";

#[test]
fn a_program_connects_where_its_reach_allows() {
    run_on_threads(async {
        let (_upstream, address) = bound();
        let to = address.to_string();
        assert_eq!(report(&["connect", "", &to]).await, DENIED);
        let allowed = |pattern: String| {
            let to = to.clone();
            async move {
                report_of(&obedient(), &["connect", "", &to], |it| {
                    it.reach(reach(&pattern))
                })
                .await
            }
        };
        assert_eq!(allowed(format!("tcp://{to}")).await, "done");
        assert_eq!(
            allowed(format!("127.0.0.1:{}", address.port() ^ 1)).await,
            DENIED
        );
        assert_eq!(allowed(format!("udp://{to}")).await, DENIED);
    });
}

#[test]
fn a_refusal_is_logged_with_the_pattern_that_would_allow_it() {
    records("refused");
    run_on_threads(report_of(
        &obedient(),
        &["connect", "", "127.0.0.1:9"],
        |it| it.name("refused"),
    ));
    let expected = "not allowed to reach 127.0.0.1:9; the pattern \"127.0.0.1:9\" would allow it";
    assert!(
        records("refused")
            .iter()
            .any(|record| record.text.contains(expected))
    );
}

#[test]
fn a_name_counts_for_its_addresses_at_the_ports_that_are_allowed() {
    run_on_threads(async {
        let (_upstream, address) = bound();
        let port = address.port();
        let to = |port: u16| format!("localhost:{port}");
        let connect = |port: u16, pattern: String| async move {
            let arguments = ["connect", "", &to(port)];
            report_of(&obedient(), &arguments, |it| it.reach(reach(&pattern))).await
        };
        assert_eq!(connect(port, to(port)).await, "done");
        assert_eq!(connect(port, to(port ^ 1)).await, DENIED);
        // No name is asked for that may not be reached.
        let look_up = |name: &'static str, pattern: &'static str| async move {
            let arguments = ["look-up", "", name];
            report_of(&obedient(), &arguments, |it| it.reach(reach(pattern))).await
        };
        assert_eq!(look_up("localhost", "localhost:1").await, "done");
        assert_eq!(look_up("localhost", "example.com:1").await, DENIED);
        assert_eq!(look_up("127.0.0.1", "example.com:1").await, "done");
    });
}

#[test]
fn a_program_listens_only_on_granted_addresses() {
    run_on_threads(async {
        let free = bound().1.to_string();
        assert_eq!(report(&["listen", "", &free]).await, DENIED);
        assert_eq!(report(&["bind", "", &free]).await, DENIED);
        assert_eq!(report(&["bind", "", "0.0.0.0:0"]).await, "done");
    });
}

#[test]
fn a_program_answers_datagrams_and_asks_nobody_that_it_may_not() {
    run_on_threads(async {
        let asked = UdpSocket::bind(LOCALHOST).expect("a port");
        asked.set_nonblocking(true).expect("set");
        let to = asked.local_addr().expect("bound").to_string();
        assert_eq!(report(&["send", "", &to]).await, DENIED);
        let nothing = asked.recv(&mut [0; 10]).expect_err("nothing came");
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        let pattern = format!("udp://{to}");
        let arguments = ["send", "", &to];
        let said = report_of(&obedient(), &arguments, |it| it.reach(reach(&pattern))).await;
        assert_eq!(said, "done");
        let mut buffer = [0; 10];
        assert_eq!(asked.recv(&mut buffer).expect("a datagram"), 5);

        let free = UdpSocket::bind(LOCALHOST).expect("a port");
        let address = free.local_addr().expect("bound");
        drop(free);
        let program = Program::builder(&obedient()).start(ProgramOptions {
            udp: vec![address],
            ..options(&["echo", &address.to_string()])
        });
        let program = program.expect("starts");
        let client = UdpSocket::bind(LOCALHOST).expect("a port");
        client
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a timeout");
        client.connect(address).expect("connects");
        wait_until("an echo", || {
            // Refused until the program has bound its socket.
            let _ = client.send(b"hello");
            client
                .recv(&mut buffer)
                .is_ok_and(|count| &buffer[..count] == b"hello")
        });
        program.close().await;
    });
}

#[test]
fn sockets_are_limited_and_closed_ones_give_their_places_back() {
    run_on_threads(async {
        let (_upstream, address) = bound();
        let to = address.to_string();
        let few = |arguments: [&'static str; 2], other: Option<String>| {
            let pattern = to.clone();
            async move {
                let mut arguments = arguments.to_vec();
                arguments.extend(other.as_deref());
                report_of(&obedient(), &arguments, |it| {
                    it.reach(reach(&pattern))
                        .limits(limited(|limits| limits.descriptors = 10))
                })
                .await
            }
        };
        let said = few(["connections", ""], Some(to.clone())).await;
        assert!(said.starts_with("10 then "), "{said}");
        let said = few(["sockets", ""], None).await;
        assert!(said.starts_with("10 then "), "{said}");
    });
}

#[test]
fn connections_beyond_the_limit_wait_in_the_kernel() {
    run_on_threads(async {
        let (upstream, destination) = bound();
        // The listener has one descriptor, and a client takes two.
        let program = Program::builder(&forward())
            .limits(limited(|limits| limits.descriptors = 3))
            .start(ProgramOptions {
                tcp: vec![LOCALHOST],
                destination: Some(Destination::Address(destination)),
                ..options(&["127.0.0.1:0", &destination.to_string()])
            });
        let program = program.expect("starts");
        let address = program.local_addrs()[0];
        let first = TcpStream::connect(address).expect("connects");
        let served = accepted(upstream.try_clone().expect("a clone")).await;
        let second = TcpStream::connect(address).expect("waits");
        tokio::time::sleep(Duration::from_millis(300)).await;
        upstream.set_nonblocking(true).expect("set");
        let nobody = upstream.accept().expect_err("nobody comes yet");
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
        assert_eq!(program.sockets(), 3);
        upstream.set_nonblocking(false).expect("set");
        drop((first, served));
        accepted(upstream).await;
        drop(second);
        program.close().await;
    });
}

/// Runs the obedient program with small limits, and returns the error that it ends with, or the record
/// of a failure that came after its first second.
async fn failure(name: &str, arguments: &[&str]) -> String {
    records(name);
    let program = Program::builder(&obedient())
        .name(name)
        .limits(limited(|_| ()))
        .log_level(tracing::Level::DEBUG)
        .start(options(arguments));
    let program = program.expect("starts");
    let failed = async {
        loop {
            let found = records(name);
            if let Some(record) = found.iter().find(|it| it.text.contains("starts again")) {
                return record.text.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let said = tokio::select! {
        ended = program.ended() => ended.expect_err("fails").to_string(),
        said = failed => said,
    };
    program.close().await;
    said
}

#[test]
fn a_program_that_takes_too_much_ends_with_the_reason() {
    run_on_threads(async {
        let cpu = "used more than 100ms of CPU time without waiting";
        let said = failure("spins", &["spin"]).await;
        assert!(said.contains(cpu), "{said}");
        let said = failure("eats", &["eat"]).await;
        assert!(said.contains("ran out of memory (limit 32 MiB)"), "{said}");
        // Printing is no wait.
        let said = failure("prints on", &["print"]).await;
        assert!(said.contains(cpu), "{said}");
    });
}

#[test]
fn the_end_of_a_program_is_told() {
    run_on_threads(async {
        let said = failure("exits", &["exit", "7"]).await;
        // WASI 0.2 has no other status for a failure.
        assert!(said.contains("exited with status 1"), "{said}");
        let said = failure("panics", &["panic"]).await;
        assert!(
            said.contains("the program's last output: as told"),
            "{said}"
        );
        for arguments in [&["return"][..], &["exit", "0"], &[]] {
            start(arguments).ended().await.expect("a regular end");
        }
    });
}

#[test]
fn lines_are_records_and_their_rate_is_limited() {
    records("talks");
    run_on_threads(async {
        let talking = Program::builder(&obedient())
            .name("talks")
            .log_level(tracing::Level::DEBUG)
            .start(options(&["say", "a\u{1b}[31mred"]));
        talking.expect("starts").ended().await.expect("ends");
        let said: Vec<_> = records("talks").into_iter().map(|it| it.text).collect();
        let line = said.iter().find(|text| text.contains("stderr"));
        let line = line.expect("a record");
        assert!(line.contains("red") && !line.contains('\u{1b}'), "{line}");
        failure("program-prints", &["print"]).await;
        // A burst of ten seconds.
        let printed = records("program-prints").len();
        assert!((100..=300).contains(&printed), "{printed}");
    });
}

#[test]
fn cancelling_takes_less_than_a_second_whatever_the_program_does() {
    run_on_threads(async {
        let (listener, address) = bound();
        let to = address.to_string();
        for arguments in [
            &["spin"][..],
            &["sleep"],
            &["print"],
            &["hold", &to],
            &["flood", &to],
        ] {
            let program = Program::builder(&obedient())
                .limits(limited(|limits| limits.cpu_per_call = PATIENCE))
                .start(ProgramOptions {
                    destination: Some(Destination::Address(address)),
                    ..options(arguments)
                });
            let program = program.expect("starts");
            let peer = match arguments.len() {
                1 => None,
                _ => Some(accepted(listener.try_clone().expect("a clone")).await),
            };
            tokio::time::sleep(Duration::from_millis(100)).await;
            let begin = Instant::now();
            program.close().await;
            assert!(begin.elapsed() < Duration::from_secs(1), "{arguments:?}");
            // Truncated data does not look complete.
            if let Some(mut peer) = peer {
                let mut all = Vec::new();
                let ended = peer.read_to_end(&mut all).expect_err("no regular end");
                assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "{arguments:?}");
            }
        }
    });
}

#[test]
fn a_peer_that_reads_nothing_costs_a_bounded_amount_of_memory() {
    run_on_threads(async {
        let (listener, address) = bound();
        let program = Program::builder(&obedient())
            .limits(limited(|_| ()))
            .start(ProgramOptions {
                destination: Some(Destination::Address(address)),
                ..options(&["flood", &address.to_string()])
            });
        let program = program.expect("starts");
        let _peer = accepted(listener).await;
        // It waits, so that it is not stopped for its use of the CPU.
        let ended = tokio::time::timeout(Duration::from_millis(500), program.ended()).await;
        ended.expect_err("it waits");
        assert_eq!(program.restarts(), 0);
        let used = program.used();
        assert!(used.cpu_permille < 900, "{used:?}");
        assert!(used.memory_peak_bytes <= 32 << 20, "{used:?}");
        program.close().await;
    });
}

#[test]
fn a_program_that_fails_starts_again_on_the_same_listener() {
    run_on_threads(async {
        let program = Program::builder(&obedient()).start(ProgramOptions {
            tcp: vec![LOCALHOST],
            ..options(&["serve", "127.0.0.1:0"])
        });
        let program = program.expect("starts");
        let ask = |text: &'static str| {
            let mut client = TcpStream::connect(program.local_addrs()[0]).expect("connects");
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            client.write_all(text.as_bytes()).expect("written");
            spawn_blocking(move || client.read_exact(&mut [0; 5]).map_err(|error| error.kind()))
        };
        assert_eq!(ask("hello").await.expect("no panic"), Ok(()));
        // A failure in the first second would end it.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let failed = ask("panic").await.expect("no panic");
        assert_eq!(failed, Err(ErrorKind::ConnectionReset));
        assert_eq!(ask("hello").await.expect("no panic"), Ok(()));
        assert_eq!(program.restarts(), 1);
        program.close().await;
    });
}

#[test]
fn another_program_takes_its_place_on_the_same_listener() {
    run_on_threads(async {
        let (upstream, destination) = bound();
        let program = Program::builder(&forward()).start(ProgramOptions {
            tcp: vec![LOCALHOST],
            destination: Some(Destination::Address(destination)),
            ..options(&["127.0.0.1:0", &destination.to_string()])
        });
        let program = program.expect("starts");
        let refused = program.swap(&guest()).expect_err("no program").to_string();
        assert!(
            refused.contains("is a component, and no program"),
            "{refused}"
        );
        let connect = async || {
            let client = TcpStream::connect(program.local_addrs()[0]).expect("connects");
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            (
                client,
                accepted(upstream.try_clone().expect("a clone")).await,
            )
        };
        let (mut before, _server) = connect().await;
        program.swap(&forward()).expect("swapped");
        let ended = spawn_blocking(move || before.read(&mut [0]).map_err(|error| error.kind()));
        assert_eq!(
            ended.await.expect("no panic"),
            Err(ErrorKind::ConnectionReset)
        );
        let (client, mut server) = connect().await;
        server.write_all(b"hello").expect("written");
        drop(server);
        assert_eq!(rest_of(client).await, "hello");
        assert_eq!(program.restarts(), 0);
        program.close().await;
    });
}

#[test]
fn a_connector_makes_the_connections_and_there_are_no_datagrams() {
    static CONNECTED: AtomicUsize = AtomicUsize::new(0);
    async fn through(target: Target) -> std::io::Result<Wire> {
        CONNECTED.fetch_add(1, Ordering::Relaxed);
        let Destination::Address(address) = target.destination else {
            panic!("an address");
        };
        let stream = tokio::net::TcpStream::connect(address).await?;
        Ok(Wire::stream(stream))
    }
    run_on_threads(async {
        let to = UdpSocket::bind(LOCALHOST).expect("a port");
        let to = to.local_addr().expect("bound").to_string();
        let arguments = ["send", "", &to];
        let program = obedient();
        let said = report_of(&program, &arguments, |it| {
            it.connector(through).reach(reach("*"))
        });
        assert_eq!(said.await, DENIED);
        assert_eq!(CONNECTED.load(Ordering::Relaxed), 1);
        let refused = Program::builder(&obedient())
            .connector(through)
            .start(ProgramOptions {
                udp: vec![LOCALHOST],
                ..ProgramOptions::default()
            });
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains("carries no datagrams"), "{refused}");
    });
}

#[test]
fn a_program_has_its_roles_and_no_other() {
    run_on_threads(async {
        let program = obedient();
        let expected =
            "listens itself; use it as a listener or a server, or run it with `watm relay`";
        for error in [
            Dialer::builder(&program).build().err(),
            Relay::builder(&program)
                .bind(LOCALHOST, "127.0.0.1:1")
                .err(),
        ] {
            let said = error.expect("refused").to_string();
            assert!(said.contains(expected), "{said}");
        }
        let refused = Program::builder(&guest()).start(ProgramOptions::default());
        let said = refused.expect_err("refused").to_string();
        assert!(
            said.contains("is a component, and no program of WASI 0.2"),
            "{said}"
        );
    });
}

#[test]
fn imports_that_the_host_does_not_provide_are_named() {
    let component = |import: &str, export: &str| {
        let text = format!(
            "(component (import \"{import}\" (instance)) (instance $run) \
             (export \"{export}\" (instance $run)))"
        );
        let bytes = wat::parse_str(text).expect("a component");
        watm_runtime::inspect(&bytes).expect("inspected")
    };
    let fits = component("wasi:clocks/wall-clock@0.2.9", "wasi:cli/run@0.2.3");
    assert_eq!(fits.kind, ModuleKind::Program);
    assert_eq!(fits.world.as_deref(), Some("wasi:cli/command@0.2.3"));
    assert!(fits.problems.is_empty(), "{:?}", fits.problems);
    for (import, export, said) in [
        (
            "wasi:http/types@0.2.0",
            "wasi:cli/run@0.2.0",
            "imports wasi:http/types@0.2.0",
        ),
        (
            "wasi:io/poll@0.3.0",
            "wasi:cli/run@0.2.0",
            "imports wasi:io/poll@0.3.0",
        ),
        (
            "wasi:io/poll@0.2.0",
            "wasi:cli/run@0.3.0",
            "a program for WASI 0.3.0",
        ),
        (
            "watm:transport/log@0.2.0",
            "wasi:cli/run@0.2.0",
            "imports watm:transport/log",
        ),
    ] {
        let info = component(import, export);
        assert_eq!(info.kind, ModuleKind::Program);
        let [problem] = &info.problems[..] else {
            panic!("{:?}", info.problems);
        };
        assert!(problem.starts_with(said), "{problem}");
    }
}
