//! Files with what modules carry in the clear, for who looks for a mistake.

mod pcapng;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::log::{cut, printable};
use crate::{Error, private};
use pcapng::Way;

/// What a file of packets may grow to, unless it is said: as much as a recording.
const PACKET_BYTES: u64 = 1 << 30;

/// What is written of keys at most: those of sixty thousand handshakes.
const SECRET_BYTES: u64 = 16 << 20;

/// The longest that a module may write of them at once.
const LONGEST_SECRET: usize = 1 << 10;

/// Of one packet; no IP packet is longer, but for jumbograms.
const LONGEST_PACKET: usize = 65_535;

/// Peers with an interface of their own. All others share one.
const INTERFACES: usize = 256;

/// Of the name of one, in bytes.
const LONGEST_NAME: usize = 64;

/// A user's wish to see what a module carries: its packets in a file of pcapng, the keys of its
/// sessions in a key log. Clones are the same one.
///
/// Both files are for their owner alone, and say all of what the tunnel was to hide; while they are
/// written, a record of level WARN at the start and [`Status::captures`](crate::Status::captures)
/// tell so. A module needs the capability `capture`, of its seal and its grant.
#[derive(Clone, Debug)]
pub struct Capture(Arc<Files>);

#[derive(Debug)]
struct Files {
    packets: Option<PathBuf>,
    secrets: Option<PathBuf>,
    packet_bytes: u64,
    /// What it is in logs.
    server: OnceLock<String>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    packets: Option<Writing>,
    secrets: Option<Writing>,
    /// By their peers.
    interfaces: BTreeMap<String, u32>,
    block: Vec<u8>,
}

/// A file that is written to.
#[derive(Debug)]
struct Writing {
    file: File,
    written: u64,
    limit: u64,
    /// It is complete, for this reason.
    ended: Option<String>,
}

impl Capture {
    /// Write packets and keys into these files; `None`: none of them. The file of packets has to be a
    /// new one, and ends at 1 GiB; keys are added to what is in a key log.
    pub fn new(packets: Option<PathBuf>, secrets: Option<PathBuf>) -> Capture {
        Capture::with_packet_bytes(packets, secrets, PACKET_BYTES)
    }

    /// As [`new`](Capture::new), with another bound of the file of packets.
    pub fn with_packet_bytes(
        packets: Option<PathBuf>,
        secrets: Option<PathBuf>,
        bytes: u64,
    ) -> Capture {
        Capture(Arc::new(Files {
            packets,
            secrets,
            packet_bytes: bytes,
            server: OnceLock::new(),
            open: Mutex::default(),
        }))
    }

    /// Open the files, once, for a server that is called so.
    pub(crate) fn begin(&self, server: &str) -> Result<(), Error> {
        let files = &*self.0;
        let mut open = files.lock();
        if files.server.get().is_some() {
            return Ok(());
        }
        if let Some(path) = &files.packets {
            open.packets = Some(Writing::new(new_file(path)?, files.packet_bytes));
            let mut head = Vec::new();
            pcapng::section(&mut head);
            open.write_packets(files, &head);
        }
        if let Some(path) = &files.secrets {
            open.secrets = Some(Writing::new(key_log(path)?, SECRET_BYTES));
        }
        let server = files.server.get_or_init(|| server.to_owned());
        if let Some(path) = &files.packets {
            tracing::warn!(
                target: "watm::server",
                server,
                "capturing to {}; the file holds all packets in the clear",
                path.display()
            );
        }
        if let Some(path) = &files.secrets {
            tracing::warn!(
                target: "watm::server",
                server,
                "writing keys to {}; who has that file can read all of the tunnels' traffic, and \
                 has our private key",
                path.display()
            );
        }
        Ok(())
    }

    /// Whether packets, and whether keys are wanted.
    pub(crate) fn wanted(&self) -> (bool, bool) {
        (self.0.packets.is_some(), self.0.secrets.is_some())
    }

    /// A packet from a peer, or to it.
    pub(crate) fn packet(&self, peer: &str, from_peer: bool, packet: &[u8]) {
        let files = &*self.0;
        let mut open = files.lock();
        if open.packets.as_ref().is_none_or(|it| it.ended.is_some()) {
            return;
        }
        let mut block = std::mem::take(&mut open.block);
        block.clear();
        let interface = open.interface(peer, &mut block);
        let way = if from_peer { Way::In } else { Way::Out };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        // 584 years.
        let now = now.unwrap_or(Duration::ZERO).as_nanos() as u64;
        pcapng::packet(&mut block, interface, now, &way, packet, LONGEST_PACKET);
        open.write_packets(files, &block);
        open.block = block;
    }

    /// Lines for the key log. What cannot be such is left out.
    pub(crate) fn secret(&self, lines: &str) {
        let text = |byte: u8| byte == b'\n' || (b' '..=b'~').contains(&byte);
        if lines.len() > LONGEST_SECRET || !lines.bytes().all(text) || !lines.ends_with('\n') {
            return;
        }
        let files = &*self.0;
        if let Some(writing) = &mut files.lock().secrets {
            writing.write(files, &files.secrets, lines.as_bytes());
        }
    }

