//! Lets those programs use the tunnel that the file allows. `exec` asks for each flow.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::task::spawn_blocking;
use watm_launch::{Launched, Processes};
use watm_runtime::{Destination, Flow};

use super::applications::Applications;
use crate::failure::Failure;

/// The most programs that are named in the log, each once.
const MOST_NAMED: usize = 100;

/// The rules, and the processes that they are about.
pub(super) struct Gate {
    rules: Applications,
    processes: Arc<Processes>,
    /// The name of the file.
    file: String,
    /// The refused programs that were logged.
    named: Mutex<BTreeSet<String>>,
}

impl Gate {
    /// Takes the table of the network's sockets. Fails if the system does not tell which program has
    /// a connection.
    pub(super) fn new(
        rules: Applications,
        launched: &mut Launched,
        file: &str,
    ) -> Result<Gate, Failure> {
        let table = launched.take_sockets();
        let table = table.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
        let processes = table.and_then(Processes::of).map_err(|error| {
            Failure::failed(format!(
                "{file}: AllowedApps, DisallowedApps: this system does not tell which program has a \
                 connection ({error}); remove the lines"
            ))
        })?;
        Ok(Gate {
            rules,
            processes: Arc::new(processes),
            file: file.to_owned(),
            named: Mutex::default(),
        })
    }

    /// Returns true if the program behind a flow may use the tunnel. One that is not found may not.
    pub(super) async fn admit(&self, flow: &Flow) -> bool {
        let info = flow.info();
        let Destination::Address(remote) = info.destination else {
            return false;
        };
        let (local, is_stream) = (info.source, matches!(flow, Flow::Stream(_)));
        let processes = self.processes.clone();
        let found = spawn_blocking(move || find(&processes, local, remote, is_stream)).await;
        let program = found.ok().flatten();
        if program.as_ref().is_some_and(|path| self.rules.admit(path)) {
            return true;
        }
        self.complain(program, remote);
        false
    }

    fn complain(&self, program: Option<PathBuf>, to: SocketAddr) {
        let program = match program {
            Some(path) => path.display().to_string(),
            None => "an unknown program".to_owned(),
        };
        let mut named = self.named.lock().expect("no panic under this lock");
        if named.len() < MOST_NAMED && named.insert(program.clone()) {
            tracing::warn!(
                target: "watm::tunnel",
                "{program} may not use the tunnel, and its connection to {to} is refused; name it in \
                 AllowedApps of {} to change that",
                self.file
            );
        }
    }
}

fn find(
    processes: &Processes,
    local: SocketAddr,
    remote: SocketAddr,
    is_stream: bool,
) -> Option<PathBuf> {
    let found = match is_stream {
        true => processes.of_stream(local, remote),
        false => processes.of_datagrams(local, remote),
    };
    found.unwrap_or_else(|error| {
        tracing::debug!(target: "watm::tunnel", "cannot look for the program of {local}: {error}");
        None
    })
}
