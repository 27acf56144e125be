//! Checks of streams between a client and a server of the module. Used by `check`.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use watm_runtime::{ErrorCode, SwapOptions};

use super::pair::Pair;
use super::report::Verdict;
use super::server::Random;
use super::subject::Subject;

/// The bytes of each direction in the check for bytes, and the bytes of an answer.
const BULK: usize = 1 << 20;
const ANSWER: usize = 100_000;

/// The most that a client may write while nobody reads, and the size of a write. Two kernels' buffers,
/// the host's and the module's hold less.
const ENDLESS: usize = 64 << 20;
const WRITE: usize = 1 << 16;

/// The time after which a write counts as stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// The time in which a reset must arrive.
const RESET: Duration = Duration::from_secs(5);

/// Streams at once, and the messages over a swap.
const MANY: usize = 100;
const MESSAGES: u32 = 40;

/// Sends random bytes in both directions at once.
pub(super) async fn bytes(subject: &Subject) -> Result<(), Verdict> {
    let mut pair = Pair::of(subject)?;
    let (client, server) = pair.open().await?;
    let mut random = Random::new(subject.seed);
    let (up, down) = (random.bytes(BULK), random.bytes(BULK));
    let (mut from_client, mut to_server) = tokio::io::split(client);
    let (mut from_server, mut to_client) = tokio::io::split(server);
    let (sent, answered, received, read) = tokio::join!(
        send(&mut to_server, &up),
        send(&mut to_client, &down),
        receive(&mut from_server, &up),
        receive(&mut from_client, &down),
    );
    sent.and(answered)?;
    received.map_err(|reason| Verdict::Failed(format!("from the client: {reason}")))?;
    read.map_err(|reason| Verdict::Failed(format!("to the client: {reason}")))?;
    drop((from_client, to_server, from_server, to_client));
    pair.finish().await
}

/// Ends the client's direction, and then answers.
pub(super) async fn half_close(subject: &Subject) -> Result<(), Verdict> {
    let mut pair = Pair::of(subject)?;
    let (mut client, mut server) = pair.open().await?;
    send(&mut client, b"question").await?;
    ended(client.shutdown().await)?;
    let mut question = Vec::new();
    ended(server.read_to_end(&mut question).await)?;
    if question != b"question" {
        return Err(Verdict::Failed(format!(
            "the server read {} bytes before the end of the client's 8",
            question.len()
        )));
    }
    let answer = Random::new(subject.seed).bytes(ANSWER);
    let (sent, received) = tokio::join!(
        async {
            send(&mut server, &answer).await?;
            ended(server.shutdown().await)
        },
        async {
            receive(&mut client, &answer).await?;
            let mut more = Vec::new();
            match client.read_to_end(&mut more).await {
                Ok(0) => Ok(()),
                Ok(_) => Err("more bytes than were sent".to_owned()),
                Err(error) => Err(format!("no end, but {error}")),
            }
        }
    );
    sent?;
    received.map_err(|reason| Verdict::Failed(format!("to the client: {reason}")))?;
    drop((client, server));
    pair.finish().await
}

/// Aborts one end, and waits for the other to end.
pub(super) async fn reset(subject: &Subject) -> Result<(), Verdict> {
    let mut pair = Pair::of(subject)?;
    let (mut client, server) = pair.open().await?;
    server.abort(ErrorCode::ConnectionReset);
    drop(server);
    ends(&mut client, "the client").await?;
    let (client, mut server) = pair.open().await?;
    client.abort(ErrorCode::ConnectionReset);
    drop(client);
    ends(&mut server, "the server").await?;
    pair.finish().await
}

