//! Reads recordings, for `replay`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use super::format::{FRAME_HEAD, MAGIC, MAX_BODY, VERSION, frame_head};
use super::{Event, Header};
use crate::Error;

/// Reads a file from front to back. Uses no more memory than the longest frame in it.
pub struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    /// The number of bytes before the next frame.
    offset: u64,
    frames: u64,
}

/// An event, and the data that follows it in its frame.
#[derive(Debug)]
pub struct Frame {
    /// The event.
    pub event: Event<'static>,
    /// The encoded values that follow it.
    pub rest: Vec<u8>,
    /// The number of the frame, counted from 1.
    pub number: u64,
}

/// The end of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The host ended it, for this reason.
    Ended(String),
    /// The file was truncated: the machine or the process was stopped.
    Truncated,
}

enum Body {
    Whole(Vec<u8>),
    Truncated,
}

impl Reader {
    /// Opens a recording and reads its header.
    pub fn open(path: &Path) -> Result<(Reader, Header), Error> {
        let input = File::open(path).map_err(|source| Error::File {
            path: path.to_owned(),
            source,
        })?;
        let mut reader = Reader {
            path: path.to_owned(),
            input: BufReader::with_capacity(1 << 16, input),
            offset: 0,
            frames: 0,
        };
        let mut start = [0; MAGIC.len() + 2];
        let filled = reader.fill(&mut start)?;
        if !start.starts_with(&MAGIC) {
            return Err(
                reader.error("not a recording of a module (it does not begin with watm-rec)")
            );
        }
        let version = u16::from_le_bytes([start[MAGIC.len()], start[MAGIC.len() + 1]]);
        if filled == start.len() && version != VERSION {
            return Err(reader.error(&format!(
                "a recording of format {version}; this program reads format {VERSION}"
            )));
        }
        match reader.body()? {
            Body::Truncated => Err(reader.error("cut short before its first event")),
            Body::Whole(body) => {
                let (header, rest) = reader.decode::<Header>(&body)?;
                if !rest.is_empty() {
                    return Err(reader.damaged("a header that is too long"));
                }
                if SystemTime::UNIX_EPOCH.checked_add(header.began).is_none() {
                    return Err(reader.damaged("an invalid start time"));
                }
                Ok((reader, header))
            }
        }
    }

    /// Returns the next event, or the end of the recording. Fails where the file was changed.
    pub fn next_frame(&mut self) -> Result<Result<Frame, End>, Error> {
        let body = match self.body()? {
            Body::Truncated => return Ok(Err(End::Truncated)),
            Body::Whole(body) => body,
        };
        let (event, rest) = self.decode::<Event<'static>>(&body)?;
        self.frames += 1;
        if let Event::End(reason) = event {
            return Ok(Err(End::Ended(reason.into_owned())));
        }
        Ok(Ok(Frame {
            event,
            rest: rest.to_vec(),
            number: self.frames,
        }))
    }

    /// Returns the error for a file with contents that no host writes.
    pub fn damaged(&self, what: &str) -> Error {
        self.error(&format!(
            "damaged: {what} in event {} (before byte {})",
            self.frames, self.offset
        ))
    }

    fn body(&mut self) -> Result<Body, Error> {
        let mut head = [0; FRAME_HEAD];
        if self.fill(&mut head)? < head.len() {
            return Ok(Body::Truncated);
        }
        let [a, b, c, d, ..] = head;
        let len = u32::from_le_bytes([a, b, c, d]);
        if len as usize > MAX_BODY || crc32fast::hash(&head[..8]).to_le_bytes() != head[8..] {
            return self.changed(&head);
        }
        let mut body = Vec::new();
        // The buffer grows with the data in the file, not with the length that the head claims.
        let read = (&mut self.input).take(len.into()).read_to_end(&mut body);
        read.map_err(|error| self.io(error))?;
        if body.len() < len as usize {
            return Ok(Body::Truncated);
        }
        if frame_head(&body) != head {
            return self.changed(&body);
        }
        self.offset += body.len() as u64;
        Ok(Body::Whole(body))
    }

    fn decode<'a, T: DeserializeOwned>(&self, body: &'a [u8]) -> Result<(T, &'a [u8]), Error> {
        postcard::take_from_bytes(body)
            .map_err(|error| self.damaged(&format!("no event of format {VERSION} ({error})")))
    }

    /// Reads until the buffer is full or the file ends. Returns the number of bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    /// Handles a frame that differs from what was written; `part` is the part of it that was read
    /// last. If it ends in zeros, and so does the file, it was never written: a file system leaves
    /// that after a power failure.
    fn changed(&mut self, part: &[u8]) -> Result<Body, Error> {
        let at = self.offset - FRAME_HEAD as u64;
        let mut zeros = part.ends_with(&[0]);
        let mut rest = [0; 4096];
        while zeros {
            match self.fill(&mut rest)? {
                0 => return Ok(Body::Truncated),
                count => zeros = rest[..count].iter().all(|byte| *byte == 0),
            }
        }
        Err(self.error(&format!(
            "damaged: event {} (at byte {at}) is not as it was written",
            self.frames + 1
        )))
    }

    fn io(&self, source: io::Error) -> Error {
        Error::File {
            path: self.path.clone(),
            source,
        }
    }

    fn error(&self, reason: &str) -> Error {
        Error::Recording {
            path: self.path.clone(),
            reason: reason.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::encode;
    use super::*;
    use crate::wit::log::Level;

    #[test]
    fn a_recording_that_began_at_no_time_is_damaged() {
        for (seconds, is_whole) in [(1_795_253_400, true), (u64::MAX, false)] {
            let header = Header {
                module: "m.wasm".to_owned(),
                module_sha256: String::new(),
                server: String::new(),
                host: String::new(),
                began: Duration::from_secs(seconds),
                sockets: Vec::new(),
                host_crypto: false,
                log_level: Level::Info,
                memory_bytes: 0,
                cpu_per_call: Duration::ZERO,
                handles: 0,
                crypto_keys: 0,
            };
            let mut body = Vec::new();
            encode(&header, &mut body);
            let version = VERSION.to_le_bytes();
            let file = [&MAGIC, &version[..], &frame_head(&body), &body].concat();
            let name = format!("watm-recording-{}-{seconds}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, file).expect("written");
            let opened = Reader::open(&path).map(|(_, header)| header.began);
            std::fs::remove_file(&path).expect("removed");
            assert_eq!(opened.is_ok(), is_whole, "{opened:?}");
        }
    }
}
