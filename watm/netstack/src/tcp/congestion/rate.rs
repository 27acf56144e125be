//! Delivery rates (draft-cheng-iccrg-delivery-rate-estimation).
//!
//! Each transmission carries a [`Stamp`] of the connection's [`Rate`] at that time. An
//! acknowledgement opens a [`Delivery`], adds the stamps of what it delivers, and closes it into a
//! [`RateSample`].

use core::time::Duration;

use watm_core::Instant;

/// The deliveries of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rate {
    /// The bytes delivered (C.delivered), and lost (C.lost).
    delivered: u64,
    lost: u64,
    /// The time of the last delivery (C.delivered_time).
    delivered_at: Instant,
    /// The time of the transmission that was delivered last (C.first_sent_time).
    first_sent: Instant,
    /// The end of the bytes that the application limited, as a count of delivered bytes; 0 if it
    /// did not (C.app_limited).
    app_limited: u64,
}

/// The deliveries at the time of a transmission. It belongs to the transmission.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stamp {
    pub delivered: u64,
    pub lost: u64,
    pub delivered_at: Instant,
    pub first_sent: Instant,
    /// The bytes in flight, the transmission included.
    pub in_flight: u32,
    pub app_limited: bool,
}

/// The deliveries of one acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivery {
    bytes: usize,
    /// The stamp of the most recently sent transmission among them, and the time when it was sent.
    last: Option<(Stamp, Instant)>,
}

/// A measured rate of delivery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateSample {
    /// The bytes delivered in `interval`.
    pub delivered: u64,
    /// The quotient in bytes per second, or `None` if the interval is shorter than the least round
    /// trip, and the sample is thus not valid.
    pub rate: Option<u64>,
    /// True if the application limited the connection, so that the path may be faster.
    pub app_limited: bool,
    /// The bytes delivered when the newest delivered transmission was sent (P.delivered). A round
    /// trip has passed when this reaches the total at the start of the round.
    pub prior_delivered: u64,
    /// The bytes in flight when it was sent, itself included (`tx_in_flight`).
    pub sent_in_flight: usize,
    /// The bytes lost since then (RS.lost).
    pub lost: u64,
}

impl Rate {
    /// The bytes delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The bytes lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns true if the application limits the connection.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited > 0
    }

    /// Stamps a transmission at `now` (section 3.2). `before` are the bytes in flight without it,
    /// `with` those with it.
    pub(crate) fn stamp(&mut self, before: usize, with: usize, now: Instant) -> Stamp {
        if before == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        Stamp {
            delivered: self.delivered,
            lost: self.lost,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight: u32::try_from(with).unwrap_or(u32::MAX),
            app_limited: self.app_limited > 0,
        }
    }

    /// Records that the application, or the peer's closed window, leaves nothing to send, with this
    /// many bytes in flight and less than the congestion window (section 3.4).
    pub(crate) fn limit_by_application(&mut self, in_flight: usize) {
        self.app_limited = (self.delivered + in_flight as u64).max(1);
    }

    /// Records lost bytes.
    pub(crate) fn lose(&mut self, bytes: usize) {
        self.lost += bytes as u64;
    }

    /// Takes back lost bytes that were not.
    pub(crate) fn not_lost(&mut self, bytes: usize) {
        self.lost = self.lost.saturating_sub(bytes as u64);
    }

    /// Adds delivered bytes of a transmission, sent at `sent`, to the deliveries of an
    /// acknowledgement (section 3.3, UpdateRateSample).
    pub(crate) fn deliver(
        &mut self,
        delivery: &mut Delivery,
        bytes: usize,
        (stamp, sent): (&Stamp, Instant),
        now: Instant,
    ) {
        self.delivered += bytes as u64;
        self.delivered_at = now;
        delivery.bytes += bytes;
        let newest = delivery
            .last
            .is_none_or(|(last, at)| (stamp.delivered, sent) >= (last.delivered, at));
        if newest {
            delivery.last = Some((*stamp, sent));
        }
    }

    /// Makes the sample of an acknowledgement, of a path whose least round trip is `least`
    /// (section 3.3, GenerateRateSample).
    pub(crate) fn sample(&mut self, delivery: Delivery, least: Duration) -> Option<RateSample> {
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let (stamp, sent) = delivery.last?;
        self.first_sent = sent;
        let sending = sent - stamp.first_sent;
        let acknowledging = self.delivered_at - stamp.delivered_at;
        let interval = sending.max(acknowledging);
        let delivered = self.delivered - stamp.delivered;
        let nanos = interval.as_nanos();
        let valid = interval >= least && nanos > 0;
        let rate = valid.then(|| {
            let rate = u128::from(delivered) * 1_000_000_000 / nanos.max(1);
            u64::try_from(rate).unwrap_or(u64::MAX)
        });
        Some(RateSample {
            delivered,
            rate,
            app_limited: stamp.app_limited,
            prior_delivered: stamp.delivered,
            sent_in_flight: stamp.in_flight as usize,
            lost: self.lost.saturating_sub(stamp.lost),
        })
    }
}

