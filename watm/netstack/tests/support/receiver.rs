//! The receiving end of a connection, made by hand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use watm_core::Instant;

use super::packets;

/// The longest delay of a lone segment's acknowledgement, as in Linux.
const ACK_DELAY: Duration = Duration::from_millis(40);

/// The receiving end of a connection. It acknowledges every second segment, and out-of-order or
/// duplicate ones at once, with one range of RFC 2018 or RFC 2883.
pub struct Receiver {
    pub address: SocketAddr,
    pub peer: SocketAddr,
    /// The next sequence number of its own.
    pub sequence: u32,
    /// The next sequence number of the peer.
    pub next: u32,
    /// The window, unscaled.
    pub window: u16,
    unanswered: u32,
    /// The time when the acknowledgement is due.
    due: Option<Instant>,
    later: BTreeMap<u32, u32>,
}

fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl Receiver {
    pub fn new(address: SocketAddr, peer: SocketAddr, sequence: u32, next: u32) -> Receiver {
        Receiver {
            address,
            peer,
            sequence,
            next,
            window: u16::MAX,
            unanswered: 0,
            due: None,
            later: BTreeMap::new(),
        }
    }

    /// Takes bytes between two sequence numbers, and returns the acknowledgement that is due.
    pub fn take(&mut self, start: u32, end: u32, now: Instant) -> Option<Vec<u8>> {
        if !is_after(end, self.next) {
            return Some(self.acknowledge(Some((start, end))));
        }
        let in_order = start == self.next && self.later.is_empty();
        self.later
            .entry(start)
            .and_modify(|known| *known = if is_after(end, *known) { end } else { *known })
            .or_insert(end);
        while let Some((&start, &end)) = self.later.first_key_value()
            && !is_after(start, self.next)
        {
            self.later.remove(&start);
            if is_after(end, self.next) {
                self.next = end;
            }
        }
        self.unanswered += 1;
        if in_order && self.unanswered < 2 {
            self.due = Some(now + ACK_DELAY);
            return None;
        }
        // The piece beyond a gap that has just arrived, as far as it is contiguous.
        let mut piece: Option<(u32, u32)> = None;
        for (&first, &last) in &self.later {
            piece = match piece {
                Some((begun, before)) if !is_after(first, before) => {
                    Some((begun, if is_after(last, before) { last } else { before }))
                }
                Some((_, before)) if is_after(before, start) => break,
                _ => Some((first, last)),
            };
        }
        Some(self.acknowledge(piece))
    }

    /// The time at which [`on_time`](Self::on_time) has something to send.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the acknowledgement that has waited long enough.
    pub fn on_time(&mut self, now: Instant) -> Option<Vec<u8>> {
        let is_due = self.due.is_some_and(|at| at <= now);
        is_due.then(|| self.acknowledge(None))
    }

    fn acknowledge(&mut self, sack: Option<(u32, u32)>) -> Vec<u8> {
        self.unanswered = 0;
        self.due = None;
        packets::Tcp {
            source: self.address,
            destination: self.peer,
            control: TcpControl::None,
            sequence: self.sequence,
            acknowledges: Some(self.next),
            window: self.window,
            scale: None,
            payload: &[],
            sack,
        }
        .packet()
    }
}
