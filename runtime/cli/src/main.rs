//! The program `watm`. Cargo builds it, and `lib.rs` has its commands.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// The allocator, which returns memory that modules made the host use. glibc's allocator holds two
/// to five times as much, in pieces of all sizes: see `tests/hostile/README.md`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    watm_cli::main()
}
