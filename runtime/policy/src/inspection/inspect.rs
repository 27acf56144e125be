//! Inspecting a module: its kind, its imports and its problems, without compiling it. `Module`
//! calls it before it compiles, and `watm inspect` shows the result.

use ring::digest;
use semver::Version;
use watm_types::hex;

use super::about::About;
use super::outline::{Outline, outline};
use super::{MAX_MODULE_BYTES, program, water};
use crate::{Error, ModuleKind, Role};

/// The package that this host implements, and its version.
pub const PACKAGE: &str = "watm:transport";
/// The version of the package that this host implements.
pub const VERSION: &str = "0.2.0";
/// The last version before with another second number, whose modules this host runs too.
pub const BEFORE: &str = "0.1.2";

/// The interfaces that a module may import beside that package: those that a language's standard
/// library needs for randomness and the time of day.
const WASI: [&str; 2] = ["wasi:random/random", "wasi:clocks/wall-clock"];

/// The facts about a module, found without compiling or running it.
#[derive(Debug, Clone)]
pub struct ModuleInfo {
    /// The kind of the file.
    pub kind: ModuleKind,
    /// The world it was built for, for a component of this host's package and for a program.
    pub world: Option<String>,
    /// The names of its imports, sorted.
    pub imports: Vec<String>,
    /// The names of its exports, sorted.
    pub exports: Vec<String>,
    /// The size in bytes.
    pub size: usize,
    /// The SHA-256 of all its bytes, in hexadecimal.
    pub sha256: String,
    /// The roles of a WATER module or a program, in the order of [`Role::ALL`].
    pub roles: Vec<Role>,
    /// Its description of itself, if it has one in a format that this host knows.
    pub about: Option<About>,
    /// True if only one instance of it may serve, because no instance may accept what another has
    /// already seen, such as a repeated request.
    pub alone: bool,
    /// True for a WATER module whose connections name their clients, which it cannot pass on. The
    /// client of its flows is the connecting host, such as a proxy.
    pub names_clients: bool,
    /// The reasons why this host does not run it, each on a line of its own. Empty if it does.
    pub problems: Vec<String>,
}

/// Inspects a module without compiling or running it. Fails if the bytes are not WebAssembly.
pub fn inspect(bytes: &[u8]) -> Result<ModuleInfo, Error> {
    examine(bytes).map_err(|reason| Error::Module {
        module: "module".to_owned(),
        reason,
    })
}

