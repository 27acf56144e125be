//! The command `watm`, run as a program.

mod command;
mod documents;
mod replay;
mod serve;
