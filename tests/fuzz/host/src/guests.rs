//! Parts that the targets with hostile modules share: limits, an echo server, uses of streams, and
//! checks of the host's log and threads.

use std::fmt::{Debug, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use watm_runtime::{Limits, Reach};

pub const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The time that a module may take for its choices. Most need far less.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// A bound for everything that must end.
pub const AT_MOST: Duration = Duration::from_secs(15);

/// Returns small limits, so that a few choices reach them.
pub fn limits() -> Limits {
    Limits {
        memory_bytes: 16 << 20,
        cpu_per_call: Duration::from_millis(100),
        flows: 40,
        accept_backlog: 10,
        datagram_queue: 10,
        handles: 60,
        descriptors: 20,
        crypto_keys: 10,
        log_records_per_second: 1000,
        connect_timeout: Duration::from_millis(200),
        handshake_timeout: Duration::from_millis(200),
        handshakes: 4,
        close_grace: Duration::from_millis(20),
        ..Limits::default()
    }
}

/// Returns the configuration of a hostile module: the echo server's port, and the choices.
pub fn config(port: u16, choices: &[u8]) -> Vec<u8> {
    [b"hostile :", &port.to_le_bytes()[..], choices].concat()
}

/// A runtime for one thread, with an echo server on loopback.
pub struct World {
    pub runtime: Runtime,
    pub answers: SocketAddr,
}

impl World {
    pub fn new() -> World {
        watch();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let answers = runtime.block_on(answer());
        World { runtime, answers }
    }

    /// Returns the destinations of a module: none, or the echo server.
    pub fn reach(&self, is_open: bool) -> Reach {
        let reach = Reach::none();
        if !is_open {
            return reach;
        }
        let reach = reach.allow(&self.answers.to_string()).expect("an address");
        let by_name = format!("localhost:{}", self.answers.port());
        reach.allow(&by_name).expect("a name")
    }
}

/// Starts an echo server for TCP and UDP on one port. Returns its address.
async fn answer() -> SocketAddr {
    loop {
        let streams = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = streams.local_addr().expect("bound");
        let Ok(datagrams) = UdpSocket::bind(address).await else {
            continue;
        };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = streams.accept().await {
                tokio::spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    // Ignored error: the module has closed the connection.
                    let _ = timeout(PATIENCE, tokio::io::copy(&mut reader, &mut writer)).await;
                });
            }
        });
        tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            loop {
                if let Ok((length, from)) = datagrams.recv_from(&mut buffer).await {
                    // Ignored error: datagrams may be lost.
                    let _ = datagrams.send_to(&buffer[..length], from).await;
                }
            }
        });
        return address;
    }
}

/// Uses a stream in one of four ways until it ends.
pub async fn use_stream(stream: impl AsyncRead + AsyncWrite + Unpin, how: u8) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut buffer = vec![0; 1000];
    // Ignored errors: the module has ended the stream.
    let _ = match how % 4 {
        // Keeps the module waiting.
        0 => {
            let _ = writer.write_all(b"hello").await;
            tokio::time::sleep(PATIENCE / 10).await;
            Ok(0)
        }
        1 => tokio::io::copy(&mut reader, &mut writer).await,
        2 => {
            let _ = writer.write_all(&[7; 100_000]).await;
            let _ = writer.shutdown().await;
            while reader.read(&mut buffer).await.unwrap_or(0) > 0 {}
            Ok(0)
        }
        _ => Ok(0),
    };
}

/// Panics if a thread has panicked, or if a log record was malformed.
pub fn check_watched() {
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a thread has panicked");
    let wrong = WRONG.lock().expect("no panic under this lock");
    assert!(wrong.is_none(), "{wrong:?}");
}

static PANICS: AtomicU64 = AtomicU64::new(0);
static WRONG: LazyLock<Arc<Mutex<Option<String>>>> = LazyLock::new(Arc::default);

/// Starts counting panics and checking log records. The host's threads catch their panics.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            usual(info);
        }));
        // Ignored error: another subscriber is set, for a developer who reads the log.
        let _ = tracing::subscriber::set_global_default(Log);
    });
}

/// Checks every log record of the host and its modules.
struct Log;

/// The longest record, in bytes: a module's line with the host's fields.
const LONGEST: usize = 5000;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("watm") && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let Text(text) = text;
        if text.chars().any(char::is_control) || text.len() > LONGEST {
            let mut wrong = WRONG.lock().expect("no panic under this lock");
            wrong.get_or_insert(text);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of a record as text.
struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.0, " {field}={value}");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}
