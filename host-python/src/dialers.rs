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

/// The dialer for this module and these options, if there is one.
pub(crate) fn find(module: &Module, options: &Options, fixed: bool) -> Result<Option<Way>, Error> {
    dialers().find(&module.info().sha256, options, fixed)
}

/// Make it, unless somebody was faster. A component is started, which takes its time.
pub(crate) fn make(module: &Module, options: Options, fixed: bool) -> Result<Way, Error> {
    let way = match fixed {
        false => Way::Named(options.apply(Dialer::builder(module))?.build()?),
        true => Way::Fixed(options.apply(FixedDialer::builder(module))?.build()?),
    };
    let sha256 = &module.info().sha256;
    let mut dialers = dialers();
    if let Some(known) = dialers.find(sha256, &options, fixed)? {
        return Ok(known);
    }
    if dialers.kept.len() == KEPT {
        dialers.kept.remove(0);
    }
    dialers.kept.push(Kept {
        sha256: sha256.clone(),
        fixed,
        options,
        way: way.clone(),
    });
    Ok(way)
}

/// Keep none any more, and make none. For the end of the process.
pub(crate) fn forget() {
    let mut dialers = dialers();
    dialers.kept.clear();
    dialers.ended = true;
}

/// The error of a dial after that.
pub(crate) fn ended() -> Error {
    Error::System("the interpreter ends".to_owned())
}

struct Kept {
    sha256: String,
    fixed: bool,
    options: Options,
    way: Way,
}

struct Dialers {
    /// The one that was used last is the last.
    kept: Vec<Kept>,
    ended: bool,
}

impl Dialers {
    fn find(&mut self, sha256: &str, options: &Options, fixed: bool) -> Result<Option<Way>, Error> {
        if self.ended {
            return Err(ended());
        }
        let mut kept = self.kept.iter();
        let known = kept
            .position(|one| one.sha256 == sha256 && one.fixed == fixed && one.options == *options);
        Ok(known.map(|index| {
            let one = self.kept.remove(index);
            let way = one.way.clone();
            self.kept.push(one);
            way
        }))
    }
}

static DIALERS: Mutex<Dialers> = Mutex::new(Dialers {
    kept: Vec::new(),
    ended: false,
});

fn dialers() -> MutexGuard<'static, Dialers> {
    DIALERS.lock().unwrap_or_else(PoisonError::into_inner)
}
