//! The end of a connection whose other end still sends.
//!
//! The kernel resets a connection that is closed while something is unread, and the other end then
//! loses what it has not read yet: a TLS alert, for one, that says why its handshake fails.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long the other end may take to read what was said to it last: a few round trips.
const LONGEST: Duration = Duration::from_secs(2);

/// The most that is read and thrown away.
const MOST_BYTES: usize = 4 << 20;

/// Connections at once. One more is closed right away: each holds a descriptor.
static ROOM: Semaphore = Semaphore::const_new(256);

/// Holds the connection of a stream open, whose write side is shut, until the other end closes it
/// too, or until that takes too long. The stream itself may be dropped.
pub(crate) fn linger(stream: &TcpStream) {
    let (Ok(runtime), Ok(permit)) = (Handle::try_current(), ROOM.try_acquire()) else {
        return;
    };
    // Fails without a descriptor to spare, and the connection is closed right away then.
    let socket = SockRef::from(stream).try_clone();
    let Some(mut held) = socket
        .and_then(|socket| TcpStream::from_std(socket.into()))
        .ok()
    else {
        return;
    };
    runtime.spawn(async move {
        let drain = async {
            let (mut piece, mut left) = ([0; 16 << 10], MOST_BYTES);
            while let Ok(count @ 1..) = held.read(&mut piece).await {
                left = left.saturating_sub(count);
                if left == 0 {
                    break;
                }
            }
        };
        // Too long is as good as the end.
        let _ = timeout(LONGEST, drain).await;
        drop(permit);
    });
}
