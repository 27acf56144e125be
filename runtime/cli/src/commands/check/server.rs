//! Checks of a server alone. Used by `check`.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use watm_runtime::{Error, Network, Phase, Server, SwapOptions};

use super::report::Verdict;
use super::subject::{Serving, Subject};

/// The time in which a server must have ended after its close.
const END: Duration = Duration::from_secs(1);

/// The time of the check of an idle module, and the most that it may take then: CPU in thousandths of a
/// core, and calls of `process` in a second. The host slows a module down that always asks for more.
const IDLE: Duration = Duration::from_secs(2);
const IDLE_PERMILLE: u128 = 50;
const IDLE_CALLS: u128 = 50;

/// The numbers of strangers' datagrams and connections.
const DATAGRAMS: u64 = 500;
const CONNECTIONS: u64 = 50;

/// Swaps in a row.
const SWAPS: u32 = 3;

/// Starts, and ends in time.
pub(super) async fn starts(subject: &Subject) -> Result<(), Verdict> {
    let serving = serve(subject)?;
    runs(&serving.server).await?;
    end(&serving.server).await
}

/// Starts with damaged configurations, each of which it must accept, or refuse as a configuration.
pub(super) async fn refuses_damaged_configurations(subject: &Subject) -> Result<(), Verdict> {
    for (name, config) in damaged(subject) {
        match subject.serve(&config) {
            Ok(serving) => end(&serving.server).await?,
            Err(Error::Config { .. }) => {}
            Err(error) => return Err(Verdict::failed(&name, error)),
        }
    }
    Ok(())
}

/// Waits after a stranger's short visit, and compares the CPU time.
pub(super) async fn rests(subject: &Subject) -> Result<(), Verdict> {
    let serving = serve(subject)?;
    let counter = |name: &str| serving.server.host_counters().get(name).copied();
    let used = || {
        Some((
            counter("host.guest_time_ns")?,
            counter("host.process_calls")?,
        ))
    };
    let (address, networks) = (serving.address, serving.networks.clone());
    let visit = spawn_blocking(move || -> std::io::Result<()> {
        if networks.contains(&Network::Udp) {
            UdpSocket::bind((address.ip(), 0))?.send_to(b"x", address)?;
        }
        if networks.contains(&Network::Tcp) {
            drop(TcpStream::connect(address)?);
        }
        Ok(())
    });
    said(visit.await)?;
    sleep(Duration::from_millis(500)).await;
    let Some((time, calls)) = used() else {
        return Err(Verdict::Skipped(
            "has no instance without a connection".to_owned(),
        ));
    };
    let begun = Instant::now();
    sleep(IDLE).await;
    let (more_time, more_calls) = used().unwrap_or((time, calls));
    let elapsed = begun.elapsed().as_nanos();
    let permille = u128::from(more_time - time) * 1000 / elapsed;
    let calls = u128::from(more_calls - calls) * 1_000_000_000 / elapsed;
    if permille > IDLE_PERMILLE || calls > IDLE_CALLS {
        return Err(Verdict::Failed(format!(
            "used {permille} thousandths of a core, in {calls} calls of `process` a second; it should return the \
             time of its next timer"
        )));
    }
    end(&serving.server).await
}

/// Sends random bytes to all sockets.
pub(super) async fn survives_strangers(subject: &Subject) -> Result<(), Verdict> {
    let serving = serve(subject)?;
    let (address, seed) = (serving.address, subject.seed);
    if serving.networks.contains(&Network::Udp) {
        let sent = spawn_blocking(move || send_datagrams(address, seed)).await;
        said(sent)?;
    }
    if serving.networks.contains(&Network::Tcp) {
        let sent = spawn_blocking(move || make_connections(address, seed)).await;
        said(sent)?;
    }
    // Flows that came of it are dropped.
    let refusing = async {
        while let Some(flow) = serving.server.accept().await {
            drop(flow);
        }
    };
    let _ = timeout(Duration::from_millis(500), refusing).await;
    runs(&serving.server).await?;
    end(&serving.server).await
}

/// Gives it its configuration again, and damaged ones.
pub(super) async fn reconfigures(subject: &Subject) -> Result<(), Verdict> {
    let serving = serve(subject)?;
    let again = serving
        .server
        .reconfigure_async(subject.config.clone())
        .await;
    again.map_err(|error| Verdict::failed("its own configuration again", error))?;
    for (name, config) in damaged(subject) {
        match serving.server.reconfigure_async(config).await {
            Ok(()) | Err(Error::Config { .. }) => {}
            Err(error) => return Err(Verdict::failed(&name, error)),
        }
    }
    runs(&serving.server).await?;
    end(&serving.server).await
}

