//! The command `watm`, run as a program.

mod command;
mod replay;
mod serve;
