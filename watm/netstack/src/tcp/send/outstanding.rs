//! The scoreboard: what was sent and is not acknowledged, with the time and fate of each
//! transmission (RFC 2018, RFC 6675, RFC 8985).

use std::collections::VecDeque;

use watm_core::Instant;

use crate::tcp::congestion::Stamp;
use crate::tcp::sequence::Sequence;

/// The most transmissions remembered. A peer whose reports would split them into more is not
/// believed any further; the content is retransmitted needlessly.
const MOST: usize = 8192;
/// The most transmissions in flight before another one waits. The rest is for their parts.
const MOST_SENT: usize = MOST / 2;

/// The fate of a transmission, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    InFlight,
    /// The peer has it, beyond a gap.
    Received,
    /// To be retransmitted.
    Lost,
}

/// A range that was sent at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transmission {
    pub start: Sequence,
    pub end: Sequence,
    pub sent: Instant,
    pub stamp: Stamp,
    pub fate: Fate,
    /// True if it was sent more than once.
    pub again: bool,
    /// The number of its segments, once it is received.
    pub segments: u16,
}

impl Transmission {
    pub(crate) fn len(&self) -> usize {
        self.start.until(self.end)
    }
}

/// The transmissions in their order, without gaps between them, and the bytes of each fate.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    all: VecDeque<Transmission>,
    in_flight: usize,
    received: usize,
    lost: usize,
}

impl Outstanding {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if another transmission must wait, whatever its length.
    pub(crate) fn is_full(&self) -> bool {
        self.all.len() >= MOST_SENT
    }

    /// The bytes that are in flight: sent, and neither received nor lost.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The bytes that the peer has beyond gaps.
    pub(crate) fn received(&self) -> usize {
        self.received
    }

    /// The bytes to retransmit.
    pub(crate) fn lost(&self) -> usize {
        self.lost
    }

    pub(crate) fn first(&self) -> Option<&Transmission> {
        self.all.front()
    }

    pub(crate) fn last(&self) -> Option<&Transmission> {
        self.all.back()
    }

    /// The number from which on at least `bytes` bytes are received, if there are as many.
    pub(crate) fn received_from(&self, bytes: usize) -> Option<Sequence> {
        if self.received < bytes {
            return None;
        }
        let received = |sent: &&Transmission| sent.fate == Fate::Received;
        let mut beyond = 0;
        let enough = |sent: &&Transmission| {
            beyond += sent.len();
            beyond >= bytes
        };
        let mut received_backwards = self.all.iter().rev().filter(received);
        received_backwards.find(enough).map(|sent| sent.start)
    }

    /// Returns true if the peer has at least this many segments beyond gaps.
    pub(crate) fn has_received_segments(&self, segments: u16) -> bool {
        if self.received == 0 {
            return false;
        }
        let received = |sent: &&Transmission| sent.fate == Fate::Received;
        let mut count = 0u16;
        self.all.iter().rev().filter(received).any(|sent| {
            count = count.saturating_add(sent.segments);
            count >= segments
        })
    }

    /// Adds a transmission of new bytes.
    pub(crate) fn push(&mut self, sent: Transmission) {
        *self.count(sent.fate) += sent.len();
        self.all.push_back(sent);
    }

    /// Forgets everything before `to`. Calls `delivered` for each piece that was not received
    /// before.
    pub(crate) fn acknowledge(&mut self, to: Sequence, mut delivered: impl FnMut(&Transmission)) {
        while let Some(first) = self.all.front_mut() {
            if !to.is_after(first.start) {
                return;
            }
            let mut piece = *first;
            piece.end = piece.end.earlier(to);
            first.start = piece.end;
            if first.len() == 0 {
                self.all.pop_front();
            }
            *self.count(piece.fate) -= piece.len();
            if piece.fate != Fate::Received {
                delivered(&piece);
            }
        }
        // An idle connection needs no memory for it.
        self.all = VecDeque::new();
    }

