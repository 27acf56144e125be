//! Captures: files with the decrypted traffic of modules, for debugging. `component::capture` writes
//! to them.

mod pcapng;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use watm_seal::private;

use crate::Error;
use pcapng::Way;
use watm_types::{cut, printable};

/// The default limit of a packet file, in bytes: the same as that of a recording.
const PACKET_BYTES: u64 = 1 << 30;

/// The default size of a file of a rotation, in bytes, and the number of files that it keeps.
const FILE_BYTES: u64 = 64 << 20;
const KEPT_FILES: usize = 10;

/// The limit of a key log, in bytes: the keys of sixty thousand handshakes.
const SECRET_BYTES: u64 = 16 << 20;

/// The most bytes of keys that a module may write at once.
const LONGEST_SECRET: usize = 1 << 10;

/// The most bytes of one packet; only jumbograms are longer.
const LONGEST_PACKET: usize = 65_535;

/// The most peers with an interface of their own. All others share one.
const INTERFACES: usize = 256;

/// The longest name of an interface, in bytes.
const LONGEST_NAME: usize = 64;

/// The bytes of TLS secrets that each file of a rotation repeats: those of a hundred handshakes.
const REPEATED_SECRETS: usize = 64 << 10;

/// The least bytes of a file of a rotation: a packet of the largest size, with secrets and
/// interfaces before it.
const LEAST_BYTES: u64 = 256 << 10;

/// The time for which packets wait for the TLS secrets that decrypt them: once or twice this long.
/// A secret is known some milliseconds after the first packets that need it.
const PATIENCE: Duration = Duration::from_millis(250);

/// The most bytes of packets that wait.
const WAITING_BYTES: usize = 4 << 20;

/// The most files that a rotation keeps.
const MOST_FILES: usize = 9999;

/// Captures a module's traffic for the user: its packets in a pcapng file, the keys of its sessions
/// in a key log. Clones are the same capture.
///
/// Only their owner can read both files, which reveal everything that the tunnel hides. While they
/// are written, a WARN record at the start and `Status::captures` say so.
/// A module needs the capability `capture`, in its seal and its grant.
#[derive(Clone, Debug)]
pub struct Capture(Arc<Files>);

#[derive(Debug)]
struct Files {
    packets: Option<PathBuf>,
    secrets: Option<PathBuf>,
    packet_bytes: u64,
    /// The number of packet files to keep, if there is more than one.
    kept: Option<usize>,
    /// True if packets wait for their TLS secrets.
    waits: bool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    begun: bool,
    packets: Option<Writing>,
    secrets: Option<Writing>,
    /// The interfaces' numbers by their peers.
    interfaces: BTreeMap<String, u32>,
    block: Vec<u8>,
    /// Blocks that wait to be written.
    waiting: VecDeque<Vec<u8>>,
    /// The bytes of `waiting`.
    waiting_bytes: usize,
    /// The number of its blocks that have waited for a time already.
    older: usize,
    /// The packet files of a rotation, the newest last.
    files: VecDeque<PathBuf>,
    /// The number of packet files so far.
    number: u32,
    /// The latest TLS secrets, for the next file of a rotation.
    recent: VecDeque<String>,
    /// The bytes of `recent`.
    recent_bytes: usize,
}

/// An open file of a capture.
#[derive(Debug)]
struct Writing {
    path: PathBuf,
    file: File,
    /// True if the capture has created it.
    new: bool,
    /// The server's name in logs.
    server: String,
    written: u64,
    /// The bytes of the file's head, which holds no packet.
    head: u64,
    limit: u64,
    /// The reason why it ended, once it has.
    ended: Option<String>,
}

impl Capture {
    /// Writes packets and keys into these files; `None` writes neither. The packet file must be a new
    /// one, and ends at 1 GiB; keys are appended to an existing key log. A new file that stays empty
    /// is removed at the end.
    pub fn new(packets: Option<PathBuf>, secrets: Option<PathBuf>) -> Capture {
        Capture::with_packet_bytes(packets, secrets, PACKET_BYTES)
    }

