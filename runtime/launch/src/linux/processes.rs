//! The processes of a network namespace, found by their sockets (proc(5)).

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::sockets::SocketTable;

/// The most processes that are remembered. Most connections are of few.
const MOST_KNOWN: usize = 16;

/// The processes of the network that a table of sockets is of.
#[derive(Debug)]
pub struct Processes {
    table: SocketTable,
    /// The number of the namespace's file.
    network: u64,
    /// Those that were found last, the latest first.
    known: Mutex<Vec<u32>>,
}

impl Processes {
    /// Makes the finder for a table's network.
    pub fn of(table: SocketTable) -> io::Result<Processes> {
        let network = table.network()?;
        Ok(Processes {
            table,
            network,
            known: Mutex::default(),
        })
    }

    /// Returns the path of the program with the TCP socket of these ends, which may be deleted;
    /// `None` without one. Blocks for milliseconds if there are many processes.
    pub fn of_stream(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<PathBuf>> {
        let number = self.table.stream(local, remote)?;
        Ok(number.and_then(|number| self.holder(number)))
    }

    /// Returns the same for the UDP socket that gets the datagrams from `remote` to `local`.
    pub fn of_datagrams(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> io::Result<Option<PathBuf>> {
        let number = self.table.datagrams(local, remote)?;
        Ok(number.and_then(|number| self.holder(number)))
    }

    /// Returns the program of the process with an open descriptor of this socket.
    fn holder(&self, socket: u32) -> Option<PathBuf> {
        let mut known = self.known.lock().expect("no panic under this lock");
        let others = all().filter(|process| !known.contains(process));
        let holds = |process: &u32| self.is_member(*process) && has(*process, socket);
        let found = known.iter().copied().chain(others).find(holds)?;
        known.retain(|process| *process != found);
        known.insert(0, found);
        known.truncate(MOST_KNOWN);
        fs::read_link(folder(found).join("exe")).ok()
    }

    fn is_member(&self, process: u32) -> bool {
        let file = fs::metadata(folder(process).join("ns/net"));
        file.is_ok_and(|file| file.ino() == self.network)
    }
}

/// Returns the number of a namespace's file.
pub(super) fn number(namespace: OwnedFd) -> io::Result<u64> {
    Ok(fs::File::from(namespace).metadata()?.ino())
}

/// Returns the numbers of all processes that this one sees.
fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns true if a process has an open descriptor of this socket.
fn has(process: u32, socket: u32) -> bool {
    let wanted = PathBuf::from(format!("socket:[{socket}]"));
    let files = fs::read_dir(folder(process).join("fd"));
    let mut files = files.into_iter().flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|link| link == wanted))
}

fn folder(process: u32) -> PathBuf {
    Path::new("/proc").join(process.to_string())
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn this_program_is_found_by_its_sockets() {
        let processes = Processes::of(SocketTable::open().unwrap()).unwrap();
        let own = Some(env::current_exe().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        for _ in 0..2 {
            assert_eq!(processes.of_stream(local, remote).unwrap(), own);
        }
        let nobody = SocketAddr::new(local.ip(), 1);
        assert_eq!(processes.of_stream(local, nobody).unwrap(), None);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let other = "192.0.2.1:53".parse().unwrap();
        let local = socket.local_addr().unwrap();
        assert_eq!(processes.of_datagrams(local, other).unwrap(), own);
    }

    #[test]
    fn a_process_of_another_network_is_no_member() {
        let mut processes = Processes::of(SocketTable::open().unwrap()).unwrap();
        let own = std::process::id();
        assert!(processes.is_member(own));
        processes.network += 1;
        assert!(!processes.is_member(own));
    }
}