/// Returns the SHA-256 of a file.
pub fn sha256(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

/// Inspects a module as [`inspect`], and fails with the reason in words.
pub fn examine(bytes: &[u8]) -> Result<ModuleInfo, String> {
    check_header(bytes)?;
    let outline = outline(bytes)?;
    let kind = outline.kind();
    let exports = outline.export_names();
    let world = exports
        .iter()
        .find_map(|name| name.strip_prefix("watm:transport/endpoint@"))
        .map(|version| format!("{PACKAGE}/module@{version}"));
    let mut info = ModuleInfo {
        kind,
        world,
        imports: outline.import_names(),
        exports,
        size: bytes.len(),
        sha256: hex::encode(sha256(bytes).as_ref()),
        roles: Vec::new(),
        about: None,
        alone: outline.alone,
        names_clients: outline.names_clients,
        problems: Vec::new(),
    };
    match outline.about.clone().transpose() {
        Ok(about) => info.about = about.flatten(),
        Err(problem) => info.problems.push(problem),
    }
    info.alone |= info.about.as_ref().is_some_and(|about| about.alone);
    check(&outline, &mut info);
    Ok(info)
}

/// Fails with the reasons if this host does not run such a module.
pub fn check_runnable(info: &ModuleInfo) -> Result<(), String> {
    /// The most problems that are shown: the rest is not worth reading before these are fixed.
    const SHOWN: usize = 3;
    if info.problems.is_empty() {
        return Ok(());
    }
    let first = &info.problems[..info.problems.len().min(SHOWN)];
    let mut reason = first.join("; ");
    if info.problems.len() > SHOWN {
        reason += &format!("; and {} more", info.problems.len() - SHOWN);
    }
    Err(reason)
}

fn check(outline: &Outline, info: &mut ModuleInfo) {
    match info.kind {
        ModuleKind::Component => info.problems.extend(check_component(info).err()),
        ModuleKind::Program => program::check(info),
        ModuleKind::WaterV0 | ModuleKind::WaterV1 => water::check(outline, info),
        ModuleKind::WaterV1Final => info.problems.push(
            "a WATER module of the v1-final draft (it exports watm_userpipe_v1), which no runtime \
             supports; build it against v1 as released (watm_init_v1)"
                .to_owned(),
        ),
        ModuleKind::WaterV1Preview => info.problems.push(
            "a WATER module of v1_preview (it exports _water_v1), which only water-rs runs; \
             build it against v1 (watm_init_v1)"
                .to_owned(),
        ),
        ModuleKind::CoreModule => info.problems.push(format!(
            "a core module; this host runs components for {PACKAGE}@{VERSION} \
             (wrap it with watm-componentize) and WATER modules (it exports neither \
             watm_init_v1 nor _water_init)"
        )),
    }
}

fn check_component(info: &ModuleInfo) -> Result<(), String> {
    for import in &info.imports {
        check_import(import)?;
    }
    let mut endpoints = info
        .exports
        .iter()
        .filter_map(|name| name.strip_prefix("watm:transport/endpoint@"));
    match endpoints.next() {
        Some(version) if compatible(version) => Ok(()),
        Some(version) => Err(other_version(version)),
        None => Err(format!(
            "does not export {PACKAGE}/endpoint@{VERSION}, so it is not a transport (or the file \
             is truncated)"
        )),
    }
}

fn check_import(import: &str) -> Result<(), String> {
    let (name, version) = import.split_once('@').unwrap_or((import, ""));
    if let Some(interface) = name.strip_prefix("watm:transport/") {
        if !compatible(version) {
            return Err(other_version(version));
        }
        return match interface {
            "types" | "sockets" | "flows" | "generations" | "names" | "crypto" | "signing"
            | "log" | "capture" | "packets" | "pacing" => Ok(()),
            _ => Err(format!(
                "imports {}, which {PACKAGE}@{VERSION} does not have",
                shown(import)
            )),
        };
    }
    if WASI.contains(&name) && same_minor(version, "0.2.0") {
        return Ok(());
    }
    Err(format!(
        "imports {}, which this host does not provide; modules can import {PACKAGE}@{VERSION}, {} \
         and {} 0.2",
        shown(import),
        WASI[0],
        WASI[1]
    ))
}

/// Returns true for versions that one of this host's satisfies, by semantic versioning as in cargo
/// and the component model: they differ in the last number.
fn compatible(version: &str) -> bool {
    [VERSION, BEFORE].iter().any(|own| same_minor(version, own))
}

pub(super) fn same_minor(version: &str, of: &str) -> bool {
    match (Version::parse(version), Version::parse(of)) {
        (Ok(version), Ok(of)) => {
            version.pre.is_empty() && (version.major, version.minor) == (of.major, of.minor)
        }
        _ => false,
    }
}

fn other_version(version: &str) -> String {
    format!(
        "built for {PACKAGE}@{}; this host implements {PACKAGE}@{VERSION} and {BEFORE}",
        shown(version)
    )
}

/// Returns a name from a file, or its reader's message about it, for an error: on one line, and cut
/// to the length of a name.
pub fn shown(name: &str) -> String {
    const LONGEST: usize = 100;
    name.chars()
        .take(LONGEST)
        .map(|character| match character.is_control() {
            true => char::REPLACEMENT_CHARACTER,
            false => character,
        })
        .collect()
}

/// Checks that a file begins as WebAssembly does, and names what it is instead.
pub fn check_header(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("the file is empty; a .wasm file is expected".to_owned());
    }
    if bytes.len() > MAX_MODULE_BYTES {
        return Err(format!(
            "larger than {} MiB, the limit for modules; is this the right file?",
            MAX_MODULE_BYTES >> 20
        ));
    }
    if bytes.starts_with(b"\0asm") {
        return Ok(());
    }
    let text = bytes.trim_ascii_start();
    if text.starts_with(b"(module") || text.starts_with(b"(component") || text.starts_with(b";;") {
        return Err("WebAssembly text; translate it to binary first (wasm-tools parse)".to_owned());
    }
    if b"\0asm".starts_with(bytes) {
        return Err("cut short within the first 4 bytes".to_owned());
    }
    Err("not WebAssembly; a .wasm file is expected".to_owned())
}

/// Returns a library's message about a module, for an error.
pub fn one_line(text: &str) -> String {
    /// The most characters: a sentence with a few names in it.
    const LONGEST: usize = 500;
    watm_types::one_line(text, LONGEST)
}
