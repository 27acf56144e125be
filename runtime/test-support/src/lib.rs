//! Support for the tests of the runtime and of the command: modules built from this repository,
//! clients, log records, and [guests of a few lines](water).

#![allow(missing_docs, reason = "the names of most helpers are enough")]

pub mod command;
pub mod water;

use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use watm_runtime::{
    CacheDir, DatagramFlow, Engine, EngineConfig, ErrorCode, Flow, Limits, Module, Phase, Server,
    ServerBuilder, StreamFlow, Trust,
};
use wit_component::ComponentEncoder;

/// The time limit of waits: far more than anything here takes, so that a busy machine fails no
/// test.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Returns the module of `tests/guests`, which obeys its clients' commands.
pub fn guest_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| component("tests/guests", "watm_test_guest"))
}

/// Returns the module of `examples/tcp-forward`.
pub fn tcp_forward() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE
        .get_or_init(|| {
            let bytes = tcp_forward_bytes();
            engine().load("tcp-forward", &bytes).expect("loads")
        })
        .clone()
}

pub fn tcp_forward_bytes() -> Vec<u8> {
    component("examples/tcp-forward", "tcp_forward")
}

pub fn guest() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE
        .get_or_init(|| engine().load("guest", guest_bytes()).expect("loads"))
        .clone()
}

pub fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(uncached_engine)
}

pub fn uncached_engine() -> Engine {
    Engine::new(for_development(CacheDir::Off)).expect("an engine")
}

/// Returns an engine's configuration for freshly built modules, which have no seal.
pub fn for_development(cache: CacheDir) -> EngineConfig {
    let trust = Trust::at("/nowhere/state").allow_unsealed(true);
    EngineConfig { cache, trust }
}

/// Returns the program of `tests/guests/programs`, which does what its first argument says.
pub fn obedient_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| program_of("tests/guests/programs", "obedient"))
}

/// Returns the program of `examples/forward`.
pub fn forward_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| program_of("examples/forward", "forward"))
}

/// Builds a program of this repository for WASI 0.2.
fn program_of(folder: &str, name: &str) -> Vec<u8> {
    let built = build(&repository().join(folder), "guests", PROGRAM, &[]);
    std::fs::read(built.join(format!("{name}.wasm"))).expect("cargo has built it")
}

/// Builds a guest crate of this repository, and makes a component of it.
fn component(folder: &str, name: &str) -> Vec<u8> {
    component_of(&repository().join(folder), name)
}

/// Builds the guest crate in a folder, and makes a component of it.
pub fn component_of(folder: &Path, name: &str) -> Vec<u8> {
    let built = build(folder, "guests", BARE, &[]);
    encode(&built.join(format!("{name}.wasm")))
}

/// Returns the module of one case of the kit for hosts, `tests/hosts`. Builds all of them first.
pub fn host_case_bytes(name: &str) -> Vec<u8> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    host_case_of(
        BUILT.get_or_init(|| host_cases("hosts", &["--examples"])),
        name,
    )
}

/// Returns that module, built for version 0.1.2 of the interface.
pub fn older_host_case_bytes(name: &str) -> Vec<u8> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let options = ["--examples", "--features", "interface-0-1"];
    host_case_of(
        BUILT.get_or_init(|| host_cases("older-hosts", &options)),
        name,
    )
}

fn host_cases(target: &str, options: &[&str]) -> PathBuf {
    build(&repository().join("tests/hosts"), target, BARE, options)
}

fn host_case_of(built: &Path, name: &str) -> Vec<u8> {
    encode(&built.join(format!("examples/{}.wasm", name.replace('-', "_"))))
}

/// The targets of guests whose imports are those of `wit/`, and of programs for WASI 0.2.
const BARE: &str = "wasm32-unknown-unknown";
const PROGRAM: &str = "wasm32-wasip2";

/// Builds a crate for this machine of WebAssembly, in a target folder of this name. Returns the folder
/// of the result.
fn build(folder: &Path, target: &str, machine: &str, options: &[&str]) -> PathBuf {
    let target = scratch().join(target);
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--target", machine])
        .args(options)
        .arg("--target-dir")
        .arg(&target)
        .current_dir(folder)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "building {} failed", folder.display());
    target.join(machine).join("release")
}

/// Makes a component of a core module.
fn encode(file: &Path) -> Vec<u8> {
    let module = std::fs::read(file).expect("cargo has built it");
    ComponentEncoder::default()
        .module(&module)
        .expect("a core module with a WIT world")
        .encode()
        .expect("a component")
}

/// Starts a server for the obedient guest, on a port of its own.
pub fn serve(name: &str) -> Server {
    builder(name).start().expect("starts")
}

pub fn builder(name: &str) -> ServerBuilder {
    Server::builder(&guest())
        .name(name)
        .udp("listen", LOCALHOST)
}

pub fn small_limits() -> Limits {
    Limits {
        memory_bytes: 32 << 20,
        cpu_per_call: Duration::from_millis(100),
        flows: 50,
        accept_backlog: 20,
        datagram_queue: 10,
        crypto_keys: 30,
        ..Limits::default()
    }
}

/// A client of a server's UDP socket.
pub struct Client {
    socket: UdpSocket,
}

impl Client {
    pub fn new(server: &Server) -> Client {
        let socket = UdpSocket::bind(LOCALHOST).expect("a socket");
        socket
            .connect(server.local_addr("listen").expect("granted"))
            .expect("connects");
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a timeout");
        Client { socket }
    }

    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    pub fn send(&self, datagram: &[u8]) {
        // Refused while nobody is bound. Tests that depend on it look for an answer.
        let _ = self.socket.send(datagram);
    }

    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 1 << 16];
        let len = self.socket.recv(&mut buffer).ok()?;
        buffer.truncate(len);
        Some(buffer)
    }

    /// Sends a command once, and returns the answer to it. A datagram that is lost fails the test.
    pub fn ask(&self, command: &str) -> String {
        self.send(command.as_bytes());
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(answer) = self.receive() {
                return String::from_utf8(answer).expect("text");
            }
        }
        panic!("no answer to {command}");
    }
}

