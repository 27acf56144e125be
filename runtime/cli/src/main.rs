//! The program `watm`. Cargo builds it, and `lib.rs` has its commands.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: watm_cli::Allocator = watm_cli::ALLOCATOR;

fn main() -> ExitCode {
    watm_cli::main()
}
