use ring::digest;
use semver::Version;
use wasmparser::{Encoding, Parser, Payload};

use super::{MAX_MODULE_BYTES, hex};
use crate::Error;

/// The package that this host implements, and its version.
const PACKAGE: &str = "watm:transport";
const VERSION: &str = "0.1.0";

/// What a module may import beside that package: what a language's standard library needs
/// for randomness and the time of day.
const WASI: [&str; 2] = ["wasi:random/random", "wasi:clocks/wall-clock"];

/// What a module is, found without compiling or running it.
#[derive(Debug, Clone)]
pub struct ModuleInfo {
    /// Which kind of file.
    pub kind: ModuleKind,
    /// For a component of this host's package: the world it was built for.
    pub world: Option<String>,
    /// What it asks to be given, by name, sorted.
    pub imports: Vec<String>,
    /// What it offers, by name, sorted.
    pub exports: Vec<String>,
    /// Bytes.
    pub size: usize,
    /// Of all its bytes, in hexadecimal.
    pub sha256: String,
}

/// Which kind of file a module is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleKind {
    /// A component; the kind this host runs.
    Component,
    /// A core module of WATER's first interface (`_water_…`).
    WaterV0,
    /// A core module of WATER's second interface (`watm_…_v1`).
    WaterV1,
    /// Any other core module.
    CoreModule,
}

/// Look at a module without compiling or running it. Fails if the bytes are no
/// WebAssembly.
pub fn inspect(bytes: &[u8]) -> Result<ModuleInfo, Error> {
    examine(bytes).map_err(|reason| Error::Module {
        module: "module".to_owned(),
        reason,
    })
}

pub(super) fn sha256(bytes: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, bytes)
}

/// As [`inspect`], with the reason in words.
pub(super) fn examine(bytes: &[u8]) -> Result<ModuleInfo, String> {
    check_header(bytes)?;
    let outline = outline(bytes)?;
    let world = outline
        .exports
        .iter()
        .find_map(|name| name.strip_prefix("watm:transport/endpoint@"))
        .map(|version| format!("{PACKAGE}/module@{version}"));
    Ok(ModuleInfo {
        kind: outline.kind,
        world,
        imports: outline.imports,
        exports: outline.exports,
        size: bytes.len(),
        sha256: hex(sha256(bytes).as_ref()),
    })
}

/// Whether this host runs such a module, and if not, why.
pub(super) fn check_runnable(info: &ModuleInfo) -> Result<(), String> {
    match info.kind {
        ModuleKind::Component => {}
        ModuleKind::WaterV0 | ModuleKind::WaterV1 => {
            return Err(format!(
                "a WATER module (core module), which this host does not run; \
                 it runs components for {PACKAGE}@{VERSION}"
            ));
        }
        ModuleKind::CoreModule => {
            return Err(format!(
                "a core module; this host runs components for {PACKAGE}@{VERSION} \
                 (wrap it with watm-componentize)"
            ));
        }
    }
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
            "does not export {PACKAGE}/endpoint@{VERSION}, so it is no transport \
             (or the file was cut short)"
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
            "types" | "sockets" | "flows" | "crypto" | "log" => Ok(()),
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
        "imports {}, which is not given to modules; they get {PACKAGE}@{VERSION}, {} and {} 0.2",
        shown(import),
        WASI[0],
        WASI[1]
    ))
}

/// Versions that this host's satisfies, as cargo and the component model read semantic
/// versions: those that differ in the last number.
fn compatible(version: &str) -> bool {
    same_minor(version, VERSION)
}

fn same_minor(version: &str, of: &str) -> bool {
    match (Version::parse(version), Version::parse(of)) {
        (Ok(version), Ok(of)) => {
            version.pre.is_empty() && (version.major, version.minor) == (of.major, of.minor)
        }
        _ => false,
    }
}

fn other_version(version: &str) -> String {
    format!(
        "built for {PACKAGE}@{}; this host implements {PACKAGE}@{VERSION}",
        shown(version)
    )
}

/// A name from a file, or what its reader says of it, for an error: on one line, and no
/// longer than names are.
fn shown(name: &str) -> String {
    const LONGEST: usize = 100;
    name.chars()
        .take(LONGEST)
        .map(|character| match character.is_control() {
            true => char::REPLACEMENT_CHARACTER,
            false => character,
        })
        .collect()
}

fn check_header(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("the file is empty; a .wasm component is expected".to_owned());
    }
    if bytes.len() > MAX_MODULE_BYTES {
        return Err(format!(
            "larger than {} MiB, which no transport is; is this the right file?",
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
    Err("not WebAssembly; a .wasm component is expected".to_owned())
}

struct Outline {
    kind: ModuleKind,
    imports: Vec<String>,
    exports: Vec<String>,
}

/// Read the outermost imports and exports; what is nested is only skimmed.
fn outline(bytes: &[u8]) -> Result<Outline, String> {
    let damaged = |error: wasmparser::BinaryReaderError| {
        format!(
            "cut short or damaged at byte {}: {}",
            error.offset(),
            shown(error.message())
        )
    };
    let mut depth = 0usize;
    let mut component = false;
    let mut imports = Vec::new();
    let mut exports = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(damaged)? {
            Payload::Version { encoding, .. } if depth == 0 => {
                component = encoding == Encoding::Component;
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            Payload::ComponentImportSection(section) => {
                for import in section {
                    imports.push(import.map_err(damaged)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    exports.push(export.map_err(damaged)?.name.name.to_owned());
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(damaged)?;
                    imports.push(format!("{}.{}", import.module, import.name));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    exports.push(export.map_err(damaged)?.name.to_owned());
                }
            }
            _ => {}
        }
    }
    imports.sort();
    exports.sort();
    let exports_prefixed = |prefix: &str| exports.iter().any(|name| name.starts_with(prefix));
    let kind = if component {
        ModuleKind::Component
    } else if exports_prefixed("_water_") {
        ModuleKind::WaterV0
    } else if exports
        .iter()
        .any(|name| name.starts_with("watm_") && name.ends_with("_v1"))
    {
        ModuleKind::WaterV1
    } else {
        ModuleKind::CoreModule
    };
    Ok(Outline {
        kind,
        imports,
        exports,
    })
}
