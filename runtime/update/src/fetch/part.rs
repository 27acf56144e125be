//! Partial downloads that survive the process. `fetch` fills them.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};

use serde_derive::{Deserialize, Serialize};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use watm_seal::private;

use crate::record::Validators;
use crate::task::blocking;

/// The bytes of a file received so far: in memory, for verification, and on the disk, from where
/// the next attempt continues, even after a power cut. The bytes on the disk need no trust: they
/// are verified with the rest.
///
/// The file on the disk begins with a line of JSON that identifies the whole.
pub(crate) struct Part {
    path: Option<PathBuf>,
    file: Option<File>,
    bytes: Vec<u8>,
    about: About,
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct About {
    /// The source.
    source: String,
    /// The server's validators of the whole file.
    validators: Validators,
}

/// The longest first line, in bytes.
const MAX_ABOUT_BYTES: u64 = 4 << 10;

impl Part {
    /// Opens the part at this path, and empties it if it belongs to another source.
    pub(crate) async fn open(path: &Path, source: String, limit: u64) -> io::Result<Part> {
        let mut part = Part {
            path: Some(path.to_owned()),
            file: None,
            bytes: Vec::new(),
            about: About {
                source,
                validators: Validators::default(),
            },
        };
        let mut options = OpenOptions::new();
        let mut file = match options.read(true).write(true).open(path).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(part),
            Err(error) => return Err(error),
        };
        let mut content = Vec::new();
        let most = limit + MAX_ABOUT_BYTES;
        (&mut file).take(most + 1).read_to_end(&mut content).await?;
        let end = content.iter().position(|byte| *byte == b'\n');
        let about = end.and_then(|end| serde_json::from_slice::<About>(&content[..end]).ok());
        match (end, about) {
            (Some(end), Some(about))
                if about.source == part.about.source && content.len() as u64 <= most =>
            {
                part.bytes = content.split_off(end + 1);
                part.about = about;
                part.file = Some(file);
            }
            // The part belongs to another source, or was cut off in its first line.
            _ => part.discard().await?,
        }
        Ok(part)
    }

    /// Creates a part in memory only.
    pub(crate) fn nowhere() -> Part {
        Part {
            path: None,
            file: None,
            bytes: Vec::new(),
            about: About::default(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the validators, with which the server tells whether it still has this file.
    pub(crate) fn validators(&self) -> &Validators {
        &self.about.validators
    }

    /// Starts again from the beginning of another file.
    pub(crate) async fn start(&mut self, validators: Validators) -> io::Result<()> {
        self.bytes.clear();
        self.about.validators = validators;
        let Some(path) = self.path.clone() else {
            return Ok(());
        };
        let file = match &mut self.file {
            Some(file) => {
                file.set_len(0).await?;
                file.seek(SeekFrom::Start(0)).await?;
                file
            }
            none => {
                let file = blocking(move || private::create_file(&path)).await?;
                none.insert(File::from_std(file))
            }
        };
        let mut line = serde_json::to_vec(&self.about).map_err(io::Error::other)?;
        line.push(b'\n');
        file.write_all(&line).await
    }

    /// Appends received bytes.
    pub(crate) async fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        match &mut self.file {
            Some(file) => file.write_all(bytes).await,
            None => Ok(()),
        }
    }

    /// Flushes the appended bytes to the file, so that the next attempt can continue from there.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.flush().await,
            None => Ok(()),
        }
    }

    /// Takes all bytes received. They stay on the disk until they are [discarded](Part::discard).
    pub(crate) fn take(&mut self) -> (Vec<u8>, Validators) {
        let validators = self.about.validators.clone();
        (std::mem::take(&mut self.bytes), validators)
    }

    /// Removes the part, in memory and on the disk.
    pub(crate) async fn discard(&mut self) -> io::Result<()> {
        self.bytes.clear();
        self.about.validators = Validators::default();
        self.file = None;
        match &self.path {
            Some(path) => match fs::remove_file(path).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            },
            None => Ok(()),
        }
    }
}