    /// Records that the peer has everything between `start` and `end`. Transmissions are divided at
    /// multiples of `segment` bytes only. The one that begins at `whole` is one segment, however
    /// long. Calls `delivered` for each piece that was not received before.
    pub(crate) fn receive(
        &mut self,
        (start, end): (Sequence, Sequence),
        segment: usize,
        whole: Option<Sequence>,
        mut delivered: impl FnMut(&Transmission),
    ) {
        let mut at = self.index_of(start);
        while at < self.all.len() && end.is_after(self.all[at].start) {
            let sent = self.all[at];
            if sent.fate == Fate::Received {
                at += 1;
                continue;
            }
            let skipped = sent.start.until(start).next_multiple_of(segment);
            let covered = match end.is_after(sent.end) || end == sent.end {
                true => sent.len(),
                false => sent.start.until(end) / segment * segment,
            };
            if covered <= skipped || self.all.len() + 2 > MOST {
                at += 1;
                continue;
            }
            self.split(at, covered);
            if self.split(at, skipped) {
                at += 1;
            }
            let piece = self.all[at];
            self.change(at, Fate::Received);
            let segments = match whole == Some(piece.start) {
                true => 1,
                false => piece.len().div_ceil(segment),
            };
            self.all[at].segments = u16::try_from(segments).unwrap_or(u16::MAX);
            delivered(&piece);
            at = self.merge(at) + 1;
        }
    }

    /// Marks transmissions in flight as lost, or keeps them, as `judge` decides with each one.
    pub(crate) fn lose(&mut self, mut judge: impl FnMut(&Transmission) -> bool) {
        for index in 0..self.all.len() {
            let sent = &self.all[index];
            if sent.fate == Fate::InFlight && judge(sent) {
                self.change(index, Fate::Lost);
            }
        }
    }

    /// Marks the first `bytes` bytes as lost, if they are in flight. Returns the transmission.
    pub(crate) fn lose_first(&mut self, bytes: usize) -> Option<Transmission> {
        self.all
            .front()
            .filter(|sent| sent.fate == Fate::InFlight)?;
        self.split(0, bytes);
        let sent = self.all[0];
        self.change(0, Fate::Lost);
        Some(sent)
    }

    /// Marks everything as lost that is not received, or everything if the peer `reneged` on what
    /// it had (RFC 2018 section 8).
    pub(crate) fn lose_all(&mut self, reneged: bool) {
        for index in 0..self.all.len() {
            if reneged || self.all[index].fate != Fate::Received {
                self.change(index, Fate::Lost);
            }
        }
    }

    /// Marks everything lost as in flight again.
    pub(crate) fn find_all(&mut self) {
        for index in 0..self.all.len() {
            if self.all[index].fate == Fate::Lost {
                self.change(index, Fate::InFlight);
            }
        }
    }

    /// The first lost range.
    pub(crate) fn first_lost(&self) -> Option<&Transmission> {
        if self.lost == 0 {
            return None;
        }
        self.all.iter().find(|sent| sent.fate == Fate::Lost)
    }

    /// Records that the range from `start` to `end` was sent again, of which both are in one
    /// transmission.
    pub(crate) fn sent_again(
        &mut self,
        start: Sequence,
        end: Sequence,
        now: Instant,
        stamp: Stamp,
    ) {
        let mut at = self.index_of(start);
        let Some(sent) = self.all.get(at).copied() else {
            return;
        };
        if self.split(at, sent.start.until(start)) {
            at += 1;
        }
        self.split(at, start.until(end));
        self.change(at, Fate::InFlight);
        let sent = &mut self.all[at];
        (sent.sent, sent.stamp, sent.again) = (now, stamp, true);
    }

    /// The index of the first transmission that ends after `start`.
    fn index_of(&self, start: Sequence) -> usize {
        self.all.partition_point(|sent| !sent.end.is_after(start))
    }