/// Checks that a server serves.
pub fn assert_serves(server: &Server) {
    assert_eq!(Client::new(server).ask("!ping"), "pong");
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the module runs again after this many restarts.
pub fn wait_restarted(server: &Server, generation: u32) {
    wait_until("a restart", || {
        let status = server.status().expect("status");
        status.generation >= generation && status.phase == Phase::Running
    });
}

pub fn counter(server: &Server, name: &str) -> u64 {
    let status = server.status().expect("status");
    *status
        .counters
        .get(name)
        .unwrap_or_else(|| panic!("no counter {name}"))
}

/// Runs a future to its end, within a time limit.
pub fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, future)
            .await
            .expect("in time")
    })
}

pub async fn accept_stream(server: &Server) -> StreamFlow {
    match server.accept().await {
        Some(Flow::Stream(flow)) => flow,
        other => panic!("not a stream: {other:?}"),
    }
}

pub async fn accept_datagrams(server: &Server) -> DatagramFlow {
    match server.accept().await {
        Some(Flow::Datagrams(flow)) => flow,
        other => panic!("not datagrams: {other:?}"),
    }
}

pub async fn read(flow: &StreamFlow) -> Result<Vec<u8>, ErrorCode> {
    poll_fn(|cx| flow.poll_read_some(cx, 1 << 16)).await
}

pub async fn drained(flow: &StreamFlow) -> Result<(), ErrorCode> {
    poll_fn(|cx| flow.poll_drained(cx)).await
}

pub async fn receive(flow: &DatagramFlow) -> Result<Option<Vec<u8>>, ErrorCode> {
    poll_fn(|cx| flow.poll_receive(cx)).await
}

/// Returns the root of this repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the directory of the programs that cargo built with the tests, such as `target/release`.
pub fn profile() -> PathBuf {
    let tests = std::env::current_exe().expect("known");
    tests.ancestors().nth(2).expect("above `deps`").to_owned()
}

/// Returns the directory for files of all tests.
pub fn scratch() -> PathBuf {
    let profile = profile();
    profile.parent().expect("the target folder").join("tmp")
}

/// Returns an empty directory of the test's own.
pub fn directory(name: &str) -> PathBuf {
    let path = scratch().join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).expect("removed");
    }
    std::fs::create_dir_all(&path).expect("made");
    path
}

/// Runs the obedient guest through some of everything, twice with a failure. Returns the recording.
pub fn life(name: &str) -> PathBuf {
    let path = directory(name).join("life.watm");
    let server = builder(name)
        .limits(small_limits())
        .config("kept")
        .record(&path)
        .start()
        .expect("starts");
    let client = Client::new(&server);
    client.send(b"hello");
    run(async {
        let flow = accept_datagrams(&server).await;
        assert_eq!(receive(&flow).await, Ok(Some(b"hello".to_vec())));
        flow.send(b"from the application").expect("taken");
        assert_eq!(client.receive(), Some(b"from the application".to_vec()));
    });
    for command in ["!ping", "!crypto", "!open", "!lie", "!long", "!fill"] {
        client.ask(command);
    }
    server.reconfigure("newer").expect("accepted");
    server.reconfigure("field").expect_err("refused");
    server.status().expect("answered");
    server.client_configs("example.org", 1).expect("answered");
    server.client_configs("192.0.2.1", 1).expect_err("refused");
    client.send(b"!trap");
    wait_restarted(&server, 1);
    client.ask("!ping");
    client.send(b"!spin");
    wait_restarted(&server, 2);
    client.ask("!keys");
    client.send(b"!eat");
    wait_restarted(&server, 3);
    client.ask("!ping");
    server.close();
    run(server.wait_closed());
    path
}

/// Returns the guest as another version: with one answer worded differently.
pub fn reworded_guest() -> Vec<u8> {
    let mut bytes = guest_bytes().to_vec();
    let (old, new) = (b"no such command", b"no such request");
    let mut found = bytes.windows(old.len()).enumerate();
    let at = found
        .find(|(_, window)| window == old)
        .expect("its words")
        .0;
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// A log record, as a line.
#[derive(Debug, Clone)]
pub struct Record {
    pub level: tracing::Level,
    pub server: String,
    pub text: String,
}

/// Returns all records of a server since the start of the process. The first caller installs the
/// subscriber, so a test calls this before its server starts.
pub fn records(server: &str) -> Vec<Record> {
    collected(|record| record.server == server)
}

/// Returns all records whose text contains `words`, of any server or of none. As with `records`, a
/// test must call this before the records can occur.
pub fn records_about(words: &str) -> Vec<Record> {
    collected(|record| record.text.contains(words))
}

fn collected(wanted: impl Fn(&Record) -> bool) -> Vec<Record> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| tracing_subscriber::registry().with(Collector).init());
    let records = RECORDS.lock().expect("no panic under this lock");
    records
        .iter()
        .filter(|record| wanted(record))
        .cloned()
        .collect()
}

static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

struct Collector;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Collector {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("watm") {
            return;
        }
        let mut record = Record {
            level: *event.metadata().level(),
            server: String::new(),
            text: String::new(),
        };
        event.record(&mut record);
        RECORDS
            .lock()
            .expect("no panic under this lock")
            .push(record);
    }
}

impl Visit for Record {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "server" => self.server = value.to_owned(),
            name => self.text += &format!(" {name}={value}"),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.text += &format!(" {}={value:?}", field.name());
    }
}