    /// Makes a capture as [`new`](Capture::new), if any of the files is given. With a size or a
    /// number of files, packets [`rotate`](Capture::rotate): by default files of 64 MiB, of which
    /// ten are kept.
    pub fn wanted(
        packets: Option<PathBuf>,
        secrets: Option<PathBuf>,
        bytes: Option<u64>,
        files: Option<usize>,
    ) -> Result<Option<Capture>, Error> {
        let none = packets.is_none() && secrets.is_none();
        let capture = Capture::new(packets, secrets);
        match (bytes, files) {
            (None, None) if none => Ok(None),
            (None, None) => Ok(Some(capture)),
            _ => capture
                .rotate(bytes.unwrap_or(FILE_BYTES), files.unwrap_or(KEPT_FILES))
                .map(Some),
        }
    }

    /// Makes a capture as [`new`](Capture::new), with another limit of the packet file.
    pub fn with_packet_bytes(
        packets: Option<PathBuf>,
        secrets: Option<PathBuf>,
        bytes: u64,
    ) -> Capture {
        Capture(Arc::new(Files {
            packets,
            secrets,
            packet_bytes: bytes,
            kept: None,
            waits: false,
            open: Mutex::default(),
        }))
    }

    /// Holds packets back for up to half a second, so that [`tls_secret`](Capture::tls_secret) comes
    /// before those that it decrypts: programs read a file once, from its begin to its end. To be
    /// called before the capture is used.
    #[must_use]
    pub fn wait_for_secrets(self) -> Capture {
        Capture(Arc::new(Files {
            packets: self.0.packets.clone(),
            secrets: self.0.secrets.clone(),
            packet_bytes: self.0.packet_bytes,
            kept: self.0.kept,
            waits: true,
            open: Mutex::default(),
        }))
    }

    /// Divides the packets among files of `bytes` each, of which the newest `files` are kept. The
    /// files get numbers before their extension: `inner-0001.pcapng` for `inner.pcapng`. Each opens
    /// on its own. Fails for fewer than 256 KiB, for no files and for more than 9999, and without a
    /// packet file. To be called before the capture is used.
    pub fn rotate(self, bytes: u64, files: usize) -> Result<Capture, Error> {
        if bytes < LEAST_BYTES {
            return Err(Error::Options(format!(
                "capture: files of {bytes} bytes are too small; the least are {LEAST_BYTES}"
            )));
        }
        if !(1..=MOST_FILES).contains(&files) {
            return Err(Error::Options(format!(
                "capture: cannot keep {files} files; must be 1 to {MOST_FILES}"
            )));
        }
        let Some(packets) = self.0.packets.clone() else {
            return Err(Error::Options(
                "capture: a size or a number of files needs a packet file, which is missing"
                    .to_owned(),
            ));
        };
        Ok(Capture(Arc::new(Files {
            packets: Some(packets),
            secrets: self.0.secrets.clone(),
            packet_bytes: bytes,
            kept: Some(files),
            waits: self.0.waits,
            open: Mutex::default(),
        })))
    }

    /// Opens the files, once, for the server of this name. `None` if they are already open.
    #[doc(hidden)]
    pub fn begin(&self, server: &str) -> Result<Option<StartingCapture>, Error> {
        let mut open = self.0.lock();
        if open.begun {
            return Ok(None);
        }
        // If one file cannot be opened, neither is kept.
        open.begin(&self.0, server).inspect_err(|_| open.end())?;
        drop(open);
        if self.0.waits && self.0.packets.is_some() {
            self.write_in_time()?;
        }
        Ok(Some(StartingCapture(Some(self.clone()))))
    }

    /// Starts the thread that writes what has waited. It ends with the capture.
    fn write_in_time(&self) -> Result<(), Error> {
        let files = Arc::downgrade(&self.0);
        let write = move || {
            while let Some(files) = files.upgrade() {
                let mut open = files.lock();
                if !open.begun {
                    break;
                }
                open.write_older();
                drop(open);
                drop(files);
                thread::sleep(PATIENCE);
            }
        };
        let started = thread::Builder::new()
            .name("watm-capture".to_owned())
            .spawn(write);
        started.map(|_| ()).map_err(|error| {
            self.end();
            Error::System(format!("cannot start a thread: {error}"))
        })
    }