    /// Divides a transmission after `bytes` bytes. Returns true if there are two of it now.
    fn split(&mut self, at: usize, bytes: usize) -> bool {
        let sent = &mut self.all[at];
        if bytes == 0 || bytes >= sent.len() {
            return false;
        }
        let mut rest = *sent;
        rest.start = sent.start.plus(bytes);
        sent.end = rest.start;
        self.all.insert(at + 1, rest);
        true
    }

    /// Makes one of a received transmission and received neighbors. Returns its index.
    fn merge(&mut self, mut at: usize) -> usize {
        let received = |all: &VecDeque<Transmission>, at: usize| {
            all.get(at).is_some_and(|sent| sent.fate == Fate::Received)
        };
        if received(&self.all, at + 1) {
            self.append_next(at);
        }
        if at > 0 && received(&self.all, at - 1) {
            at -= 1;
            self.append_next(at);
        }
        at
    }

    /// Appends the next transmission to this one.
    fn append_next(&mut self, at: usize) {
        if let Some(next) = self.all.remove(at + 1) {
            let sent = &mut self.all[at];
            sent.end = next.end;
            sent.segments = sent.segments.saturating_add(next.segments);
        }
    }

    fn change(&mut self, at: usize, fate: Fate) {
        let len = self.all[at].len();
        let before = std::mem::replace(&mut self.all[at].fate, fate);
        *self.count(before) -= len;
        *self.count(fate) += len;
    }

