//! The dialers that were used last, so that connections alike share one: a component has a
//! thread for each dialer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use watm_runtime::{Dialer, Error, FixedDialer, Module};

use crate::options::Options;

/// Dialers that are kept. More than programs have different ways to dial; what has an open
/// connection lives on when it is not kept any more.
const KEPT: usize = 16;

/// How a connection is made.
#[derive(Clone)]
pub(crate) enum Way {
    Named(Dialer),
    Fixed(FixedDialer),
}

/// The dialer for this module and these options.
pub(crate) fn get(module: &Module, options: Options, fixed: bool) -> Result<Way, Error> {
    let mut kept = kept();
    let sha256 = &module.info().sha256;
    let known = kept
        .iter()
        .position(|one| one.sha256 == *sha256 && one.fixed == fixed && one.options == options);
    let one = match known {
        Some(index) => kept.remove(index),
        None => Kept {
            way: match fixed {
                false => Way::Named(options.apply(Dialer::builder(module))?.build()?),
                true => Way::Fixed(options.apply(FixedDialer::builder(module))?.build()?),
            },
            sha256: sha256.clone(),
            fixed,
            options,
        },
    };
    let way = one.way.clone();
    if kept.len() == KEPT {
        kept.remove(0);
    }
    kept.push(one);
    Ok(way)
}

/// Keep none any more. For the end of the process.
pub(crate) fn forget() {
    kept().clear();
}

struct Kept {
    sha256: String,
    fixed: bool,
    options: Options,
    way: Way,
}

/// The one that was used last is the last.
static KEPT_DIALERS: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

fn kept() -> MutexGuard<'static, Vec<Kept>> {
    KEPT_DIALERS.lock().unwrap_or_else(PoisonError::into_inner)
}
