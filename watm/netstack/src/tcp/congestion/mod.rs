//! Congestion control: the interface between a connection and an algorithm, and the algorithms.
//!
//! A connection owns one [`Congestion`]. It reports every transmission, every acknowledgement,
//! every loss, and the changes of its recovery, and sends as much as
//! [`window`](Congestion::window), [`pacing_rate`](Congestion::pacing_rate) and
//! [`send_quantum`](Congestion::send_quantum) allow. An algorithm has no clock, and sees no
//! packets.
//!
//! # The order of calls
//!
//! 1. [`on_idle_restart`](Congestion::on_idle_restart), then [`on_send`](Congestion::on_send), for
//!    a transmission when nothing is in flight; otherwise `on_send` alone.
//! 2. For each acknowledgement: [`on_undo`](Congestion::on_undo) if it shows that a recovery or a
//!    timeout was spurious, [`on_loss`](Congestion::on_loss) for each run of segments that it marks
//!    as lost, [`on_recovery`](Congestion::on_recovery) if a recovery begins with them,
//!    [`on_recovery_end`](Congestion::on_recovery_end) if one is over,
//!    [`on_repeated_echo`](Congestion::on_repeated_echo) if it echoes congestion again, and at last
//!    [`on_ack`](Congestion::on_ack), whose numbers include all of that.
//! 3. RACK's timer marks losses without an acknowledgement: `on_loss`, then `on_recovery`.
//! 4. A retransmission timeout: [`on_timeout`](Congestion::on_timeout). The segments in flight are
//!    lost by definition, and are not reported one by one.
//!
//! All sizes are in bytes of payload, without headers.

mod bbr;
mod cubic;
mod queueing;
mod rate;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;

use watm_core::Instant;

pub(crate) use bbr::Bbr;
pub(crate) use cubic::Cubic;
pub(crate) use rate::{Delivery, Rate, RateSample, Stamp};

pub(crate) use crate::config::Algorithm;

/// The initial window in segments, and its bytes if segments are long (RFC 6928 section 2).
pub(crate) const INITIAL_SEGMENTS: usize = 10;
const INITIAL_BYTES: usize = 14_600;
/// The least initial window in segments, however long they are.
const LEAST_INITIAL_SEGMENTS: usize = 2;

impl Algorithm {
    /// Makes the state of a connection whose handshake is complete.
    pub(crate) fn start(self, start: &Start) -> Box<dyn Congestion> {
        match self {
            Algorithm::Cubic => Box::new(Cubic::new(start)),
            Algorithm::Bbr => Box::new(Bbr::new(start)),
        }
    }
}

/// The initial window in bytes for full segments of `segment` bytes (RFC 6928 section 2).
fn initial_window(segment: usize) -> usize {
    let least = segment.saturating_mul(LEAST_INITIAL_SEGMENTS);
    let most = segment.saturating_mul(INITIAL_SEGMENTS);
    most.min(least.max(INITIAL_BYTES))
}

/// The state of one connection's congestion control. See the module's documentation for the order
/// of calls.
pub(crate) trait Congestion: fmt::Debug {
    /// The bytes that may be in flight: at least one segment.
    fn window(&self) -> usize;

    /// The bytes per second at which to send, or `None` to send as fast as the window allows.
    fn pacing_rate(&self) -> Option<u64>;

    /// The most bytes that leave at once while a pacing rate is set: at least one segment.
    fn send_quantum(&self) -> usize;

    /// Adapts to full segments of this many bytes, because the path's MTU has changed.
    fn set_segment(&mut self, segment: usize);

    /// Handles the end of an idle time: the connection sends again, with nothing in flight before.
    fn on_idle_restart(&mut self, restart: &IdleRestart);

    /// Handles a transmission, of new bytes or of lost ones.
    fn on_send(&mut self, sent: &Sent);

    /// Handles an acknowledgement that delivers bytes.
    fn on_ack(&mut self, ack: &Ack);

    /// Handles a further echo in a window of data for which the congestion window shrank already
    /// (RFC 3168 section 6.1.2). An undo must then keep the reduction.
    fn on_repeated_echo(&mut self) {}

    /// Handles a run of segments that are marked as lost.
    fn on_loss(&mut self, loss: &Loss);