impl Delivery {
    /// The bytes delivered.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::default() + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_rate_is_that_of_a_round_trip() {
        let mut rate = Rate::default();
        // Two transmissions, acknowledged one after the other, 100 ms later.
        let first = rate.stamp(0, 1000, at(0));
        let second = rate.stamp(1000, 2000, at(10));
        let mut delivery = Delivery::default();
        rate.deliver(&mut delivery, 1000, (&first, at(0)), at(100));
        let sample = rate.sample(delivery, Duration::from_millis(100)).unwrap();
        assert_eq!((sample.delivered, sample.rate), (1000, Some(10_000)));
        let third = rate.stamp(1000, 2000, at(100));
        let mut delivery = Delivery::default();
        rate.deliver(&mut delivery, 1000, (&second, at(10)), at(110));
        let sample = rate.sample(delivery, Duration::from_millis(100)).unwrap();
        assert_eq!((sample.delivered, sample.rate), (2000, Some(18_181)));
        // The third was sent when the first was delivered; the second's rate counts for it.
        let mut delivery = Delivery::default();
        rate.deliver(&mut delivery, 1000, (&third, at(100)), at(200));
        let sample = rate.sample(delivery, Duration::from_millis(100)).unwrap();
        assert_eq!((sample.delivered, sample.rate), (2000, Some(20_000)));
        assert_eq!(sample.prior_delivered, 1000);
    }

    #[test]
    fn a_rate_of_less_than_a_round_trip_is_not_valid() {
        let mut rate = Rate::default();
        let stamp = rate.stamp(0, 1000, at(0));
        let mut delivery = Delivery::default();
        rate.deliver(&mut delivery, 1000, (&stamp, at(0)), at(10));
        let sample = rate.sample(delivery, Duration::from_millis(11)).unwrap();
        assert_eq!(sample.rate, None);
        assert!(rate.sample(Delivery::default(), Duration::ZERO).is_none());
    }

    #[test]
    fn a_limited_application_marks_what_is_sent_until_its_bytes_are_delivered() {
        let mut rate = Rate::default();
        let first = rate.stamp(0, 1000, at(0));
        rate.limit_by_application(1000);
        let second = rate.stamp(1000, 2000, at(1));
        assert!(!first.app_limited && second.app_limited);
        let mut delivery = Delivery::default();
        rate.deliver(&mut delivery, 1000, (&first, at(0)), at(10));
        rate.sample(delivery, Duration::ZERO);
        assert!(rate.is_app_limited());
        let mut delivery = Delivery::default();
        rate.deliver(&mut delivery, 1000, (&second, at(1)), at(11));
        assert!(rate.sample(delivery, Duration::ZERO).unwrap().app_limited);
        assert!(!rate.is_app_limited());
    }

    #[test]
    fn losses_since_a_transmission_are_counted() {
        let mut rate = Rate::default();
        rate.lose(500);
        let stamp = rate.stamp(0, 1000, at(0));
        rate.lose(700);
        let mut delivery = Delivery::default();
        rate.deliver(&mut delivery, 1000, (&stamp, at(0)), at(10));
        assert_eq!(rate.sample(delivery, Duration::ZERO).unwrap().lost, 700);
        rate.not_lost(700);
        assert_eq!(rate.lost(), 500);
        assert_eq!(delivery.bytes(), 1000);
    }
}
