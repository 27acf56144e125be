//! The types in a recording, which `recorder` writes and `reader` reads.

#![allow(
    missing_docs,
    reason = "the names are those of `wit/`, which describes them"
)]

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::digest;
use serde_derive::{Deserialize, Serialize};

use super::Function;
use crate::convert::guest_level;
use crate::wit::log::Level;
use crate::wit::types::{Destination, ErrorCode};
use crate::{Limits, Module};

pub(super) const MAGIC: [u8; 8] = *b"watm-rec";
pub(super) const VERSION: u16 = 2;

/// The length of a frame's head, in bytes.
pub(super) const FRAME_HEAD: usize = 12;

/// The longest body, in bytes. The largest that a host writes is a read of everything that an
/// application queued for a module.
pub(super) const MAX_BODY: usize = 64 << 20;

/// The first frame: what was recorded, and the settings to run it again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Header {
    pub module: String,
    pub module_sha256: String,
    pub server: String,
    /// The version and the machine of the host that wrote it.
    pub host: String,
    /// The begin of the recording, since 1970.
    pub began: Duration,
    pub sockets: Vec<Socket>,
    pub host_crypto: bool,
    pub log_level: Level,
    pub memory_bytes: u64,
    pub cpu_per_call: Duration,
    pub handles: u64,
    pub crypto_keys: u64,
}

/// A granted socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Socket {
    pub label: String,
    pub address: SocketAddr,
}

impl Header {
    /// Makes the header of a recording that begins now, without the server's grants.
    pub fn new(
        module: &Module,
        server: &str,
        limits: &Limits,
        log_level: tracing::Level,
    ) -> Header {
        Header {
            module: module.name().to_owned(),
            module_sha256: module.info().sha256.clone(),
            server: server.to_owned(),
            host: host(),
            began: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            sockets: Vec::new(),
            host_crypto: false,
            log_level: guest_level(log_level),
            memory_bytes: limits.memory_bytes as u64,
            cpu_per_call: limits.cpu_per_call,
            handles: limits.handles as u64,
            crypto_keys: limits.crypto_keys as u64,
        }
    }

    /// Returns the limits that a run of the module depends on; the others concern only the host.
    pub fn limits(&self) -> Limits {
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Limits {
            memory_bytes: number(self.memory_bytes),
            cpu_per_call: self.cpu_per_call,
            handles: number(self.handles),
            crypto_keys: number(self.crypto_keys),
            ..Limits::default()
        }
    }
}

/// Returns the version of this crate, which implies that of the engine, and the machine. It is for
/// people only: other versions and machines run a module with the same results.
fn host() -> String {
    format!(
        "watm-runtime {}, {}-{}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS
    )
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Event<'a> {
    /// The next generation is instantiated. Imports before the first call are those of its
    /// initializers.
    Instance,
    Call(Call<'a>),
    /// An import, followed by its arguments and its outcome.
    Import(Function),
    /// The end of a call, followed by the answer.
    Returned,
    /// The instance trapped.
    Trapped {
        /// True if the host stopped it, for its CPU time or because the server closed: at a moment
        /// that no other run meets exactly.
        interrupted: bool,
        reason: Cow<'a, str>,
    },
    /// The recording ends, for the given reason.
    End(Cow<'a, str>),
}

/// A call of an export. New variants go to the end: the file holds their numbers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Call<'a> {
    Start {
        now: u64,
        config: Cow<'a, [u8]>,
        predecessor: Option<Cow<'a, [u8]>>,
    },
    Reconfigure {
        now: u64,
        config: Cow<'a, [u8]>,
    },
    Process {
        now: u64,
        ready: Cow<'a, [u64]>,
    },
    GetStatus {
        now: u64,
    },
    ClientConfigs {
        public: Destination,
    },
    Dial {
        now: u64,
        destination: Option<Destination>,
        /// The handle of the application's stream.
        application: u32,
    },
    Snapshot {
        now: u64,
    },
    Serving {
        now: u64,
        generation: u32,
    },
    DialDatagrams {
        now: u64,
        destination: Option<Destination>,
        /// The handle of the application's flow.
        application: u32,
    },
    NetworkChanged {
        now: u64,
    },
}

impl Call<'_> {
    pub fn name(&self) -> &'static str {
        match self {
            Call::Start { .. } => "endpoint.start",
            Call::Reconfigure { .. } => "endpoint.reconfigure",
            Call::Process { .. } => "endpoint.process",
            Call::GetStatus { .. } => "endpoint.get-status",
            Call::ClientConfigs { .. } => "endpoint.client-configs",
            Call::Dial { .. } => "endpoint.dial",
            Call::Snapshot { .. } => "endpoint.snapshot",
            Call::Serving { .. } => "endpoint.serving",
            Call::DialDatagrams { .. } => "datagram-dialer.dial-datagrams",
            Call::NetworkChanged { .. } => "network-observer.network-changed",
        }
    }

    /// Returns the module's clock, for calls that pass it.
    pub fn now(&self) -> Option<u64> {
        match self {
            Call::Start { now, .. }
            | Call::Reconfigure { now, .. }
            | Call::Process { now, .. }
            | Call::GetStatus { now }
            | Call::Snapshot { now }
            | Call::Serving { now, .. }
            | Call::NetworkChanged { now }
            | Call::Dial { now, .. }
            | Call::DialDatagrams { now, .. } => Some(*now),
            Call::ClientConfigs { .. } => None,
        }
    }
}

/// The outcome of an import.
#[derive(Debug, Serialize, Deserialize)]
pub enum Outcome<T> {
    Done(T),
    Refused(ErrorCode),
    Trapped(String),
}

impl<T> Outcome<T> {
    /// Returns the value of a call that succeeded.
    pub fn done(self) -> Option<T> {
        match self {
            Outcome::Done(value) => Some(value),
            Outcome::Refused(_) | Outcome::Trapped(_) => None,
        }
    }

    /// Returns the error of a call that the host refused.
    pub fn refused(self) -> Option<ErrorCode> {
        match self {
            Outcome::Refused(code) => Some(code),
            Outcome::Done(_) | Outcome::Trapped(_) => None,
        }
    }
}

/// A digest in the place of bytes that the module passes to the host.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    pub len: u32,
    /// The first half of their SHA-256.
    pub sha256: [u8; 16],
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Digest {
        let mut sha256 = [0; 16];
        sha256.copy_from_slice(&digest::digest(&digest::SHA256, bytes).as_ref()[..16]);
        Digest {
            len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            sha256,
        }
    }
}

/// Returns the head of a frame with this body, of at most [`MAX_BODY`] bytes.
pub(super) fn frame_head(body: &[u8]) -> [u8; FRAME_HEAD] {
    let mut head = [0; FRAME_HEAD];
    head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[4..8].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let checksum = crc32fast::hash(&head[..8]);
    head[8..].copy_from_slice(&checksum.to_le_bytes());
    head
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sha256 = watm_types::hex::encode(&self.sha256[..4]);
        write!(f, "{} bytes (SHA-256 {sha256}…)", self.len)
    }
}

/// Appends a value to `out`.
pub fn encode<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Encoding fails only for sequences without a length; the types of this module have none.
    *out = postcard::to_extend(value, std::mem::take(out)).expect("every sequence has a length");
}
