//! Requests that a module's imports imply, for `watm inspect`.

use serde_derive::Serialize;
use wasmparser::{Parser, Payload};
use watm_runtime::{ModuleInfo, ModuleKind};

/// An ability that a module may request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    Sockets,
    Packets,
    Names,
    Accept,
    Dial,
    DialFixed,
    Listen,
    Connect,
    LookUp,
    Datagrams,
    Flows,
    Config,
    Arguments,
    Files,
    Crypto,
    Signing,
    Capture,
    Clock,
    Randomness,
    Log,
}

impl Request {
    /// Returns a description for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Request::Sockets => "network: sockets that it names and the host grants",
            Request::Packets => "network: packets of a device that the host grants",
            Request::Names => "network: look up hosts that it may send datagrams to (--allow)",
            Request::Accept => "network: accept connections",
            Request::Dial => "network: dial the address that it is given",
            Request::DialFixed => "network: dial addresses of its choice (--allow)",
            Request::Listen => "network: listen on addresses that it is granted",
            Request::Connect => {
                "network: connect to the address that it is given and others (--allow)"
            }
            Request::LookUp => "network: look up names that it may connect or send to (--allow)",
            Request::Datagrams => {
                "network: send datagrams to those that sent it some and others (--allow)"
            }
            Request::Flows => "flows: offer connections to the application",
            Request::Config => "config: read its file (--config)",
            Request::Arguments => "arguments: those after `--`; there are no variables",
            Request::Files => "files: looks for some, and finds none",
            Request::Crypto => "crypto: have the host run ciphers",
            Request::Signing => "signing: have the host sign with keys that it keeps (--key)",
            Request::Capture => "capture: copy packets and keys, if the user enables it",
            Request::Clock => "clock: the time",
            Request::Randomness => "randomness",
            Request::Log => "log: write records",
        }
    }
}

/// Returns the requests that the imports imply, sorted, each once.
pub(super) fn requests(info: &ModuleInfo) -> Vec<Request> {
    let mut found: Vec<Request> = info
        .imports
        .iter()
        .filter_map(|import| request(import))
        .collect();
    if info.kind == ModuleKind::Component {
        // The function that starts a component passes its configuration.
        found.push(Request::Config);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn request(import: &str) -> Option<Request> {
    let name = import.split_once('@').map_or(import, |(name, _)| name);
    Some(match name {
        "watm:transport/sockets" => Request::Sockets,
        "watm:transport/packets" => Request::Packets,
        "watm:transport/names" => Request::Names,
        "env.water_accept" | "env.host_accept" => Request::Accept,
        "env.water_dial_fixed" | "env.host_dial" => Request::Dial,
        "env.water_dial" => Request::DialFixed,
        "watm:transport/flows" => Request::Flows,
        "env.pull_config" | "wasi_snapshot_preview1.path_open" => Request::Config,
        "watm:transport/crypto" => Request::Crypto,
        "watm:transport/signing" => Request::Signing,
        "watm:transport/capture" => Request::Capture,
        "wasi:clocks/wall-clock"
        | "wasi:clocks/monotonic-clock"
        | "wasi_snapshot_preview1.clock_time_get" => Request::Clock,
        "wasi:random/random"
        | "wasi:random/insecure"
        | "wasi:random/insecure-seed"
        | "wasi_snapshot_preview1.random_get" => Request::Randomness,
        "watm:transport/log"
        | "wasi:cli/stdout"
        | "wasi:cli/stderr"
        | "wasi_snapshot_preview1.fd_write" => Request::Log,
        "wasi:sockets/tcp-create-socket" => Request::Listen,
        "wasi:sockets/tcp" => Request::Connect,
        "wasi:sockets/ip-name-lookup" => Request::LookUp,
        "wasi:sockets/udp" => Request::Datagrams,
        "wasi:cli/stdin" => Request::Config,
        "wasi:cli/environment" => Request::Arguments,
        "wasi:filesystem/preopens" => Request::Files,
        _ => return None,
    })
}

/// Returns the initial size of all memories in the file, in bytes, including those of modules in a
/// component.
pub(super) fn initial_memory(bytes: &[u8]) -> u64 {
    let mut total = 0u64;
    // An earlier reader has found no error in the file.
    for payload in Parser::new(0).parse_all(bytes).map_while(Result::ok) {
        if let Payload::MemorySection(memories) = payload {
            for memory in memories.into_iter().map_while(Result::ok) {
                let page = 1u64 << memory.page_size_log2.unwrap_or(16);
                total = total.saturating_add(memory.initial.saturating_mul(page));
            }
        }
    }
    total
}
