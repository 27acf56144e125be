//! A bound on the compile cost of a file. `Module` checks it before it calls the compiler.
//!
//! A compiler's time and memory grow with the size of a file, and much faster with the shape of a
//! single function: a kilobyte can take a minute. A compilation cannot be aborted, so costly files
//! are refused beforehand, by counting what makes them costly. A refusal names the function or
//! section, the count, and the bound.
//!
//! # How costs are counted
//!
//! The unit of `MAX_WORK` is about a microsecond of one core, by measurements of Cranelift on
//! files that are costly in only one way, each from small to large. A weight is above the highest
//! cost that was seen; ordinary code takes about half of the counted time. If the cost of a
//! function is more than linear (values merged by loops, arguments of calls, indirect calls), it
//! has a bound of its own, below which it is nearly linear. The counts are:
//!
//! - of a function: its instructions, its blocks times the values that live through
//!   them, the values that its branches merge, and the arguments of its calls;
//! - of a module: its functions, its signatures, the code that starts it, its images of
//!   memories and tables;
//! - of a component: its instances, and its functions with everything in their types.
//!
//! Names of functions cost nothing to compile. The engine copies them when a module traps, for each
//! call on the stack, so that their length has a bound too.
//!
//! The bounds are two to five times what the largest known transports need: TLS with its ciphers,
//! and WireGuard.
//!
//! # Alternative: a process with limits of its own
//!
//! A child with `RLIMIT_AS` and `RLIMIT_CPU` would bound every cost, even one that is unknown here.
//! It is cheap: `watm` starts in 10 ms, reads compiled code back from the cache in less, and
//! compiles TLS, the largest module of the project, in 1.6 s and 105 MiB, with `RLIMIT_AS` at 512
//! MiB. These disadvantages rule it out:
//!
//! - A Python extension has no program to start: the interpreter may be frozen, and a fork of a
//!   process with threads cannot call the compiler.
//! - Windows and macOS have no such limits.
//! - Time limits refuse a valid module on a slow machine, and the user is the first to see it. A
//!   count is the same everywhere, so the signer of a module sees it.
//! - The error of a killed child cannot name the function.

mod component;
mod function;
mod module;

use wasmparser::{CustomSectionReader, Encoding, KnownCustom, Name, Parser, Payload};

use component::Component;
use module::Module;

/// The most work, in microseconds of one core, about: it compiles within five seconds on two cores.
const MAX_WORK: u64 = 12_000_000;

/// The most bytes of the name of a function or module: several times those of the longest that
/// compilers make.
const MAX_NAME: usize = 64 << 10;

/// The work counted so far, up to a bound.
#[derive(Default)]
struct Work {
    total: u64,
    /// The function with the most work, and its work.
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
                "takes the compiler more than {MAX_WORK} steps{costliest}, the limit of this host"
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
    Err(format!("{what}: {found}; the limit of this host is {most}"))
}

/// Checks the names that a module gives itself and its functions. `outline` calls it for each file,
/// compiled before or not.
pub(super) fn check_names(section: &CustomSectionReader<'_>) -> Result<(), String> {
    let check = |name: &str, whose: &dyn Fn() -> String| match name.len() <= MAX_NAME {
        true => Ok(()),
        false => at_most(&whose(), name.len() as u64, MAX_NAME as u64),
    };
    let KnownCustom::Name(names) = section.as_known() else {
        return Ok(());
    };
    for names in names.into_iter().map_while(Result::ok) {
        match names {
            Name::Module { name, .. } => {
                check(name, &|| "bytes of the module's name".to_owned())?;
            }
            Name::Function(functions) => {
                for function in functions.into_iter().map_while(Result::ok) {
                    let index = function.index;
                    check(function.name, &|| {
                        format!("function {index}: bytes of its name")
                    })?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a file can be compiled within bounds. Reads the whole file once. The error names
/// what exceeds its bound. A damaged file is left for the compiler to refuse.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let mut work = Work::default();
    let mut component = Component::default();
    // The open modules and components, the innermost last. `None`: a component.
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
