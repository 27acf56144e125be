//! A bound on what a file may ask of the compiler.
//!
//! A compiler's time and memory grow with the size of a file, and with the shape of a single
//! function much faster: a kilobyte can take it a minute. No compilation can be given up half way,
//! so costly files are refused before, by a count of what makes them costly. A refusal names the
//! function or section, what was counted, and the bound.
//!
//! # How costs are counted
//!
//! The unit of [`MAX_WORK`] is about a microsecond of one core, by measurements of Cranelift on
//! files that are costly in one way only, each from small to large. A weight is above the highest
//! cost that was seen; ordinary code takes about half of what is counted. Where the cost of a
//! function is more than linear (values that loops merge, arguments of calls, indirect calls), the
//! function has a bound of its own, below which it is near enough to linear. Counted are:
//!
//! - of a [function](function): its instructions, its blocks times the values that live through
//!   them, the values that its branches merge, and the arguments of its calls;
//! - of a [module](Module): its functions, its signatures, what starts it, its images of memories
//!   and tables;
//! - of a [component]: its instances, and its functions with all that their types hold.
//!
//! The bounds are two to five times what the largest transports there are need: TLS with its
//! ciphers, and WireGuard.
//!
//! # Why not a process with limits of its own
//!
//! A child with `RLIMIT_AS` and `RLIMIT_CPU` would bound every cost, also one that is not known
//! here. It was left out for what it cannot do. A Python extension has no program to start: the
//! interpreter may be a frozen one, and a fork of a process with threads cannot call the compiler.
//! Windows and macOS have no such limits. Limits of time refuse a good module on a slow machine, or
//! on a busy one, and the user is the first to see it; a count is the same everywhere, so that
//! whoever seals a module sees it. And an error of a killed child cannot name the function.

mod component;
mod function;
mod module;

use wasmparser::{Encoding, Parser, Payload};

use component::Component;
use module::Module;

/// Microseconds of one core, about: what compiles within five seconds on two.
const MAX_WORK: u64 = 12_000_000;

/// What has been counted, up to a bound.
#[derive(Default)]
struct Work {
    total: u64,
    /// The function with the most, and how much.
    costliest: (u32, u64),
}

impl Work {
    fn add(&mut self, work: u64) -> Result<(), String> {
        self.total = self.total.saturating_add(work);
        if self.total > MAX_WORK {
            let costliest = match self.costliest {
                (_, 0) => String::new(),
                (index, most) => {
                    format!(", of which function {index}, the costliest, takes {most}")
                }
            };
            return Err(format!(
                "takes the compiler more than {MAX_WORK} steps{costliest}; this host compiles no \
                 more"
            ));
        }
        Ok(())
    }

    fn add_function(&mut self, index: u32, work: u64) -> Result<(), String> {
        if work > self.costliest.1 {
            self.costliest = (index, work);
        }
        self.add(work)
    }
}

/// Refuses `found` of something that is bounded by `most`.
fn at_most(what: &str, found: u64, most: u64) -> Result<(), String> {
    if found <= most {
        return Ok(());
    }
    Err(format!(
        "{what}: {found}; no transport has more than {most}, and this host compiles no more"
    ))
}

/// Checks that a file can be compiled within bounds. Reads the whole file once. The error says what
/// is too much. A damaged file is the compiler's to refuse.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let mut work = Work::default();
    let mut component = Component::default();
    // Those that are open, one within the other, the innermost last. `None`: a component.
    let mut open: Vec<Option<Module>> = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        if let Payload::Version { encoding, .. } = payload {
            open.push((encoding == Encoding::Module).then(Module::default));
        }
        if let Some(Some(module)) = open.last_mut() {
            module.add(&payload, &mut work)?;
        }
        if let Some(None) = open.first() {
            component.add(&payload, open.len(), &mut work)?;
        }
        if let Payload::End(_) = payload
            && let Some(Some(module)) = open.pop()
        {
            component.add_images(module.finish(&mut work)?)?;
        }
    }
    Ok(())
}