    /// What is written now, in a sentence for each file.
    pub(crate) fn describe(&self) -> Vec<String> {
        let files = &*self.0;
        let open = files.lock();
        let one = |what: &str, path: &Option<PathBuf>, writing: &Option<Writing>| {
            let (path, writing) = (path.as_ref()?.display(), writing.as_ref()?);
            Some(match &writing.ended {
                None => format!("{what} {path}: {} bytes so far", writing.written),
                Some(reason) => {
                    format!(
                        "{what} {path}: {} bytes, and no more, because {reason}",
                        writing.written
                    )
                }
            })
        };
        [
            one(
                "all packets, in the clear, to",
                &files.packets,
                &open.packets,
            ),
            one("keys of all tunnels to", &files.secrets, &open.secrets),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no panic under this lock")
    }
}

impl Open {
    fn interface(&mut self, peer: &str, block: &mut Vec<u8>) -> u32 {
        let shared = self.interfaces.len() >= INTERFACES;
        let name = match cut(peer, LONGEST_NAME) {
            name if !shared || self.interfaces.contains_key(name) => name,
            _ => "other",
        };
        if let Some(number) = self.interfaces.get(name) {
            return *number;
        }
        let number = self.interfaces.len() as u32;
        pcapng::interface(block, &printable(name, LONGEST_NAME));
        self.interfaces.insert(name.to_owned(), number);
        number
    }

    fn write_packets(&mut self, files: &Files, block: &[u8]) {
        if let Some(writing) = &mut self.packets {
            writing.write(files, &files.packets, block);
        }
    }
}

impl Writing {
    fn new(file: File, limit: u64) -> Writing {
        Writing {
            file,
            written: 0,
            limit,
            ended: None,
        }
    }

    /// All of it or nothing, and then nothing more.
    fn write(&mut self, files: &Files, path: &Option<PathBuf>, bytes: &[u8]) {
        if self.ended.is_some() {
            return;
        }
        let written = match self.written + bytes.len() as u64 <= self.limit {
            true => self
                .file
                .write_all(bytes)
                .map_err(|error| error.to_string()),
            false => Err(format!("it is at its limit of {} bytes", self.limit)),
        };
        match written {
            Ok(()) => self.written += bytes.len() as u64,
            Err(reason) => {
                let path = path.as_deref().unwrap_or(Path::new("")).display();
                let server = files.server.get().map_or("", String::as_str);
                tracing::warn!(
                    target: "watm::server",
                    server,
                    "{path} is written no more, because {reason}; the server goes on"
                );
                self.ended = Some(reason);
            }
        }
    }
}

fn new_file(path: &Path) -> Result<File, Error> {
    private::create_file(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Options(format!(
            "capture: {} exists, and a capture replaces no file; name another one",
            path.display()
        )),
        _ => file_error(path, source),
    })
}

fn key_log(path: &Path) -> Result<File, Error> {
    let open = || {
        let mut file = private::open_file(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok((file, private::is_open_to_others(path)?))
    };
    match open().map_err(|source| file_error(path, source))? {
        (_, true) => Err(Error::Options(format!(
            "key log: others may read {}, or write to it; must be for its owner alone (chmod 600)",
            path.display()
        ))),
        (file, false) => Ok(file),
    }
}

fn file_error(path: &Path, source: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("watm-capture-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_capture_ends_at_its_limit_and_says_so() {
        let folder = folder("limit");
        let path = folder.join("a.pcapng");
        let capture = Capture::with_packet_bytes(Some(path.clone()), None, 1000);
        capture.begin("test").unwrap();
        for _ in 0..100 {
            capture.packet("peer", true, &[0x45; 100]);
        }
        let size = fs::metadata(&path).unwrap().len();
        assert!((800..=1000).contains(&size), "{size}");
        let said = capture.describe();
        assert!(said[0].contains("limit of 1000 bytes"), "{said:?}");
        // Begun once, whoever else it is for.
        capture.begin("another").unwrap();
        let again = Capture::new(Some(path), None).begin("test");
        assert!(again.unwrap_err().to_string().contains("replaces no file"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn peers_beyond_the_bound_share_an_interface() {
        let folder = folder("peers");
        let path = folder.join("a.pcapng");
        let capture = Capture::new(Some(path.clone()), None);
        capture.begin("test").unwrap();
        for peer in 0..INTERFACES + 20 {
            capture.packet(&format!("peer {peer}"), false, &[0x45; 20]);
        }
        let bytes = fs::read(&path).unwrap();
        let named = |name: &str| memchr::memmem::find_iter(&bytes, name.as_bytes()).count();
        assert_eq!(named("peer "), INTERFACES);
        assert_eq!(named("other"), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn keys_are_added_to_a_file_of_ones_own_and_nothing_else_is() {
        let folder = folder("keys");
        let path = folder.join("keys");
        for line in ["A = one\n", "B = two\n"] {
            let capture = Capture::new(None, Some(path.clone()));
            capture.begin("test").unwrap();
            for wrong in [
                "no end",
                "\x1b[0m\n",
                "\u{e4}\n",
                &format!("{}\n", "x".repeat(2000)),
            ] {
                capture.secret(wrong);
            }
            capture.secret(line);
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "A = one\nB = two\n");
        assert!(!private::is_open_to_others(&path).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }
}