/// Replaces it by itself.
pub(super) async fn swaps(subject: &Subject) -> Result<(), Verdict> {
    let serving = serve(subject)?;
    for number in 1..=SWAPS {
        let swapped = serving
            .server
            .swap_async(&subject.module, SwapOptions::default());
        let generation = swapped
            .await
            .map_err(|error| Verdict::failed(&format!("swap {number}"), error))?;
        if generation < number {
            return Err(Verdict::Failed(format!(
                "after swap {number}, generation {generation} serves"
            )));
        }
    }
    runs(&serving.server).await?;
    end(&serving.server).await
}

fn serve(subject: &Subject) -> Result<Serving, Verdict> {
    subject.serve(&subject.config).map_err(|error| match error {
        Error::Config { .. } if subject.config.is_empty() => {
            Verdict::Failed(format!("{error}; pass a configuration with --config"))
        }
        error => Verdict::failed("the start of a server", error),
    })
}

/// Fails unless the server runs, and has never failed.
pub(super) async fn runs(server: &Server) -> Result<(), Verdict> {
    let status = server.status_async().await;
    let status = status.map_err(|error| Verdict::failed("its status", error))?;
    let restarts = status.counters.get("host.restarts").copied().unwrap_or(0);
    match (restarts, &status.phase) {
        (0, Phase::Running) => Ok(()),
        (0, phase) => Err(Verdict::Failed(format!("no longer runs: {phase:?}"))),
        (restarts, _) => Err(Verdict::Failed(format!(
            "failed and was started again, {restarts} times; the log has the reasons"
        ))),
    }
}

/// Closes a server. Fails if that takes too long.
pub(super) async fn end(server: &Server) -> Result<(), Verdict> {
    server.close();
    match timeout(END, server.wait_closed()).await {
        Ok(()) => Ok(()),
        Err(_) => Err(Verdict::Failed(format!(
            "did not end within {} s after its close",
            END.as_secs()
        ))),
    }
}

/// Returns damaged configurations by their names: some are of no format, some nearly its own.
fn damaged(subject: &Subject) -> Vec<(String, Vec<u8>)> {
    let own = &subject.config;
    let mut all = vec![
        ("an empty configuration".to_owned(), Vec::new()),
        ("a configuration of zeros".to_owned(), vec![0; 1000]),
        (
            "a configuration that is not UTF-8".to_owned(),
            vec![0xff; 10],
        ),
        ("a configuration of a MiB".to_owned(), vec![b'a'; 1 << 20]),
        ("deeply nested brackets".to_owned(), vec![b'['; 100_000]),
        (
            "deeply nested braces".to_owned(),
            br#"{"a":"#.repeat(20_000),
        ),
    ];
    let mut random = Random::new(subject.seed);
    for part in 1..4 {
        let cut = own[..own.len() * part / 4].to_vec();
        all.push((format!("{part} quarters of its configuration"), cut));
    }
    for change in 1..=20 {
        let mut config = own.clone();
        if config.is_empty() {
            break;
        }
        let at = random.below(config.len() as u64) as usize;
        config[at] = random.next() as u8;
        all.push((
            format!("its configuration with another byte at {at} (change {change})"),
            config,
        ));
    }
    all
}

fn send_datagrams(to: SocketAddr, seed: u64) -> std::io::Result<()> {
    let socket = UdpSocket::bind((to.ip(), 0))?;
    let mut random = Random::new(seed);
    for _ in 0..DATAGRAMS {
        let length = random.below(1500) as usize;
        socket.send_to(&random.bytes(length), to)?;
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn make_connections(to: SocketAddr, seed: u64) -> std::io::Result<()> {
    let mut random = Random::new(seed);
    let mut open = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(to)?;
        let length = random.below(5000) as usize;
        // The server may have closed it.
        let _ = stream.write_all(&random.bytes(length));
        // Some stay open and silent.
        if number % 3 == 0 {
            open.push(stream);
        }
    }
    Ok(())
}

fn said(done: Result<std::io::Result<()>, tokio::task::JoinError>) -> Result<(), Verdict> {
    match done {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Verdict::failed("a stranger", error)),
        Err(error) => Err(Verdict::failed("a stranger", error)),
    }
}

/// A generator of repeatable bytes (xorshift64*; Vigna, 2016).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
