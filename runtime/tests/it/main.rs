//! The runtime with real modules, real sockets and real time.

mod attacks;
mod cache;
mod crypto;
mod datagrams;
mod dial;
mod example;
mod failures;
mod files;
mod grants;
mod hogs;
mod host_kit;
mod interpreter;
mod joins;
mod logs;
mod names;
mod overload;
#[cfg(feature = "programs")]
mod program_servers;
#[cfg(feature = "programs")]
mod programs;
mod recording;
mod seals;
mod stream_modules;
mod streams;
mod swap;
mod water;
mod water_abi;
mod water_faults;
