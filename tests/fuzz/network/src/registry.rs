//! Registries and web servers that a module is updated from.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use watm_seal::state::StateFile;
use watm_seal::{
    Approval, Capabilities, DAY, Delegation, Digest, Manifest, ModuleRole, Policy, PrivateKey,
    Purpose, Root, RootRecord, SignedRoot, seal,
};
use watm_update::{Credentials, NetworkOptions, Outcome, Place, Report, Source, Terms, Updater};

use crate::{check_line, contains};

/// The user's password, which must never be shown.
const PASSWORD: &str = "hunter2";
/// The same as it is sent, with the user `ann`.
const BASIC: &str = "YW5uOmh1bnRlcjI=";

/// The media type of the artifact's manifest.
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// Answers of the servers, one after another: a byte that says which kind, two of a length, and so many
/// bytes. The first byte of all says whether a registry is asked or a web server, and whether the user
/// has given a password.
pub fn run(input: &[u8]) {
    let Some((&mode, rest)) = input.split_first() else {
        return;
    };
    WORLD.with_borrow(|world| world.check(mode, rest));
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

struct World {
    runtime: Runtime,
    /// The source, and another machine.
    source: TcpListener,
    other: TcpListener,
    folder: PathBuf,
}

/// A request that a server read.
struct Request {
    /// At the other machine.
    elsewhere: bool,
    head: String,
}

impl World {
    fn new() -> World {
        let runtime = crate::runtime();
        let bind = |address| {
            let listener = runtime.block_on(TcpListener::bind(address));
            listener.expect("a port of loopback")
        };
        let (source, other) = (bind("127.0.0.1:0"), bind("127.0.0.2:0"));
        let thread = std::thread::current().id();
        let name = format!("watm-fuzz-registry-{}-{thread:?}", std::process::id());
        World {
            runtime,
            source,
            other,
            folder: std::env::temp_dir().join(name),
        }
    }

    fn check(&self, mode: u8, answers: &[u8]) {
        // An error: there is none.
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir_all(&self.folder).expect("a folder");
        let place = Place::new(self.folder.join("module.wasm"));
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let ports = [port(&self.source), port(&self.other)];
        let source = match mode & 1 {
            0 => format!("oci://127.0.0.1:{}/demo/x:1", ports[0]),
            _ => format!("http://127.0.0.1:{}/x.wasm", ports[0]),
        };
        let credentials =
            (mode & 2 != 0).then(|| Credentials::Basic("ann".to_owned(), PASSWORD.to_owned()));
        let options = NetworkOptions {
            plain_http: true,
            credentials,
            connect_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(1),
            total_timeout: Duration::from_secs(3),
            ..NetworkOptions::default()
        };
        let terms = Terms {
            root: root().clone(),
            state: StateFile::new(self.folder.join("state")),
            policy: Policy {
                approval: Approval::Given,
                ..Policy::default()
            },
        };
        let mut updater = Updater::new(
            Source::parse(&source).expect("a source"),
            place.clone(),
            terms,
        )
        .network(options);
        // A server may contain the secret by chance.
        let is_known = [BASIC, PASSWORD].map(str::as_bytes);
        let is_known = is_known.iter().any(|secret| contains(answers, secret));
        let mut answers = answers_of(answers, ports);
        let mut requests = Vec::new();
        let report = self.runtime.block_on(async {
            tokio::select! {
                report = updater.check() => report,
                () = self.serve(&mut answers, &mut requests) => unreachable!("serves for ever"),
            }
        });
        check_report(&report);
        let installed = fs::read(place.path()).ok();
        match report.outcome {
            Outcome::Updated { .. } => assert_eq!(installed.as_deref(), Some(module())),
            _ => assert_eq!(installed, None, "put in place by the way"),
        }
        for request in requests {
            let told = request.head.contains(BASIC) || request.head.contains(PASSWORD);
            let told = told && !is_known;
            assert!(!told || mode & 2 != 0, "a password from nowhere");
            assert!(
                !told || !request.elsewhere,
                "another machine has the password"
            );
        }
        // An error: it stays for the next run.
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Gives the next answer to each request, until it is dropped.
    async fn serve(&self, answers: &mut VecDeque<Vec<u8>>, requests: &mut Vec<Request>) {
        loop {
            let (accepted, elsewhere) = tokio::select! {
                accepted = self.source.accept() => (accepted, false),
                accepted = self.other.accept() => (accepted, true),
            };
            let Ok((mut client, _)) = accepted else {
                continue;
            };
            if let Some(head) = head(&mut client).await {
                requests.push(Request { elsewhere, head });
            }
            let answer = answers.pop_front().unwrap_or_default();
            // An error: the client has left.
            let _ = client.write_all(&answer).await;
            let _ = client.shutdown().await;
        }
    }
}

/// Reads the head of a client's request.
async fn head(client: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

fn check_report(report: &Report) {
    let mut lines: Vec<&str> = vec![&report.source];
    lines.extend(report.warnings.iter().map(|notice| &notice.text[..]));
    if let Outcome::Refused { code, reason } = &report.outcome {
        assert!(!code.is_empty());
        lines.push(reason);
    }
    for line in lines {
        check_line(line);
        assert!(!line.contains(PASSWORD) && !line.contains(BASIC), "{line}");
    }
}

fn answers_of(mut bytes: &[u8], ports: [u16; 2]) -> VecDeque<Vec<u8>> {
    let mut answers = VecDeque::new();
    while let Some((&[kind, high, low], rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (content, rest) = rest.split_at(length.min(rest.len()));
        answers.push_back(answer(kind, content, ports));
        bytes = rest;
    }
    answers
}

/// An answer of this kind, in which ports that it names are those of the machines.
fn answer(kind: u8, content: &[u8], ports: [u16; 2]) -> Vec<u8> {
    let content = with_ports(content, ports);
    let said = |status: &str, fields: &str, body: &[u8]| {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n");
        [head.as_bytes(), body].concat()
    };
    let of_type =
        |kind: &str, body: &[u8]| said("200 OK", &format!("Content-Type: {kind}\r\n"), body);
    let field = |name: &str, status: &str| {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n{name}: ");
        [head.as_bytes(), &content, b"\r\n\r\n"].concat()
    };
    match kind % 10 {
        0 => content,
        1 => of_type(MANIFEST_TYPE, &content),
        2 => of_type(MANIFEST_TYPE, artifact().as_bytes()),
        3 => of_type("application/wasm", module()),
        4 => field("WWW-Authenticate", "401 Unauthorized"),
        5 => of_type("application/json", &content),
        6 => field("Location", "307 Temporary Redirect"),
        7 => field("Retry-After", "503 Service Unavailable"),
        8 => field("Content-Range", "206 Partial Content"),
        _ => {
            let cut = module().len().min(content.len());
            said("200 OK", "", &module()[..module().len() - cut])
        }
    }
}

/// `:1111` and `:2222` stand for the ports of the machines.
fn with_ports(content: &[u8], ports: [u16; 2]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some((first, after)) = rest.split_first() {
        let port = match rest.get(..5) {
            Some(b":1111") => Some(ports[0]),
            Some(b":2222") => Some(ports[1]),
            _ => None,
        };
        match port {
            Some(port) => {
                out.extend(format!(":{port}").bytes());
                rest = &rest[5..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed(&[number; 32])
}

/// The root of trust: key 1 is its own, and key 11 seals.
fn root() -> &'static Root {
    static ROOT: LazyLock<Root> = LazyLock::new(|| {
        let record = RootRecord {
            version: 1,
            first: None,
            epoch: 1,
            expires: 4_000_000_000,
            threshold: 1,
            keys: [key(1).public()].into(),
            delegations: vec![Delegation {
                name: "release".parse().expect("a name"),
                purpose: Purpose::Seal,
                threshold: 1,
                keys: [key(11).public()].into(),
                names: ["demo/*".parse().expect("a pattern")].into(),
                ceiling: Capabilities::unlimited(),
            }],
            revoked: BTreeSet::new(),
        };
        let signed = SignedRoot::new(record).and_then(|root| root.sign(&key(1)));
        signed.and_then(Root::trust).expect("a possible root")
    });
    &ROOT
}

/// The only module that may be installed.
fn module() -> &'static [u8] {
    static MODULE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("after 1970").as_secs();
        let manifest = Manifest {
            root: root().id(),
            name: "demo/x".parse().expect("a name"),
            world: watm_seal::World::WaterV1,
            roles: [ModuleRole::Dialer].into(),
            release: "1.1".parse().expect("a release"),
            version: "1".to_owned(),
            body_length: 0,
            body_sha256: Digest::of(b""),
            not_before: now - DAY,
            expires: now + DAY,
            channel: "stable".parse().expect("a name"),
            audience: None,
            min_host: "0.1.0".parse().expect("a version"),
            config_schema: 0,
            capabilities: Capabilities::default(),
            floors: BTreeMap::new(),
            requires: BTreeMap::new(),
            source_commit: String::new(),
            toolchain: String::new(),
        };
        seal(b"\0asm\x01\0\0\0\0\x02\x01x", manifest, &[], &[key(11)]).expect("can be sealed")
    });
    &MODULE
}

/// The artifact that it is.
fn artifact() -> String {
    let config = Digest::of(b"{}");
    let (digest, size) = (Digest::of(module()), module().len());
    format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST_TYPE}\",\"config\":{{\"mediaType\":\
         \"application/vnd.wasm.config.v0+json\",\"digest\":\"sha256:{config}\",\"size\":2}},\"layers\":\
         [{{\"mediaType\":\"application/wasm\",\"digest\":\"sha256:{digest}\",\"size\":{size}}}]}}"
    )
}
