//! Writes recordings. `ServerBuilder` creates a recorder, and `component::tape` feeds it.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;

use super::format::{FRAME_HEAD, MAGIC, MAX_BODY, VERSION, frame_head};
use super::{Event, Function, Header, Outcome, encode};
use crate::Error;
use crate::Failure;
use watm_seal::private;

/// The longest time that frames wait to be written.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// The number of waiting bytes that are written at once.
const FLUSH_BYTES: usize = 64 << 10;

/// The most bytes that may wait for the disk. With more the disk would slow the traffic down, so
/// the recording ends there.
const MAX_PENDING: usize = MAX_BODY;

/// The bytes kept free below the size limit for the last frame, which reports the limit.
const LAST_FRAME_BYTES: u64 = 256;

/// Writes a file, on a thread of its own, until the limit, an error or the end.
///
/// The recorder never blocks the module's thread, which leaves frames behind a mutex that is held
/// only while they are copied.
pub struct Recorder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    path: PathBuf,
    server: String,
    limit: u64,
    running: AtomicBool,
    inner: Mutex<Inner>,
    more: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Whole frames that are not written yet.
    pending: Vec<u8>,
    /// The bytes of all frames so far.
    total: u64,
    /// The body of the next frame.
    body: Vec<u8>,
    /// True to write the pending frames now.
    hurry: bool,
    /// True to end after that.
    ended: bool,
}

impl Recorder {
    /// Creates the file, readable only by the user. Fails if it exists.
    pub fn create(path: &Path, header: &Header, limit: u64) -> Result<Recorder, Error> {
        let file = private::create_file(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::Options(format!(
                "record: {} already exists and is not overwritten; choose another file",
                path.display()
            )),
            _ => Error::File {
                path: path.to_owned(),
                source,
            },
        })?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            server: header.server.clone(),
            limit,
            running: AtomicBool::new(true),
            inner: Mutex::default(),
            more: Condvar::new(),
        });
        shared.begin(header);
        let writing = shared.clone();
        let thread = thread::Builder::new()
            .name("watm-recorder".to_owned())
            .spawn(move || writing.write_to(file))
            .map_err(|error| Error::System(format!("cannot start a thread: {error}")))?;
        tracing::warn!(
            target: "watm::server",
            server = shared.server,
            "recording to {}; the file contains all payload, the configuration and its keys",
            path.display()
        );
        Ok(Recorder {
            shared,
            thread: Some(thread),
        })
    }

    /// Writes an event that no values follow.
    pub fn event(&self, event: &Event<'_>) {
        if let Some(mut inner) = self.open() {
            encode(event, &mut inner.body);
            if matches!(event, Event::Trapped { .. }) {
                inner.hurry = true;
            }
            self.shared.finish(inner);
        }
    }

    /// Records the answer of the call that the last call event began.
    pub fn returned<T: Serialize>(&self, answer: &T) {
        if let Some(mut inner) = self.open() {
            encode(&Event::Returned, &mut inner.body);
            encode(answer, &mut inner.body);
            self.shared.finish(inner);
        }
    }

    /// Records the first half of an import, before the import consumes its arguments.
    pub fn import<A: Serialize>(&self, function: Function, arguments: &A) {
        if let Some(mut inner) = self.open() {
            encode(&Event::Import(function), &mut inner.body);
            encode(arguments, &mut inner.body);
        }
    }

    /// Records the other half.
    pub fn outcome<T: Serialize>(&self, result: &Result<T, Failure>) {
        if !self.shared.running.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = self.shared.lock();
        match result {
            Ok(value) => encode(&Outcome::Done(value), &mut inner.body),
            Err(Failure::Code(code)) => {
                encode(&Outcome::<()>::Refused(code.clone()), &mut inner.body);
            }
            Err(Failure::Trap(error)) => encode(
                &Outcome::<()>::Trapped(error.root_cause().to_string()),
                &mut inner.body,
            ),
        }
        self.shared.finish(inner);
    }

    /// Ends the recording before the server closes, for this reason.
    pub fn end(&self, reason: &str) {
        if let Some(inner) = self.open() {
            self.shared.stop(inner, reason);
        }
    }

    /// Returns the state for a new body, if the recording still runs.
    fn open(&self) -> Option<MutexGuard<'_, Inner>> {
        if !self.shared.running.load(Ordering::Relaxed) {
            return None;
        }
        let mut inner = self.shared.lock();
        inner.body.clear();
        Some(inner)
    }
}

