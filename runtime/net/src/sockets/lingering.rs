//! Lingering close: a connection that is finished here while its other end still sends. Used by
//! `tcp`.
//!
//! The kernel resets a connection that is closed while something is unread. The other end then
//! loses what it has not read yet, such as a TLS alert with the reason why its handshake fails.
//! `tcp` and the WATER host call [`linger`].

use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest time that the other end may take to read the last data: a few round trips.
const LONGEST: Duration = Duration::from_secs(2);

/// The most bytes that are read and discarded.
const MOST_BYTES: usize = 4 << 20;

/// The number of connections that may linger at once. One more is closed right away: each holds a
/// descriptor.
static ROOM: Semaphore = Semaphore::const_new(256);

/// Holds the connection of a stream open, whose write side is shut, until the other end closes it
/// too, or until that takes too long. The caller may drop the stream.
pub fn linger(stream: &TcpStream) {
    let (Ok(runtime), Ok(permit)) = (Handle::try_current(), ROOM.try_acquire()) else {
        return;
    };
    // This fails without a spare descriptor; the connection is then closed right away.
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
        // A timeout counts as the end.
        let _ = timeout(LONGEST, drain).await;
        drop(permit);
    });
}
