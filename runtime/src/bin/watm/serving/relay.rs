//! Moves what a flow and its upstream have for each other.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use watm_runtime::{DatagramFlow, StreamFlow};

use super::outcome::Ending;
use super::traffic::Traffic;

/// Bytes that are read at once: what a fast upstream has for one turn of the thread. Also the largest
/// datagram.
const PIECE: usize = 128 << 10;

/// Datagrams that are moved before others have their turn.
const BURST: usize = 64;

/// How long an upstream may take to take what a client had sent before it was gone.
const PASSING_ON: Duration = Duration::from_secs(2);

thread_local! {
    /// What is read on this thread, before it is a flow's: no connection needs memory while it is
    /// silent.
    static PIECES: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// Both directions, each until its end, which is passed on; or until one fails.
pub(super) async fn streams(
    flow: &StreamFlow,
    (mut reader, mut writer): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    traffic: &Traffic,
) -> Ending {
    let mut outward = pin!(to_upstream(flow, &mut writer, traffic));
    let mut inward = pin!(to_client(flow, &mut reader, traffic));
    let both = async {
        tokio::select! {
            sent = &mut outward => {
                sent?;
                inward.await
            }
            returned = &mut inward => {
                if returned == Err(Ending::ClientReset) {
                    // What came before is passed on; it is there already.
                    let _ = timeout(PASSING_ON, outward).await;
                    return returned;
                }
                returned?;
                outward.await
            }
        }
    };
    match both.await {
        Ok(()) => Ending::Done,
        Err(ending) => ending,
    }
}

async fn to_upstream(
    flow: &StreamFlow,
    writer: &mut (impl AsyncWrite + Unpin),
    traffic: &Traffic,
) -> Result<(), Ending> {
    loop {
        let data = poll_fn(|cx| flow.poll_read_some(cx, PIECE))
            .await
            .map_err(|_| Ending::ClientReset)?;
        if data.is_empty() {
            break;
        }
        traffic.receive(data.len());
        writer
            .write_all(&data)
            .await
            .map_err(|_| Ending::UpstreamReset)?;
    }
    writer.shutdown().await.map_err(|_| Ending::UpstreamReset)
}

async fn to_client(
    flow: &StreamFlow,
    reader: &mut (impl AsyncRead + Unpin),
    traffic: &Traffic,
) -> Result<(), Ending> {
    while poll_fn(|cx| poll_piece(flow, reader, traffic, cx)).await? > 0 {
        // Or a slow client would have all of it in memory.
        poll_fn(|cx| flow.poll_drained(cx))
            .await
            .map_err(|_| Ending::ClientReset)?;
    }
    flow.shutdown_write().map_err(|_| Ending::ClientReset)?;
    poll_fn(|cx| flow.poll_flushed(cx))
        .await
        .map_err(|_| Ending::ClientReset)
}

/// Read once, and queue it for the client; how much. 0: the end.
fn poll_piece(
    flow: &StreamFlow,
    reader: &mut (impl AsyncRead + Unpin),
    traffic: &Traffic,
    cx: &mut Context<'_>,
) -> Poll<Result<usize, Ending>> {
    PIECES.with_borrow_mut(|piece| {
        let mut piece = ReadBuf::new(piece);
        let read = ready!(Pin::new(reader).poll_read(cx, &mut piece));
        read.map_err(|_| Ending::UpstreamReset)?;
        let data = piece.filled();
        if !data.is_empty() {
            flow.queue_write(data).map_err(|_| Ending::ClientReset)?;
            traffic.send(data.len());
        }
        Poll::Ready(Ok(data.len()))
    })
}

/// Datagrams both ways, until the flow ends, each that goes to the upstream with `before` in front of
/// it. One that cannot be delivered is lost, as on any network.
pub(super) async fn datagrams(
    flow: &DatagramFlow,
    (socket, before): (&UdpSocket, &[u8]),
    traffic: &Traffic,
) -> Ending {
    let outward = async {
        let mut whole = before.to_vec();
        loop {
            match poll_fn(|cx| flow.poll_receive(cx)).await {
                Ok(Some(datagram)) => {
                    traffic.receive(datagram.len());
                    whole.truncate(before.len());
                    whole.extend_from_slice(&datagram);
                    // The first error may be of an earlier datagram, and this one not sent; another:
                    // nobody listens there now.
                    if socket.send(&whole).await.is_err() {
                        let _ = socket.send(&whole).await;
                    }
                }
                Ok(None) => return Ending::Done,
                Err(_) => return Ending::ClientReset,
            }
        }
    };
    let inward = async {
        loop {
            if poll_fn(|cx| poll_datagrams(flow, socket, traffic, cx))
                .await
                .is_err()
            {
                return Ending::Done;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ending = outward => ending,
        ending = inward => ending,
    }
}

/// A burst for the client. An error: the flow has ended.
fn poll_datagrams(
    flow: &DatagramFlow,
    socket: &UdpSocket,
    traffic: &Traffic,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    PIECES.with_borrow_mut(|piece| {
        for _ in 0..BURST {
            let mut piece = ReadBuf::new(piece);
            // An error is of a datagram that was sent, which nobody took.
            if ready!(socket.poll_recv(cx, &mut piece)).is_ok() {
                let data = piece.filled();
                traffic.send(data.len());
                flow.send(data)?;
            }
        }
        Poll::Ready(Ok(()))
    })
}
