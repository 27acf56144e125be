//! The native half of the Python package `mitmproxy_watm`: `watm-runtime` for event loops.
//!
//! Only Python's own threads run Python code or wait for the interpreter. A driver thread that
//! makes something ready wakes a `Signal`. The signal appends its key to a list, and the first key
//! in the list makes one descriptor readable. The event loop reads the whole list at once: one
//! wake-up a batch.

mod dial;
mod dialer;
mod dialers;
mod error;
mod flow;
mod keys;
mod launch;
mod limits;
mod logs;
mod module;
mod names;
mod options;
mod pattern;
mod relay;
mod server;
mod signals;
mod sync;
mod thread;
mod updates;
mod usage;
mod wake;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::dial::{Dial, dial};
    #[pymodule_export]
    use crate::dialer::Dialer;
    #[pymodule_export]
    use crate::error::ModuleError;
    #[pymodule_export]
    use crate::flow::Flow;
    #[pymodule_export]
    use crate::keys::{genkey, is_open_to_others, pubkey};
    #[pymodule_export]
    use crate::launch::{Launched, SocketTable, help_launch, launch, namespace_file};
    #[pymodule_export]
    use crate::logs::{set_log_level, take_logs};
    #[pymodule_export]
    use crate::module::{
        Capabilities, Module, Seal, claimed_name, describe, load, load_file, load_packaged,
    };
    #[pymodule_export]
    use crate::pattern::Pattern;
    #[pymodule_export]
    use crate::relay::{Relay, relay};
    #[pymodule_export]
    use crate::server::{ClientConfig, Generation, PeerStatus, Server, Status, start};
    #[pymodule_export]
    use crate::thread::finish_connections;
    #[pymodule_export]
    use crate::updates::{UpdateStatus, Updates};
    #[pymodule_export]
    use crate::usage::{Destination, Used};
    #[pymodule_export]
    use crate::wake::Wake;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::logs::install();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
