//! The workloads that the client's input asks for.

use std::io;
use std::time::{Duration, Instant};

use serde_derive::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connect::{Connect, Stream};
use crate::latency::Summary;
use crate::pattern;

/// A line of input.
#[derive(Clone, Deserialize)]
pub struct Request {
    r#do: String,
    to: String,
    timeout_ms: u64,
    #[serde(default = "one")]
    count: usize,
    #[serde(default = "one")]
    size: usize,
    #[serde(default)]
    bytes: u64,
    #[serde(default = "one")]
    connections: usize,
}

fn one() -> usize {
    1
}

#[derive(Serialize)]
struct Echoed {
    messages: usize,
    per_second: f64,
    #[serde(flatten)]
    latency: Summary,
}

#[derive(Serialize)]
struct Connected {
    connections: usize,
    per_second: f64,
    /// From the dial to the first byte that came back.
    #[serde(flatten)]
    latency: Summary,
}

#[derive(Default, Serialize)]
struct Streamed {
    bytes: u64,
    /// From the first byte to the sink's answer; the slowest connection's.
    seconds: f64,
    /// Millions of bits a second of all connections.
    mbit_per_second: f64,
    /// The number of connections that carried everything, and the error of another one.
    survived: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    death: Option<String>,
}

/// Performs one request at a time.
pub struct Client {
    connect: Connect,
    held: Vec<Stream>,
}

impl Client {
    /// A client that has no connections yet.
    pub fn new(connect: Connect) -> Self {
        Self {
            connect,
            held: Vec::new(),
        }
    }

    /// The result of a request, or its error.
    pub async fn perform(&mut self, request: &Request) -> Result<Value, String> {
        let limit = Duration::from_millis(request.timeout_ms);
        let work = async {
            match request.r#do.as_str() {
                "connect" => json(&repeat(&self.connect, request).await?),
                "echo" => json(&echo(&self.connect, request).await?),
                "hold" => self.hold(request).await,
                "stream" => json(&stream(&self.connect, request, limit).await?),
                other => Err(format!("do: {other:?} is not known")),
            }
        };
        timeout(limit, work)
            .await
            .map_err(|_| format!("not done within {limit:?}"))?
    }

    /// Opens connections that stay, in addition to those that are held already, and checks that
    /// every one echoes.
    async fn hold(&mut self, request: &Request) -> Result<Value, String> {
        for _ in 0..request.count {
            let mut stream = self.connect.open(&request.to).await?;
            ping_pong(&mut stream, 1, 16).await.map_err(text)?;
            self.held.push(stream);
        }
        for (index, stream) in self.held.iter_mut().enumerate() {
            ping_pong(stream, 1, 16)
                .await
                .map_err(|error| format!("connection {}, idle: {error}", index + 1))?;
        }
        Ok(serde_json::json!({ "held": self.held.len() }))
    }
}

async fn open_all(connect: &Connect, request: &Request) -> Result<Vec<Stream>, String> {
    let mut streams = Vec::with_capacity(request.connections);
    for _ in 0..request.connections {
        streams.push(connect.open(&request.to).await?);
    }
    Ok(streams)
}

/// One message at a time on each connection.
async fn echo(connect: &Connect, request: &Request) -> Result<Echoed, String> {
    let (count, size) = (request.count, request.size);
    let mut tasks = JoinSet::new();
    let streams = open_all(connect, request).await?;
    let start = Instant::now();
    for mut stream in streams {
        tasks.spawn(async move { ping_pong(&mut stream, count, size).await });
    }
    let mut samples = Vec::with_capacity(count * request.connections);
    while let Some(done) = tasks.join_next().await {
        samples.extend(done.map_err(text)?.map_err(text)?);
    }
    Ok(Echoed {
        messages: samples.len(),
        per_second: samples.len() as f64 / start.elapsed().as_secs_f64(),
        latency: Summary::of(samples),
    })
}

/// Bytes to the sink on each connection, a piece at a time. Wrong content is an error; a
/// connection that dies is a result.
async fn stream(connect: &Connect, request: &Request, limit: Duration) -> Result<Streamed, String> {
    let (total, size) = (request.bytes, request.size);
    let mut tasks = JoinSet::new();
    for mut stream in open_all(connect, request).await? {
        // Shorter than the limit of the request, so that a hanging connection is reported as such.
        tasks.spawn(
            async move { timeout(limit * 9 / 10, send_all(&mut stream, total, size)).await },
        );
    }
    let mut result = Streamed {
        bytes: total,
        ..Streamed::default()
    };
    while let Some(done) = tasks.join_next().await {
        match done.map_err(text)? {
            Err(_) => result.death = Some("it hangs".into()),
            Ok(Err(death)) => result.death = Some(death.to_string()),
            Ok(Ok(verdict)) => {
                if verdict.count != total || !verdict.right {
                    let Verdict { count, right, .. } = verdict;
                    return Err(format!(
                        "the sink got {count} bytes, the content right: {right}"
                    ));
                }
                result.survived += 1;
                result.seconds = result.seconds.max(verdict.seconds);
            }
        }
    }
    if result.survived == request.connections && result.seconds > 0.0 {
        let bits = (total * request.connections as u64 * 8) as f64;
        result.mbit_per_second = bits / result.seconds / 1e6;
    }
    Ok(result)
}

/// Opens a connection, echoes one byte and closes, again and again.
async fn repeat(connect: &Connect, request: &Request) -> Result<Connected, String> {
    let mut samples = Vec::with_capacity(request.count);
    let start = Instant::now();
    for _ in 0..request.count {
        let began = Instant::now();
        let mut stream = connect.open(&request.to).await?;
        ping_pong(&mut stream, 1, 1).await.map_err(text)?;
        samples.push(began.elapsed());
        stream.shutdown().await.map_err(text)?;
    }
    Ok(Connected {
        connections: samples.len(),
        per_second: samples.len() as f64 / start.elapsed().as_secs_f64(),
        latency: Summary::of(samples),
    })
}

async fn ping_pong(stream: &mut Stream, count: usize, size: usize) -> io::Result<Vec<Duration>> {
    if size > pattern::LONGEST {
        return Err(io::Error::other(format!(
            "a message has at most {} bytes",
            pattern::LONGEST
        )));
    }
    let mut samples = Vec::with_capacity(count);
    let mut answer = vec![0; size];
    let mut offset = 0;
    for _ in 0..count {
        let message = pattern::at(offset, size);
        let sent = Instant::now();
        stream.write_all(message).await?;
        stream.read_exact(&mut answer).await?;
        samples.push(sent.elapsed());
        if answer != message {
            return Err(io::Error::other(format!(
                "other content from offset {offset}"
            )));
        }
        offset += size as u64;
    }
    Ok(samples)
}

struct Verdict {
    count: u64,
    right: bool,
    seconds: f64,
}

async fn send_all(stream: &mut Stream, total: u64, size: usize) -> io::Result<Verdict> {
    stream.write_all(&total.to_le_bytes()).await?;
    let start = Instant::now();
    let mut sent = 0;
    while sent < total {
        let rest = usize::try_from(total - sent).unwrap_or(usize::MAX);
        let piece = pattern::at(sent, size.min(rest));
        let written = stream.write_all(piece).await;
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("after {sent} bytes: {error}"))
        })?;
        sent += piece.len() as u64;
    }
    stream.flush().await?;
    let count = stream.read_u64_le().await?;
    let right = stream.read_u8().await? == 1;
    Ok(Verdict {
        count,
        right,
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn json(value: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(text)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
