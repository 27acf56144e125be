//! Seals against the project's list of attacks, whose numbers the tests use.

mod attacks;
mod clock;
mod damage;
mod delegation;
mod ed25519;
mod files;
mod keyfile;
mod notes;
mod parsing;
mod power;
mod roots;
mod sealing;
mod set;
mod state;
mod strict;
mod support;
