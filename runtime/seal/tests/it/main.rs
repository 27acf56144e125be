//! What a seal keeps out, and what it lets through. The numbers are those of the project's list of
//! attacks.

mod attacks;
mod clock;
mod damage;
mod delegation;
mod ed25519;
mod keyfile;
mod notes;
mod parsing;
mod power;
mod roots;
mod sealing;
mod set;
mod strict;
mod support;
