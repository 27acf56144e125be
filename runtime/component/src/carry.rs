//! Carries a connector's stream between the application's runtime and the module's thread. Called
//! by `connect`.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use crate::ErrorCode;
use watm_net::connect::Stream;
use watm_net::flow::StreamFlow;

/// The most bytes that are moved at once: a TLS record. An idle stream holds as much.
const PIECE: usize = 16 << 10;

/// The memory of a call to [`carry`], in bytes: a piece for each direction, and the task.
pub(super) const CARRY_BYTES: usize = 2 * PIECE + 4096;

/// Moves bytes both ways, each until its end, or until one way fails: then the module's calls fail
/// with the cause. They also fail if the future is dropped, with the runtime that it is in.
pub(super) async fn carry(stream: Box<dyn Stream>, flow: StreamFlow) {
    let mut carried = Carried { flow, whole: false };
    let flow = &carried.flow;
    let (reader, writer) = split(stream);
    let (mut inward, mut outward) = (pin!(inward(reader, flow)), pin!(outward(flow, writer)));
    let mut open = (true, true);
    let ended = poll_fn(|cx| {
        if open.0
            && let Poll::Ready(result) = inward.as_mut().poll(cx)
        {
            result?;
            open.0 = false;
        }
        if open.1
            && let Poll::Ready(result) = outward.as_mut().poll(cx)
        {
            result?;
            open.1 = false;
        }
        match open {
            (false, false) => Poll::Ready(Ok::<(), io::Error>(())),
            _ => Poll::Pending,
        }
    });
    if let Err(error) = ended.await {
        carried.flow.abort((&error).into());
    }
    carried.whole = true;
}

/// A flow that is reset when it is dropped, unless all of it was carried: truncated data must not
/// look complete.
struct Carried {
    flow: StreamFlow,
    whole: bool,
}

impl Drop for Carried {
    fn drop(&mut self) {
        if !self.whole {
            self.flow.abort(ErrorCode::ConnectionReset);
        }
    }
}

async fn inward(mut reader: impl AsyncRead + Unpin, flow: &StreamFlow) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        let count = reader.read(&mut buffer).await?;
        let taken = match count {
            0 => flow.shutdown_write(),
            _ => match poll_fn(|cx| flow.poll_drained(cx)).await {
                Ok(()) => flow.queue_write(&buffer[..count]),
                error => error,
            },
        };
        // An error means that the module has stopped reading. It decides itself what happens to the
        // rest.
        if count == 0 || taken.is_err() {
            return Ok(());
        }
    }
}

async fn outward(flow: &StreamFlow, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
    loop {
        let data = poll_fn(|cx| flow.poll_read_some(cx, PIECE)).await?;
        if data.is_empty() {
            return writer.shutdown().await;
        }
        writer.write_all(&data).await?;
        // The writer may buffer until it is flushed.
        writer.flush().await?;
    }
}
