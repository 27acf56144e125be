//! WASI preview 1, over descriptors of the host's own making. `water` links it into every guest.
//!
//! Every function of the preview is present, so that whatever a language's standard library imports
//! is found. Functions without a meaning for a transport (changing files, sending signals) return
//! an error number. The specification of each call:
//! <https://github.com/WebAssembly/WASI/blob/wasi-0.1/preview1/docs.md>.

mod files;
mod io;
mod poll;
mod sockets;
mod system;

use wasmtime::{FuncType, Linker, Val, ValType};
use watm_policy::water_abi::{PREVIEW1, PREVIEW1_FUNCTIONS};

use super::errno::Errno;
use super::state::State;

pub(super) use system::Exit;

/// Functions that always fail, with their error.
const REFUSED: &[(&str, Errno)] = &[
    // The one directory has one file, which is read-only.
    ("fd_allocate", Errno::PERM),
    ("fd_filestat_set_size", Errno::PERM),
    ("fd_filestat_set_times", Errno::PERM),
    ("fd_pwrite", Errno::PERM),
    ("path_create_directory", Errno::PERM),
    ("path_filestat_set_times", Errno::PERM),
    ("path_link", Errno::PERM),
    ("path_remove_directory", Errno::PERM),
    ("path_rename", Errno::PERM),
    ("path_symlink", Errno::PERM),
    ("path_unlink_file", Errno::PERM),
    ("path_readlink", Errno::INVAL),
    ("fd_readdir", Errno::NOSYS),
    ("proc_raise", Errno::NOSYS),
    // Connections come through `env`.
    ("sock_accept", Errno::NOTSUP),
];

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    system::add_to_linker(linker)?;
    files::add_to_linker(linker)?;
    io::add_to_linker(linker)?;
    poll::add_to_linker(linker)?;
    sockets::add_to_linker(linker)?;
    for (name, errno) in REFUSED {
        let kind = PREVIEW1_FUNCTIONS
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, kind)| *kind);
        let result = Val::I32(i32::from(errno.0));
        let kind = FuncType::new(linker.engine(), parameters(kind), [ValType::I32]);
        linker.func_new(PREVIEW1, name, kind, move |_, _, results| {
            results[0] = result;
            Ok(())
        })?;
    }
    Ok(())
}

/// Parses the parameters of a type written as in [`PREVIEW1_FUNCTIONS`].
fn parameters(kind: &str) -> Vec<ValType> {
    let list = kind
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .map_or("", |(list, _)| list);
    list.split(',')
        .filter_map(|name| match name {
            "i32" => Some(ValType::I32),
            "i64" => Some(ValType::I64),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_there_with_its_type() {
        let engine = wasmtime::Engine::default();
        let mut linker = Linker::new(&engine);
        add_to_linker(&mut linker).expect("no name is taken twice");
        let mut text = String::from("(module (memory (export \"memory\") 1)\n");
        for (name, kind) in PREVIEW1_FUNCTIONS {
            let params: Vec<String> = parameters(kind).iter().map(ToString::to_string).collect();
            let result = if kind.ends_with("i32") {
                "(result i32)"
            } else {
                ""
            };
            text += &format!(
                "(import \"{PREVIEW1}\" \"{name}\" (func (param {}) {result}))\n",
                params.join(" ")
            );
        }
        // Imports come first in the text format.
        let (memory, imports) = text.split_once('\n').expect("two lines");
        let text = format!(
            "(module\n{imports}{})",
            memory.trim_start_matches("(module ")
        );
        let module =
            wasmtime::Module::new(&engine, wat::parse_str(text).expect("text")).expect("a module");
        linker.instantiate_pre(&module).expect("links");
        assert_eq!(PREVIEW1_FUNCTIONS.len(), 46);
    }
}