    /// Handles the begin of fast recovery (RFC 5681 section 3.2, RFC 6675 section 5).
    fn on_recovery(&mut self, recovery: &Recovery);

    /// Handles the end of fast recovery, or of the recovery after a timeout: everything that was in
    /// flight at its begin is acknowledged.
    fn on_recovery_end(&mut self, now: Instant);

    /// Handles a retransmission timeout (RFC 5681 section 3.1).
    fn on_timeout(&mut self, timeout: &Timeout);

    /// Takes back the reactions to losses or to a timeout that turn out to be spurious: the
    /// segments were only late (RFC 4015, RFC 5682), or arrived twice (RFC 3708). This may come
    /// after the end of the recovery, until another one begins.
    fn on_undo(&mut self, undo: &Undo);
}

/// The beginning of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub now: Instant,
    /// The bytes of a full segment.
    pub segment: usize,
    /// The round trip of the handshake, unless a packet of it was sent more than once.
    pub round_trip: Option<Duration>,
    /// True if the handshake lost a packet: the initial window is one segment (RFC 5681
    /// section 3.1).
    pub lost_handshake: bool,
    /// True if the peer acknowledges selectively (RFC 2018).
    pub selective: bool,
    /// A number that differs between connections and is unpredictable, for random choices.
    pub seed: u64,
}

/// A transmission that ends an idle time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleRestart {
    pub now: Instant,
    /// The time since the last transmission.
    pub idle: Duration,
    /// True if the connection was limited by its application before (Linux: `app_limited`).
    pub app_limited: bool,
}

/// A transmission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub now: Instant,
    /// The bytes in flight with them.
    pub in_flight: usize,
}

/// An acknowledgement, after all of its content was processed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack {
    pub now: Instant,
    /// The bytes newly acknowledged, in order or selectively.
    pub delivered: usize,
    /// The bytes by which the acknowledgement number advanced.
    pub acknowledged: usize,
    /// The bytes in flight now: sent, and neither acknowledged in any way nor lost.
    pub in_flight: usize,
    /// The bytes delivered in all (C.delivered of draft-ietf-ccwg-bbr).
    pub total_delivered: u64,
    /// The round trip measured by it. Segments that were retransmitted are not measured, unless
    /// timestamps tell which transmission is acknowledged.
    pub round_trip: Option<Duration>,
    /// The smoothed round trip of RFC 6298, and the least one seen on this path; zero before the
    /// first measurement.
    pub smoothed: Duration,
    pub least: Duration,
    /// The rate of delivery, unless no segment was newly delivered.
    pub rate: Option<RateSample>,
    pub phase: Phase,
    /// True if the window had no room for another full segment at some time in the last round trip
    /// (RFC 7661 section 4.3), and the most bytes in flight in it.
    pub window_limited: bool,
    pub most_in_flight: usize,
    /// True if the peer echoes congestion (ECE) that no reduction has answered yet.
    pub congestion_echoed: bool,
}

/// The recovery of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No loss is being repaired.
    Open,
    /// Fast recovery.
    Recovery,
    /// Recovery after a retransmission timeout.
    Timeout,
}

/// A run of segments that were sent at the same time and are now marked as lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loss {
    pub now: Instant,
    pub bytes: usize,
    /// The bytes in flight when the run was sent, itself included (`tx_in_flight` of
    /// draft-ietf-ccwg-bbr).
    pub sent_in_flight: usize,
    /// The bytes lost since the run was sent, itself included (C.lost - P.lost).
    pub lost_since_sent: u64,
    pub total_delivered: u64,
    /// True if the application limited the connection when the run was sent.
    pub app_limited: bool,
    /// True if the window was full at some time in the last round trip.
    pub window_limited: bool,
}

/// The begin of fast recovery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recovery {
    pub total_delivered: u64,
}

/// A retransmission timeout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeout {
    pub now: Instant,
    /// The bytes in flight before, which are taken for lost.
    pub in_flight: usize,
    /// The number of timeouts in a row, at least 1.
    pub in_a_row: u32,
    pub total_delivered: u64,
    /// True if the application limited the connection when the first segment in flight was sent.
    pub app_limited: bool,
    /// True if the window was full at some time in the last round trip.
    pub window_limited: bool,
}

/// A spurious recovery or timeout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Undo {
    /// The bytes that were marked as lost and are not.
    pub not_lost: usize,
}