    /// The bytes of this fate.
    fn count(&mut self, fate: Fate) -> &mut usize {
        match fate {
            Fate::InFlight => &mut self.in_flight,
            Fate::Received => &mut self.received,
            Fate::Lost => &mut self.lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 100;

    /// Two transmissions of ten segments each, whose numbers wrap.
    fn sent() -> (Outstanding, Sequence) {
        let first = Sequence(u32::MAX - 499);
        let mut outstanding = Outstanding::default();
        for number in 0..2 {
            let start = first.plus(number * 1000);
            outstanding.push(Transmission {
                start,
                end: start.plus(1000),
                sent: Instant(number as u64),
                stamp: Stamp::default(),
                fate: Fate::InFlight,
                again: false,
                segments: 0,
            });
        }
        (outstanding, first)
    }

    fn fates(outstanding: &Outstanding, first: Sequence) -> Vec<(usize, usize, Fate)> {
        let fate =
            |sent: &Transmission| (first.until(sent.start), first.until(sent.end), sent.fate);
        outstanding.all.iter().map(fate).collect()
    }

    #[test]
    fn reports_divide_transmissions_at_segments() {
        use Fate::{InFlight, Received};
        let (mut outstanding, first) = sent();
        let mut came = Vec::new();
        let mut receive = |outstanding: &mut Outstanding, start, end| {
            let block = (first.plus(start), first.plus(end));
            outstanding.receive(block, SEGMENT, None, |sent| {
                came.push((sent.len(), sent.sent.0))
            });
        };
        // Bytes that are less than a segment at each end are not taken.
        receive(&mut outstanding, 150, 480);
        assert_eq!(
            fates(&outstanding, first),
            [
                (0, 200, InFlight),
                (200, 400, Received),
                (400, 1000, InFlight),
                (1000, 2000, InFlight)
            ]
        );
        // Over the border of two transmissions, and beside what was received before.
        receive(&mut outstanding, 400, 1100);
        receive(&mut outstanding, 1900, 2000);
        assert_eq!(
            fates(&outstanding, first),
            [
                (0, 200, InFlight),
                (200, 1100, Received),
                (1100, 1900, InFlight),
                (1900, 2000, Received)
            ]
        );
        assert_eq!(came, [(200, 0), (600, 0), (100, 1), (100, 1)]);
        let counts = |o: &Outstanding| (o.in_flight(), o.received(), o.lost());
        assert_eq!(counts(&outstanding), (1000, 1000, 0));
        let from = |bytes| outstanding.received_from(bytes);
        assert_eq!(from(100), Some(first.plus(1900)));
        assert_eq!(from(101), Some(first.plus(200)));
        assert_eq!((from(1000), from(1001)), (Some(first.plus(200)), None));
        assert!(outstanding.has_received_segments(10) && !outstanding.has_received_segments(11));
        let mut came = Vec::new();
        outstanding.acknowledge(first.plus(1150), |sent| {
            came.push((sent.len(), sent.sent.0))
        });
        assert_eq!(came, [(200, 0), (50, 1)]);
        assert_eq!(counts(&outstanding), (750, 100, 0));
        outstanding.acknowledge(first.plus(2000), |_| ());
        assert_eq!(counts(&outstanding), (0, 0, 0));
        assert!(outstanding.is_empty());
    }

    #[test]
    fn what_is_lost_is_in_flight_once_it_is_sent_again() {
        use Fate::{InFlight, Lost, Received};
        let (mut outstanding, first) = sent();
        outstanding.receive((first.plus(300), first.plus(400)), SEGMENT, None, |_| ());
        outstanding.lose(|sent| sent.sent.0 == 0);
        assert_eq!((outstanding.lost(), outstanding.in_flight()), (900, 1000));
        let start = outstanding.first_lost().unwrap().start;
        assert_eq!(start, first);
        let again = Instant(9);
        outstanding.sent_again(first, first.plus(200), again, Stamp::default());
        outstanding.sent_again(first.plus(400), first.plus(500), again, Stamp::default());
        assert_eq!(
            fates(&outstanding, first),
            [
                (0, 200, InFlight),
                (200, 300, Lost),
                (300, 400, Received),
                (400, 500, InFlight),
                (500, 1000, Lost),
                (1000, 2000, InFlight)
            ]
        );
        let again: Vec<bool> = outstanding.all.iter().map(|sent| sent.again).collect();
        assert_eq!(again, [true, false, false, true, false, false]);
        outstanding.find_all();
        assert_eq!(outstanding.lost(), 0);
        outstanding.lose_all(false);
        assert_eq!((outstanding.lost(), outstanding.received()), (1900, 100));
        outstanding.lose_all(true);
        assert_eq!((outstanding.lost(), outstanding.received()), (2000, 0));
    }

    #[test]
    fn short_segments_count_as_segments() {
        let first = Sequence(0);
        let mut outstanding = Outstanding::default();
        for number in 0..4 {
            outstanding.push(Transmission {
                start: first.plus(number * 10),
                end: first.plus(number * 10 + 10),
                sent: Instant(number as u64),
                stamp: Stamp::default(),
                fate: Fate::InFlight,
                again: false,
                segments: 0,
            });
        }
        for end in [20, 30] {
            outstanding.receive((first.plus(10), first.plus(end)), SEGMENT, None, |_| ());
        }
        assert!(outstanding.has_received_segments(2) && !outstanding.has_received_segments(3));
        outstanding.receive((first.plus(10), first.plus(40)), SEGMENT, None, |_| ());
        assert!(outstanding.has_received_segments(3));
    }

    #[test]
    fn the_first_segment_alone_can_be_lost() {
        let (mut outstanding, first) = sent();
        assert_eq!(
            outstanding.lose_first(SEGMENT).map(|sent| sent.len()),
            Some(100)
        );
        assert!(outstanding.lose_first(SEGMENT).is_none());
        assert_eq!(outstanding.first_lost().unwrap().start, first);
        assert_eq!(outstanding.lost(), 100);
    }

    #[test]
    fn a_peer_cannot_make_it_large() {
        let (mut outstanding, first) = sent();
        for at in (0..2000).step_by(2) {
            outstanding.receive((first.plus(at), first.plus(at + 1)), SEGMENT, None, |_| ());
        }
        assert_eq!(outstanding.all.len(), 2);
        for at in (0..2000).step_by(2) {
            outstanding.receive((first.plus(at), first.plus(at + 1)), 1, None, |_| ());
        }
        assert!(outstanding.all.len() <= MOST);
    }
}
