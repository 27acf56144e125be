//! Checks a WATER module before it is compiled. `inspect` calls it.

use super::inspect::{ModuleInfo, shown};
use super::outline::{Import, Item, Outline};
use crate::Role;
use crate::water_abi::{Abi, ENV, PREVIEW1, PREVIEW1_FUNCTIONS};

/// Fills in the roles of a module, and the reasons why it cannot run.
///
/// No import is required: a module may do everything by WASI.
pub fn check(outline: &Outline, info: &mut ModuleInfo) {
    let Some(abi) = Abi::of(info.kind) else {
        return;
    };
    let problems = &mut info.problems;
    match outline.export("memory") {
        Some(Item::Memory) => {}
        Some(_) => problems.push("exports \"memory\", which is not a memory".to_owned()),
        None => problems.push("does not export its memory as memory".to_owned()),
    }
    for (name, kind) in abi.required() {
        match outline.export(name) {
            None => problems.push(format!("does not export {name}, of type {kind}")),
            Some(item) => problems.extend(wrong_type("exports", name, item, kind)),
        }
    }
    for (role, name, kind) in abi.optional() {
        if let Some(item) = outline.export(name) {
            problems.extend(wrong_type("exports", name, item, kind));
            info.roles.push(role);
        }
    }
    if info.roles.is_empty() {
        let names: Vec<&str> = Role::ALL
            .iter()
            .filter_map(|role| abi.function(*role))
            .collect();
        problems.push(format!(
            "has no role: it exports none of {}",
            names.join(", ")
        ));
    }
    for import in &outline.imports {
        problems.extend(check_import(import, info.kind.to_string().as_str(), abi));
    }
}

fn check_import(import: &Import, version: &str, abi: &Abi) -> Option<String> {
    let full_name = shown(&import.full_name());
    let (known, whose) = match import.module.as_deref() {
        Some(ENV) => (abi.imports(), "the host of a"),
        Some(PREVIEW1) => (PREVIEW1_FUNCTIONS, "WASI preview 1 of a"),
        _ => {
            return Some(format!(
                "imports {full_name}, which this host does not provide; a {version} can import \
                 {ENV} and {PREVIEW1}"
            ));
        }
    };
    match known.iter().find(|(name, _)| *name == import.name) {
        Some((_, kind)) => wrong_type("imports", &full_name, &import.kind, kind),
        None if import.module.as_deref() == Some(ENV) => {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            Some(format!(
                "imports {full_name}, which {whose} {version} does not have; it has {}",
                names.join(", ")
            ))
        }
        None => Some(format!(
            "imports {full_name}, which {whose} {version} does not have"
        )),
    }
}

fn wrong_type(verb: &str, name: &str, item: &Item, expected: &str) -> Option<String> {
    match item {
        Item::Function(kind) if kind == expected => None,
        Item::Function(kind) => Some(format!("{verb} {name} as {kind}; must be {expected}")),
        Item::Memory | Item::Other => Some(format!(
            "{verb} {name}, which is not a function; must be a function of type {expected}"
        )),
    }
}