/// Ends the recording: the server is closed.
impl Drop for Recorder {
    fn drop(&mut self) {
        self.event(&Event::End("the server was closed".into()));
        self.shared.lock().ended = true;
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread has logged its errors.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic under this lock")
    }

    fn begin(&self, header: &Header) {
        let mut inner = self.lock();
        inner.pending.extend_from_slice(&MAGIC);
        inner.pending.extend_from_slice(&VERSION.to_le_bytes());
        encode(header, &mut inner.body);
        inner.push();
    }

    /// Adds the body as a frame, if there is room for it.
    fn finish(&self, mut inner: MutexGuard<'_, Inner>) {
        let frame = inner.body.len() + FRAME_HEAD;
        if inner.total + frame as u64 + LAST_FRAME_BYTES > self.limit {
            let reason = format!("the size limit of {} bytes was reached", self.limit);
            return self.stop(inner, &reason);
        }
        if inner.pending.len() + frame > MAX_PENDING {
            return self.stop(inner, "the disk was too slow for the traffic");
        }
        inner.push();
        if inner.pending.len() >= FLUSH_BYTES || inner.hurry {
            self.more.notify_one();
        }
    }

    /// Stops the recording.
    fn stop(&self, mut inner: MutexGuard<'_, Inner>, reason: &str) {
        inner.body = Vec::new();
        encode(&Event::End(reason.into()), &mut inner.body);
        inner.push();
        inner.ended = true;
        drop(inner);
        self.running.store(false, Ordering::Relaxed);
        self.more.notify_one();
        self.warn(reason);
    }

    fn warn(&self, reason: &str) {
        tracing::warn!(
            target: "watm::server",
            server = self.server,
            "stopped recording to {}: {reason}; the server keeps running",
            self.path.display()
        );
    }

    fn write_to(&self, mut file: File) {
        let mut chunk = Vec::new();
        loop {
            let mut inner = self.lock();
            if !inner.ended && !inner.hurry && inner.pending.len() < FLUSH_BYTES {
                (inner, _) = self
                    .more
                    .wait_timeout(inner, FLUSH_INTERVAL)
                    .expect("no panic under this lock");
            }
            mem::swap(&mut chunk, &mut inner.pending);
            inner.hurry = false;
            let ended = inner.ended;
            drop(inner);
            if let Err(error) = file.write_all(&chunk) {
                self.running.store(false, Ordering::Relaxed);
                self.lock().pending = Vec::new();
                return self.warn(&error.to_string());
            }
            chunk.clear();
            // The memory of a burst is freed.
            chunk.shrink_to(FLUSH_BYTES * 2);
            if ended {
                return;
            }
        }
    }
}

impl Inner {
    /// Adds the body as a frame.
    fn push(&mut self) {
        let body = mem::take(&mut self.body);
        let before = self.pending.len();
        self.pending.extend_from_slice(&frame_head(&body));
        self.pending.extend_from_slice(&body);
        self.total += (self.pending.len() - before) as u64;
        self.body = body;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shared() -> Arc<Shared> {
        Arc::new(Shared {
            path: "test".into(),
            server: "test".to_owned(),
            limit: u64::MAX,
            running: AtomicBool::new(true),
            inner: Mutex::default(),
            more: Condvar::new(),
        })
    }

    #[test]
    fn an_error_in_writing_ends_the_recording() {
        let shared = shared();
        let writing = shared.clone();
        // The file is open only for reading.
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).expect("there");
        let thread = thread::spawn(move || writing.write_to(file));
        let recorder = Recorder {
            shared: shared.clone(),
            thread: Some(thread),
        };
        recorder.event(&Event::Instance);
        let begin = Instant::now();
        while shared.running.load(Ordering::Relaxed) {
            assert!(begin.elapsed() < Duration::from_secs(30));
            thread::sleep(Duration::from_millis(5));
        }
        recorder.event(&Event::Instance);
        drop(recorder);
        assert!(shared.lock().pending.is_empty());
    }

    #[test]
    fn what_waits_for_a_disk_is_bounded() {
        let shared = shared();
        let recorder = Recorder {
            shared: shared.clone(),
            thread: None,
        };
        let answer = vec![0u8; 1 << 20];
        for _ in 0..70 {
            recorder.returned(&answer);
        }
        assert!(!shared.running.load(Ordering::Relaxed));
        let pending = shared.lock().pending.len();
        assert!((MAX_PENDING - (2 << 20)..=MAX_PENDING + 256).contains(&pending));
    }
}
