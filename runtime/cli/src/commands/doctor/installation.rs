//! Checks of the installation, for `watm doctor` without an upstream. They need no privilege, and
//! run on every system.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use etcetera::BaseStrategy;
use watm_runtime::{CacheDir, Engine, EngineConfig, Execution, private};

use super::{Check, checks};
use crate::commands::tunnel;
use crate::loading::LoadingOptions;

/// The time limit for a datagram to this machine itself.
const ARRIVAL: Duration = Duration::from_secs(1);

/// Checks what every command needs.
pub(super) fn examine(loading: &LoadingOptions) -> Vec<Check> {
    vec![
        check("program", Ok(program())),
        check("engine", engine(loading)),
        check("module", module(loading)),
        check("state", state(loading)),
        check("cache", cache()),
        check("datagrams", datagrams()),
        optional("exec", exec()),
        checks::descriptors(),
    ]
}

/// A failed check: the reason, and how to correct it.
struct Fault {
    reason: String,
    remedy: &'static str,
}

fn fault(reason: impl ToString, remedy: &'static str) -> Fault {
    Fault {
        reason: reason.to_string(),
        remedy,
    }
}

fn check(name: &'static str, found: Result<String, Fault>) -> Check {
    let ok = found.is_ok();
    let (found, run) = match found {
        Ok(found) => (found, Vec::new()),
        Err(Fault { reason, remedy }) => (reason, vec![format!("# {remedy}")]),
    };
    Check {
        name,
        upstream: None,
        ok,
        found,
        run,
    }
}

/// The result of a check of something that few users need: it fails without consequences.
fn optional(name: &'static str, found: Result<String, String>) -> Check {
    let found = found.unwrap_or_else(|reason| format!("not possible here: {reason}"));
    check(name, Ok(found))
}

/// Makes what a program of `tunnel --exec` needs, without one.
fn exec() -> Result<String, String> {
    let tried = tunnel::try_exec();
    tried.map(|()| "programs can run in a network of their own".to_owned())
}

fn program() -> String {
    format!("watm {} for {OS} on {ARCH}", env!("CARGO_PKG_VERSION"))
}

fn engine(loading: &LoadingOptions) -> Result<String, Fault> {
    let remedy = "unset WATM_ENGINE, or set it to native or pulley";
    let engine = loading.engine().map_err(|error| fault(error, remedy))?;
    Ok(match engine.execution() {
        Execution::Native => "modules run as machine code".to_owned(),
        Execution::Interpreted => {
            "modules run in an interpreter, many times slower than as machine code".to_owned()
        }
    })
}

/// Loads the module of `watm tunnel`.
fn module(loading: &LoadingOptions) -> Result<String, Fault> {
    let remedy = "install the modules of this release, or name their folder in WATM_MODULES";
    let file = tunnel::find_module(None, tunnel::WIREGUARD, "--module")
        .map_err(|error| fault(error, remedy))?;
    let begin = Instant::now();
    let remedy = "trust the root of this module with `watm trust ROOT`";
    let loaded = loading.load_if_approved(&file);
    let loaded = loaded.map_err(|error| fault(error, remedy))?;
    let took = begin.elapsed().as_secs_f32();
    let seal = match loaded.as_ref().map(|module| module.seal()) {
        None => {
            "whose seal is valid, and which asks for your approval at its first start".to_owned()
        }
        Some(None) => format!("without a seal, loaded in {took:.1} s"),
        Some(Some(proof)) => format!("sealed as {}, loaded in {took:.1} s", proof.manifest.name),
    };
    Ok(format!("{}, {seal}", file.display()))
}

/// Reads the state, and writes a file beside it.
fn state(loading: &LoadingOptions) -> Result<String, Fault> {
    let remedy = "make the folder of the state writable for this user alone";
    let store = loading.state().open();
    let store = store.map_err(|error| fault(error, remedy))?;
    store.load().map_err(|error| fault(error, remedy))?;
    let shown = store.path().display();
    if let Some(open) = private::writable_by_everybody(store.path()) {
        let reason = format!("{} is world-writable", open.display());
        return Err(fault(reason, remedy));
    }
    let folder = store.path().parent().unwrap_or(Path::new("."));
    let tried = try_to_write(folder);
    tried.map_err(|error| fault(format!("{shown} cannot be written: {error}"), remedy))?;
    Ok(format!("{shown} can be written"))
}

fn try_to_write(folder: &Path) -> io::Result<()> {
    private::create_directory(folder)?;
    let file = folder.join(format!("doctor-{}", std::process::id()));
    fs::write(&file, b"")?;
    fs::remove_file(&file)
}

fn cache() -> Result<String, Fault> {
    let remedy = "make the folder, private to this user; without it each start compiles the module";
    let strategy = etcetera::choose_base_strategy().map_err(|error| fault(error, remedy))?;
    let folder = strategy.cache_dir().join("watm");
    let shown = folder.display().to_string();
    let config = EngineConfig {
        cache: CacheDir::Path(folder),
        ..EngineConfig::default()
    };
    Engine::new(config).map_err(|error| fault(error, remedy))?;
    Ok(format!("{shown} keeps compiled modules"))
}

/// Sends a datagram to this machine over each version of IP. One of them is enough.
fn datagrams() -> Result<String, Fault> {
    let v4 = send_and_receive(Ipv4Addr::LOCALHOST.into());
    let v6 = send_and_receive(Ipv6Addr::LOCALHOST.into());
    match (v4, v6) {
        (Ok(()), Ok(())) => Ok("arrive over IPv4 and IPv6".to_owned()),
        (Ok(()), Err(error)) => Ok(format!("arrive over IPv4, not over IPv6: {error}")),
        (Err(error), Ok(())) => Ok(format!("arrive over IPv6, not over IPv4: {error}")),
        (Err(error), Err(_)) => Err(fault(error, "allow this program UDP in the firewall")),
    }
}

fn send_and_receive(address: IpAddr) -> io::Result<()> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_read_timeout(Some(ARRIVAL))?;
    socket.send_to(b"watm", socket.local_addr()?)?;
    socket.recv(&mut [0; 4]).map(drop)
}