/// Writes until nothing more is taken, and then reads everything.
pub(super) async fn back_pressure(subject: &Subject) -> Result<(), Verdict> {
    let mut pair = Pair::of(subject)?;
    let (mut client, mut server) = pair.open().await?;
    let mut written = 0;
    let piece =
        |from: usize| -> Vec<u8> { (from..from + WRITE).map(|at| (at % 251) as u8).collect() };
    let mut rest = Vec::new();
    loop {
        if rest.is_empty() {
            rest = piece(written);
        }
        match timeout(STOPPED, client.write(&rest)).await {
            Err(_) => break,
            Ok(Err(error)) => return Err(Verdict::failed("a write", error)),
            Ok(Ok(count)) => {
                written += count;
                rest.drain(..count);
            }
        }
        if written > ENDLESS {
            return Err(Verdict::Failed(format!(
                "took {} MiB without a reader; read from the application only what fits",
                ENDLESS >> 20
            )));
        }
    }
    let mut buffer = vec![0; WRITE];
    let (finished, received) = tokio::join!(async { ended(client.shutdown().await) }, async {
        let mut seen = 0;
        loop {
            match server.read(&mut buffer).await {
                Ok(0) => break Ok(seen),
                Ok(count) => {
                    let right = |(at, byte): (usize, &u8)| *byte == ((seen + at) % 251) as u8;
                    if !buffer[..count].iter().enumerate().all(right) {
                        break Err(format!("wrong bytes after {seen}"));
                    }
                    seen += count;
                }
                Err(error) => break Err(format!("after {seen} bytes: {error}")),
            }
        }
    });
    finished?;
    let seen = received.map_err(Verdict::Failed)?;
    if seen != written {
        return Err(Verdict::Failed(format!(
            "the server read {seen} bytes of {written}"
        )));
    }
    drop((client, server));
    pair.finish().await
}

/// Opens many streams, and then uses all of them.
pub(super) async fn many(subject: &Subject) -> Result<(), Verdict> {
    let mut pair = Pair::of(subject)?;
    let mut open = Vec::new();
    for number in 0..MANY {
        let opened = pair.open().await;
        open.push(opened.map_err(|verdict| match verdict {
            Verdict::Failed(reason) => Verdict::Failed(format!("stream {number}: {reason}")),
            other => other,
        })?);
    }
    for (number, (client, server)) in open.iter_mut().enumerate() {
        let message = [number as u8; 1000];
        send(client, &message).await?;
        receive(server, &message)
            .await
            .map_err(|reason| Verdict::Failed(format!("stream {number}: {reason}")))?;
    }
    drop(open);
    pair.finish().await
}

/// Swaps the module at both ends while a stream answers messages.
pub(super) async fn swap(subject: &Subject) -> Result<(), Verdict> {
    let mut pair = Pair::of(subject)?;
    let (mut client, mut server) = pair.open().await?;
    let swapping = {
        let (at_server, at_client) = (pair.server.clone(), pair.dialer.clone());
        let module = subject.module.clone();
        async move {
            let swapped = at_server.swap_async(&module, SwapOptions::default()).await;
            swapped.map_err(|error| Verdict::failed("the server's swap", error))?;
            let swapped = at_client.swap(&module).await;
            swapped.map_err(|error| Verdict::failed("the client's swap", error))
        }
    };
    let answering = async {
        for number in 0..MESSAGES {
            let message = number.to_be_bytes();
            let lost = |reason| Verdict::Failed(format!("message {number}: {reason}"));
            send(&mut client, &message).await?;
            receive(&mut server, &message).await.map_err(lost)?;
            send(&mut server, &message).await?;
            receive(&mut client, &message).await.map_err(lost)?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    let (swapped, answered) = tokio::join!(swapping, answering);
    answered?;
    swapped?;
    // The new modules carry streams too.
    drop(pair.open().await?);
    drop((client, server));
    pair.finish().await
}

async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Verdict> {
    let sent = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    sent.await
        .map_err(|error| Verdict::failed("a write", error))
}

/// Reads as many bytes as were sent. The error says how they differ.
async fn receive(from: &mut (impl AsyncRead + Unpin), sent: &[u8]) -> Result<(), String> {
    let mut received = vec![0; sent.len()];
    let mut length = 0;
    while length < sent.len() {
        match from.read(&mut received[length..]).await {
            Ok(0) => return Err(format!("the end after {length} of {} bytes", sent.len())),
            Ok(count) => length += count,
            Err(error) => return Err(format!("after {length} of {} bytes: {error}", sent.len())),
        }
    }
    match received
        .iter()
        .zip(sent)
        .position(|(one, other)| one != other)
    {
        None => Ok(()),
        Some(at) => Err(format!("another byte at {at} of {}", sent.len())),
    }
}

/// Waits for the end of a stream, regular or not.
async fn ends(stream: &mut (impl AsyncRead + Unpin), name: &str) -> Result<(), Verdict> {
    let mut rest = Vec::new();
    match timeout(RESET, stream.read_to_end(&mut rest)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(Verdict::Failed(format!(
            "{name} does not learn of a reset within {} s",
            RESET.as_secs()
        ))),
    }
}

fn ended<T>(result: std::io::Result<T>) -> Result<(), Verdict> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => Err(Verdict::failed("the end of a direction", error)),
    }
}
