//! Programs in networks of their own, whose packets a module gets. The package's `launch.py` starts
//! them.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use watm_launch::{Namespace, Plan};
use watm_runtime::PacketDevice;

/// A program that was launched. Killed when collected.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Launched {
    launched: Mutex<watm_launch::Launched>,
    mtu: u32,
}

/// Makes a device for a program that can use nothing else of the network, or in a namespace that
/// exists already, for its programs. `helper` is the command of a process with one thread that calls
/// `help_launch` with its last argument.
#[pyfunction]
#[pyo3(signature = (helper, program, *, environment, addresses, mtu, resolvers, files, namespace))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn launch(
    py: Python<'_>,
    helper: Vec<OsString>,
    program: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    addresses: Vec<IpAddr>,
    mtu: u32,
    resolvers: Vec<IpAddr>,
    files: Vec<(OsString, Vec<u8>)>,
    namespace: Option<OsString>,
) -> PyResult<Launched> {
    let Some((first, rest)) = helper.split_first() else {
        return Err(PyValueError::new_err("helper: empty"));
    };
    let mut command = Command::new(first);
    command.args(rest);
    let plan = Plan {
        namespace: namespace.map(|name| Namespace { name }),
        program,
        environment,
        addresses,
        mtu,
        resolvers,
        files,
    };
    let launched = py.detach(|| watm_launch::launch(command, &plan));
    Ok(Launched {
        launched: Mutex::new(launched.map_err(|error| error_of(&error))?),
        mtu,
    })
}

/// Does the work of a helper. Returns the exit status of the program.
#[pyfunction]
pub fn help_launch(control: i32) -> i32 {
    watm_launch::help(control)
}

/// The sockets of one network.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct SocketTable(watm_launch::SocketTable);

#[pymethods]
impl SocketTable {
    /// Opens the table of this machine's sockets.
    #[new]
    fn new() -> PyResult<SocketTable> {
        Ok(SocketTable(watm_launch::SocketTable::open()?))
    }

    /// Returns the number of the TCP socket with these ends; None without one.
    fn stream(&self, local: (IpAddr, u16), remote: (IpAddr, u16)) -> PyResult<Option<u32>> {
        Ok(self.0.stream(local.into(), remote.into())?)
    }

    /// Returns the number of the UDP socket that gets the datagrams from `remote` to `local`; None
    /// without one.
    fn datagrams(&self, local: (IpAddr, u16), remote: (IpAddr, u16)) -> PyResult<Option<u32>> {
        Ok(self.0.datagrams(local.into(), remote.into())?)
    }
}

/// Returns the file of a network namespace that exists already: a name, the number of a process, or
/// a path.
#[pyfunction]
pub fn namespace_file(name: OsString) -> PathBuf {
    Namespace { name }.files().0
}

#[pymethods]
impl Launched {
    /// A process of the program's network, which lives as long as the program.
    #[getter]
    fn pid(&self) -> u32 {
        self.lock().id()
    }

    /// Takes the table of the network's sockets; None on a kernel without sock_diag(7).
    fn sockets(&self) -> Option<SocketTable> {
        self.lock().take_sockets().map(SocketTable)
    }

    /// Lets the program start.
    fn begin(&self) -> PyResult<()> {
        self.lock().begin().map_err(|error| error_of(&error))
    }

    /// Sends a signal to the program.
    fn signal(&self, number: i32) {
        self.lock().signal(number);
    }

    /// Kills the program and its children.
    fn kill(&self) {
        self.lock().kill();
    }

    /// Waits for the end of the program. Returns its exit status, or 128 and the number of the signal
    /// that ended it.
    fn wait(&self, py: Python<'_>) -> PyResult<i32> {
        let wait = || -> io::Result<i32> {
            let ended = self.lock().watch()?;
            ended();
            self.lock().wait()
        };
        py.detach(wait).map_err(|error| error_of(&error))
    }
}

impl Launched {
    fn lock(&self) -> MutexGuard<'_, watm_launch::Launched> {
        self.launched.lock().expect("no panic under this lock")
    }
}

/// A device for packets: that of a program, or one of this machine, by name.
#[derive(FromPyObject)]
pub enum Device {
    /// The device of a launched program.
    Launched(Py<Launched>),
    /// The name of a device.
    Named(String),
}

impl Device {
    /// Takes or opens the device.
    pub(crate) fn take(self) -> PyResult<PacketDevice> {
        let device = match self {
            Device::Launched(launched) => {
                let launched = launched.get();
                let device = launched.lock().take_device();
                let device = device.ok_or_else(|| PyValueError::new_err("device: taken before"))?;
                PacketDevice::given(device, launched.mtu)
            }
            Device::Named(name) => PacketDevice::open(&name).map_err(|error| {
                let kind = error.kind();
                io::Error::new(kind, format!("device {name}: {error}"))
            }),
        };
        device.map_err(|error| error_of(&error))
    }
}

fn error_of(error: &io::Error) -> PyErr {
    PyOSError::new_err(error.to_string())
}