    /// Writes the packets that wait for TLS secrets, because no more secrets come: the server has
    /// ended.
    #[doc(hidden)]
    pub fn flush(&self) {
        self.0.lock().write_all();
    }

    /// Stops writing. Removes an empty file that the capture has created.
    pub fn end(&self) {
        self.0.lock().end();
    }

    /// Returns true for packets if they are captured, and true for keys.
    #[doc(hidden)]
    pub fn wishes(&self) -> (bool, bool) {
        (self.0.packets.is_some(), self.0.secrets.is_some())
    }

    /// Writes a packet from a peer, or to it.
    #[doc(hidden)]
    pub fn packet(&self, peer: &str, from_peer: bool, packet: &[u8]) {
        let files = &*self.0;
        let mut open = files.lock();
        if open.packets.as_ref().is_none_or(|it| it.ended.is_some()) {
            return;
        }
        let mut block = take(&mut open.block);
        block.clear();
        if let Some(kept) = files.kept
            && open.is_full(packet.len().min(LONGEST_PACKET))
        {
            open.rotate(files, kept);
        }
        let interface = open.interface(peer, &mut block);
        let way = if from_peer { Way::In } else { Way::Out };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        // The cast overflows after 584 years.
        let now = now.unwrap_or(Duration::ZERO).as_nanos() as u64;
        pcapng::packet(&mut block, interface, now, &way, packet, LONGEST_PACKET);
        if files.waits {
            open.wait(block);
            return;
        }
        if let Some(writing) = &mut open.packets {
            writing.write(&block);
        }
        open.block = block;
    }

    /// Writes lines to the key log. Drops text that is not made of such lines.
    #[doc(hidden)]
    pub fn secret(&self, lines: &str) {
        if !is_key_log(lines) {
            return;
        }
        if let Some(writing) = &mut self.0.lock().secrets {
            writing.write(lines.as_bytes());
        }
    }

    /// Writes lines of TLS secrets (`NSS Key Log Format`) into the packet file, for the packets
    /// after them. Drops text that is not made of such lines.
    pub fn tls_secret(&self, lines: &str) {
        if !is_key_log(lines) {
            return;
        }
        let mut open = self.0.lock();
        if let Some(kept) = self.0.kept {
            if open.is_full(lines.len()) {
                open.rotate(&self.0, kept);
            }
            open.remember(lines);
        }
        let mut block = Vec::new();
        pcapng::secrets(&mut block, lines);
        if let Some(writing) = &mut open.packets {
            writing.write(&block);
        }
    }

