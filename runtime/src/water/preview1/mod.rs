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

use super::errno::Errno;
use super::state::State;

pub(super) use system::Exit;

pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

/// Every function, with its type.
pub(crate) const FUNCTIONS: &[(&str, &str)] = &[
    ("args_get", "(i32,i32)->i32"),
    ("args_sizes_get", "(i32,i32)->i32"),
    ("clock_res_get", "(i32,i32)->i32"),
    ("clock_time_get", "(i32,i64,i32)->i32"),
    ("environ_get", "(i32,i32)->i32"),
    ("environ_sizes_get", "(i32,i32)->i32"),
    ("fd_advise", "(i32,i64,i64,i32)->i32"),
    ("fd_allocate", "(i32,i64,i64)->i32"),
    ("fd_close", "(i32)->i32"),
    ("fd_datasync", "(i32)->i32"),
    ("fd_fdstat_get", "(i32,i32)->i32"),
    ("fd_fdstat_set_flags", "(i32,i32)->i32"),
    ("fd_fdstat_set_rights", "(i32,i64,i64)->i32"),
    ("fd_filestat_get", "(i32,i32)->i32"),
    ("fd_filestat_set_size", "(i32,i64)->i32"),
    ("fd_filestat_set_times", "(i32,i64,i64,i32)->i32"),
    ("fd_pread", "(i32,i32,i32,i64,i32)->i32"),
    ("fd_prestat_dir_name", "(i32,i32,i32)->i32"),
    ("fd_prestat_get", "(i32,i32)->i32"),
    ("fd_pwrite", "(i32,i32,i32,i64,i32)->i32"),
    ("fd_read", "(i32,i32,i32,i32)->i32"),
    ("fd_readdir", "(i32,i32,i32,i64,i32)->i32"),
    ("fd_renumber", "(i32,i32)->i32"),
    ("fd_seek", "(i32,i64,i32,i32)->i32"),
    ("fd_sync", "(i32)->i32"),
    ("fd_tell", "(i32,i32)->i32"),
    ("fd_write", "(i32,i32,i32,i32)->i32"),
    ("path_create_directory", "(i32,i32,i32)->i32"),
    ("path_filestat_get", "(i32,i32,i32,i32,i32)->i32"),
    (
        "path_filestat_set_times",
        "(i32,i32,i32,i32,i64,i64,i32)->i32",
    ),
    ("path_link", "(i32,i32,i32,i32,i32,i32,i32)->i32"),
    ("path_open", "(i32,i32,i32,i32,i32,i64,i64,i32,i32)->i32"),
    ("path_readlink", "(i32,i32,i32,i32,i32,i32)->i32"),
    ("path_remove_directory", "(i32,i32,i32)->i32"),
    ("path_rename", "(i32,i32,i32,i32,i32,i32)->i32"),
    ("path_symlink", "(i32,i32,i32,i32,i32)->i32"),
    ("path_unlink_file", "(i32,i32,i32)->i32"),
    ("poll_oneoff", "(i32,i32,i32,i32)->i32"),
    ("proc_exit", "(i32)->()"),
    ("proc_raise", "(i32)->i32"),
    ("random_get", "(i32,i32)->i32"),
    ("sched_yield", "()->i32"),
    ("sock_accept", "(i32,i32,i32)->i32"),
    ("sock_recv", "(i32,i32,i32,i32,i32,i32)->i32"),
    ("sock_send", "(i32,i32,i32,i32,i32)->i32"),
    ("sock_shutdown", "(i32,i32)->i32"),
];

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
        let kind = FUNCTIONS
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, kind)| *kind);
        let result = Val::I32(i32::from(errno.0));
        let kind = FuncType::new(linker.engine(), parameters(kind), [ValType::I32]);
        linker.func_new(MODULE, name, kind, move |_, _, results| {
            results[0] = result;
            Ok(())
        })?;
    }
    Ok(())
}

/// Parses the parameters of a type written as in [`FUNCTIONS`].
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
        for (name, kind) in FUNCTIONS {
            let params: Vec<String> = parameters(kind).iter().map(ToString::to_string).collect();
            let result = if kind.ends_with("i32") {
                "(result i32)"
            } else {
                ""
            };
            text += &format!(
                "(import \"{MODULE}\" \"{name}\" (func (param {}) {result}))\n",
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
        assert_eq!(FUNCTIONS.len(), 46);
    }
}
