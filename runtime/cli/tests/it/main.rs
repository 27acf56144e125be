//! The command `watm`, run as a program.

mod check;
mod command;
mod documents;
mod replay;
mod serve;