    /// Describes what is being written, in a sentence for each file.
    #[doc(hidden)]
    pub fn describe(&self) -> Vec<String> {
        let open = self.0.lock();
        let one = |what: &str, writing: &Option<Writing>| {
            let writing = writing.as_ref()?;
            let (path, written) = (writing.path.display(), writing.written);
            Some(match &writing.ended {
                None => format!("{what} {path}: {written} bytes so far"),
                Some(reason) => {
                    format!("{what} {path}: stopped after {written} bytes: {reason}")
                }
            })
        };
        [
            one("all packets, unencrypted, to", &open.packets),
            one("keys of all tunnels to", &open.secrets),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Open files for a server that may not start, in which case they are closed again.
pub struct StartingCapture(Option<Capture>);

impl StartingCapture {
    /// Keeps the files open, and logs them: the server runs.
    #[doc(hidden)]
    pub fn keep(mut self) {
        let Some(capture) = self.0.take() else {
            return;
        };
        let open = capture.0.lock();
        if let Some(writing) = &open.packets {
            tracing::warn!(
                target: "watm::server",
                server = writing.server,
                "capturing to {}; the file contains all packets unencrypted",
                writing.path.display()
            );
        }
        if let Some(writing) = &open.secrets {
            tracing::warn!(
                target: "watm::server",
                server = writing.server,
                "writing keys to {}; anyone with that file can decrypt the traffic of all \
                 tunnels, and has the local private key",
                writing.path.display()
            );
        }
    }
}

impl Drop for StartingCapture {
    fn drop(&mut self) {
        if let Some(capture) = &self.0 {
            capture.end();
        }
    }
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no panic under this lock")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.lock().end();
    }
}

impl Open {
    fn begin(&mut self, files: &Files, server: &str) -> Result<(), Error> {
        self.begun = true;
        if let Some(path) = &files.packets {
            let path = match files.kept {
                None => path.clone(),
                Some(_) => {
                    refuse_older(path)?;
                    self.number = 1;
                    numbered(path, self.number)
                }
            };
            self.packets = Some(packet_file(&path, server, files.packet_bytes)?);
            self.files.push_back(path);
        }
        if let Some(path) = &files.secrets {
            let (file, new) = key_log(path)?;
            self.secrets = Some(Writing::new(path, file, new, server, SECRET_BYTES));
        }
        Ok(())
    }

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
        let server = self.packets.as_ref().map_or("", |it| &it.server);
        pcapng::interface(block, &printable(name, LONGEST_NAME), server);
        self.interfaces.insert(name.to_owned(), number);
        number
    }

    /// Returns true if a packet of this length no longer fits into the file.
    fn is_full(&self, length: usize) -> bool {
        let most = (length + LONGEST_NAME + pcapng::OVERHEAD + self.waiting_bytes) as u64;
        let writing = self.packets.as_ref();
        let fresh = |it: &Writing| it.written == it.head && self.waiting.is_empty();
        writing.is_some_and(|it| !fresh(it) && it.written + most > it.limit)
    }

    /// Goes on in a new file, and removes the oldest beyond `kept`. The interfaces begin anew.
    fn rotate(&mut self, files: &Files, kept: usize) {
        self.write_all();
        let (Some(first), Some(writing)) = (&files.packets, &mut self.packets) else {
            return;
        };
        self.number += 1;
        let path = numbered(first, self.number);
        match packet_file(&path, &writing.server, files.packet_bytes) {
            Ok(next) => *writing = next,
            Err(error) => return writing.stop(error.to_string()),
        }
        self.interfaces.clear();
        let repeated: String = self.recent.iter().map(String::as_str).collect();
        if !repeated.is_empty() {
            let mut block = Vec::new();
            pcapng::secrets(&mut block, &repeated);
            writing.write(&block);
            writing.head = writing.written;
        }
        self.files.push_back(path);
        while self.files.len() > kept {
            if let Some(oldest) = self.files.pop_front() {
                // The user may have moved it away.
                let _ = std::fs::remove_file(oldest);
            }
        }
    }

    /// Keeps a block until its secrets are there.
    fn wait(&mut self, block: Vec<u8>) {
        self.waiting_bytes += block.len();
        self.waiting.push_back(block);
        if self.waiting_bytes > WAITING_BYTES {
            self.write_all();
        }
    }

    /// Writes the blocks that waited at the last call already.
    fn write_older(&mut self) {
        self.write_first(self.older);
        self.older = self.waiting.len();
    }

    fn write_all(&mut self) {
        self.write_first(self.waiting.len());
        self.older = 0;
    }

    fn write_first(&mut self, count: usize) {
        for block in self.waiting.drain(..count) {
            self.waiting_bytes -= block.len();
            if let Some(writing) = &mut self.packets {
                writing.write(&block);
            }
        }
    }

    /// Keeps the lines for the next file, and drops the oldest beyond the bound.
    fn remember(&mut self, lines: &str) {
        self.recent_bytes += lines.len();
        self.recent.push_back(lines.to_owned());
        while self.recent_bytes > REPEATED_SECRETS {
            let dropped = self.recent.pop_front();
            self.recent_bytes -= dropped.map_or(0, |lines| lines.len());
        }
    }

    /// Returns to the state before [`begin`](Open::begin).
    fn end(&mut self) {
        self.write_all();
        let ended = take(self);
        for writing in [ended.packets, ended.secrets].into_iter().flatten() {
            writing.remove_if_empty();
        }
    }
}

impl Writing {
    fn new(path: &Path, file: File, new: bool, server: &str, limit: u64) -> Writing {
        Writing {
            path: path.to_owned(),
            file,
            new,
            server: server.to_owned(),
            written: 0,
            head: 0,
            limit,
            ended: None,
        }
    }

    /// Writes all of the bytes or none; after a failure, nothing more.
    fn write(&mut self, bytes: &[u8]) {
        if self.ended.is_some() {
            return;
        }
        let written = match self.written + bytes.len() as u64 <= self.limit {
            true => self
                .file
                .write_all(bytes)
                .map_err(|error| error.to_string()),
            false => Err(format!(
                "the file reached its limit of {} bytes",
                self.limit
            )),
        };
        match written {
            Ok(()) => self.written += bytes.len() as u64,
            Err(reason) => self.stop(reason),
        }
    }

    /// Ends the file after the last whole block, and says why.
    fn stop(&mut self, reason: String) {
        if self.new {
            // A full disk may have taken a part of the block. Without success, readers complain
            // about the file's end, and show what is before it.
            let _ = self.file.set_len(self.written);
        }
        tracing::warn!(
            target: "watm::server",
            server = self.server,
            "stopped writing {}: {reason}; the server keeps running",
            self.path.display()
        );
        self.ended = Some(reason);
    }

    /// Removes a file without contents, so that nobody takes it for a capture, and the next capture
    /// can create it.
    fn remove_if_empty(&self) {
        if self.new && self.written == self.head {
            // An error is ignored here: the next capture reports the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns true for lines of a key log: short, printable ASCII, each with its end.
fn is_key_log(lines: &str) -> bool {
    let text = |byte: u8| byte == b'\n' || (b' '..=b'~').contains(&byte);
    lines.len() <= LONGEST_SECRET && lines.bytes().all(text) && lines.ends_with('\n')
}

/// Returns a new packet file with its head.
fn packet_file(path: &Path, server: &str, limit: u64) -> Result<Writing, Error> {
    let mut writing = Writing::new(path, new_file(path)?, true, server, limit);
    let mut head = Vec::new();
    pcapng::section(&mut head);
    writing.write(&head);
    writing.head = writing.written;
    Ok(writing)
}

/// Returns the path of a file of a rotation: `inner-0001.pcapng` for `inner.pcapng`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number:04}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Fails if an earlier rotation left its first files, or any that this one will need soon.
fn refuse_older(path: &Path) -> Result<(), Error> {
    let older = (1..=MOST_FILES as u32).map(|number| numbered(path, number));
    match older.into_iter().find(|path| path.exists()) {
        None => Ok(()),
        Some(older) => Err(exists(&older)),
    }
}

fn exists(path: &Path) -> Error {
    Error::Options(format!(
        "capture: {} already exists and is not overwritten; choose another file",
        path.display()
    ))
}

fn new_file(path: &Path) -> Result<File, Error> {
    private::create_file(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => file_error(path, source),
    })
}

/// Returns the file, and true if it is a new one.
fn key_log(path: &Path) -> Result<(File, bool), Error> {
    let open = || match private::create_file(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut file = private::open_file(path)?;
            file.seek(SeekFrom::End(0))?;
            Ok((file, false))
        }
        created => Ok((created?, true)),
    };
    let checked = open().and_then(|opened| Ok((opened, private::is_open_to_others(path)?)));
    match checked.map_err(|source| file_error(path, source))? {
        (_, true) => Err(Error::Options(format!(
            "key log: {} is accessible to other users; restrict it to its owner (chmod 600)",
            path.display()
        ))),
        (opened, false) => Ok(opened),
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
        capture.begin("test").unwrap().unwrap().keep();
        for _ in 0..100 {
            capture.packet("peer", true, &[0x45; 100]);
        }
        let size = fs::metadata(&path).unwrap().len();
        assert!((800..=1000).contains(&size), "{size}");
        let said = capture.describe();
        assert!(said[0].contains("limit of 1000 bytes"), "{said:?}");
        // A capture begins once, whichever server asks again.
        assert!(capture.begin("another").unwrap().is_none());
        let again = Capture::new(Some(path), None).begin("test");
        let refused = again.err().unwrap().to_string();
        assert!(refused.contains("is not overwritten"), "{refused}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_of_a_rotation_begin_with_what_their_packets_need() {
        let folder = folder("rotation");
        let capture = |files| {
            let capture = Capture::new(Some(folder.join("a.pcapng")), None);
            capture.rotate(LEAST_BYTES, files)
        };
        for wrong in [0, MOST_FILES + 1] {
            assert!(capture(wrong).is_err());
        }
        let written = capture(2).unwrap();
        written.begin("test").unwrap().unwrap().keep();
        written.tls_secret("CLIENT_RANDOM 00 11\n");
        for _ in 0..12 {
            written.packet("peer", true, &[0x45; 60_000]);
        }
        written.end();
        let names = fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a-0002.pcapng", "a-0003.pcapng"]);
        for name in names {
            let bytes = fs::read(folder.join(name)).unwrap();
            assert!(bytes.len() as u64 <= LEAST_BYTES);
            for needed in ["peer peer of test", "CLIENT_RANDOM 00 11"] {
                let found = memchr::memmem::find_iter(&bytes, needed).count();
                assert_eq!(found, 1, "{needed}");
            }
        }
        let refused = capture(2).unwrap().begin("test").err().unwrap().to_string();
        assert!(
            refused.contains("a-0002.pcapng already exists"),
            "{refused}"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn secrets_come_before_the_packets_that_wait_for_them() {
        let folder = folder("waiting");
        let path = folder.join("a.pcapng");
        let capture = Capture::new(Some(path.clone()), None).wait_for_secrets();
        capture.begin("test").unwrap().unwrap().keep();
        capture.packet("peer", true, b"\x45 the packet");
        capture.tls_secret("CLIENT_RANDOM 00 11\n");
        let begun = std::time::Instant::now();
        let place = |text: &str| memchr::memmem::find(&fs::read(&path).unwrap(), text.as_bytes());
        while place("the packet").is_none() {
            assert!(begun.elapsed() < Duration::from_secs(30), "not written");
            thread::sleep(Duration::from_millis(10));
        }
        assert!(place("CLIENT_RANDOM") < place("the packet"));
        capture.packet("peer", true, b"\x45 the next");
        capture.flush();
        assert!(place("the next").is_some());
        capture.packet("peer", true, b"\x45 the last");
        capture.end();
        assert!(place("the last").is_some());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn peers_beyond_the_bound_share_an_interface() {
        let folder = folder("peers");
        let path = folder.join("a.pcapng");
        let capture = Capture::new(Some(path.clone()), None);
        capture.begin("test").unwrap().unwrap().keep();
        for peer in 0..INTERFACES + 20 {
            capture.packet(&format!("peer {peer}"), false, &[0x45; 20]);
        }
        let bytes = fs::read(&path).unwrap();
        let named = |name: &str| memchr::memmem::find_iter(&bytes, name.as_bytes()).count();
        assert_eq!(named("peer peer "), INTERFACES);
        assert_eq!(named("peer other of test"), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn keys_are_added_to_a_file_of_ones_own_and_nothing_else_is() {
        let folder = folder("keys");
        let path = folder.join("keys");
        for line in ["A = one\n", "B = two\n"] {
            let capture = Capture::new(None, Some(path.clone()));
            capture.begin("test").unwrap().unwrap().keep();
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

    #[test]
    fn files_of_a_server_that_did_not_start_are_gone_and_what_was_there_is_not() {
        let folder = folder("begun");
        let [packets, keys, old] = ["a.pcapng", "keys", "old"].map(|name| folder.join(name));
        private::create_file(&old).unwrap();
        let both = |keys: &PathBuf| Capture::new(Some(packets.clone()), Some(keys.clone()));
        for keys in [&keys, &old] {
            let capture = both(keys);
            // It may be tried again.
            for _ in 0..2 {
                drop(capture.begin("test").unwrap().unwrap());
                assert!(!packets.exists());
                assert_eq!(keys.exists(), *keys == old);
                assert_eq!(capture.describe(), [""; 0]);
            }
        }
        // One of the two cannot be opened.
        assert!(both(&folder).begin("test").is_err());
        assert!(!packets.exists());
        // The server ran, and only a key was written.
        let capture = both(&keys);
        capture.begin("test").unwrap().unwrap().keep();
        capture.secret("A = one\n");
        capture.end();
        assert!(!packets.exists());
        assert_eq!(fs::read_to_string(&keys).unwrap(), "A = one\n");
        fs::remove_dir_all(folder).unwrap();
    }
}
