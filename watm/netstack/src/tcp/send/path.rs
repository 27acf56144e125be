//! The size of segments: what the peer takes, and what the path carries (RFC 9293 section 3.7.1).

use super::choose::Chosen;
use super::search::Search;
use super::width::{NARROWEST, Width};
use super::{Established, Transmitter};

/// The size of full segments on a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathMtu {
    /// The MTU of the path to the peer, in bytes.
    mtu: usize,
    /// The MTU of the path behind the peer.
    width: Width,
    /// The bytes of headers, with the options of each segment.
    headers: usize,
    /// The most bytes of payload that the peer takes.
    most: usize,
    /// The identification of the next packet, if routers may fragment packets: the path carries
    /// less than the narrowest width.
    identification: Option<u16>,
    pub(super) is_ipv4: bool,
}

impl PathMtu {
    pub(super) fn new(established: &Established) -> Self {
        let plain = if established.is_ipv4 { 40 } else { 60 };
        // The peer's size counts no options (RFC 6691).
        let options = established.headers - plain;
        PathMtu {
            mtu: established.mtu,
            width: Width::default(),
            headers: established.headers,
            most: established.peer_segment.saturating_sub(options),
            identification: None,
            is_ipv4: established.is_ipv4,
        }
    }

    /// The payload bytes of a full segment.
    pub(super) fn segment(&self) -> usize {
        self.segment_of(self.width)
    }

    /// The same with segments of this width.
    pub(super) fn segment_of(&self, width: Width) -> usize {
        let payload = self.mtu_of(width).saturating_sub(self.headers);
        self.most.min(payload).max(1)
    }

    /// The largest packet with this width, in bytes.
    pub(super) fn mtu_of(&self, width: Width) -> usize {
        width.mtu(self.mtu)
    }

    pub(super) fn width(&self) -> Width {
        self.width
    }
}

impl Transmitter {
    /// The largest packet, in bytes.
    pub(crate) fn mtu(&self) -> usize {
        self.path.mtu_of(self.path.width)
    }

    /// Set the MTU of the path to the peer. Returns true if there is something to do: segments in
    /// flight that may be too long are sent again in smaller ones.
    pub(crate) fn set_mtu(&mut self, mtu: usize) -> bool {
        let before = self.segment();
        self.path.mtu = mtu;
        self.resized(before)
    }

    /// Learns from a router that packets of more than `mtu` bytes do not pass. Returns true if
    /// something must be sent again.
    pub(crate) fn too_long(&mut self, mtu: usize) -> bool {
        let width = Width::of_path(mtu, self.path.is_ipv4);
        let narrows = width > self.path.width;
        let fragments = mtu < NARROWEST && self.path.is_ipv4 && self.path.identification.is_none();
        if mtu >= self.mtu() || !narrows && !fragments {
            return self.refuse_width_probe(mtu);
        }
        if narrows {
            self.set_width(width);
        }
        if fragments {
            self.allow_fragments(mtu);
        }
        if let Some(search) = &mut self.search {
            search.report_narrow(self.last_sent);
        }
        self.forget_doubts();
        true
    }

    /// Takes an identification for each packet of a range, if routers may fragment them. None comes
    /// again soon (RFC 6864 section 4.1). Returns the first.
    pub(crate) fn take_identifications(&mut self, chosen: &Chosen) -> Option<u16> {
        let first = self.path.identification.filter(|_| !chosen.widens)?;
        let packets = chosen.start.until(chosen.end).div_ceil(chosen.segment);
        self.path.identification = Some(first.wrapping_add(packets as u16));
        Some(first)
    }

    /// Changes the width, and begins the search for a wider path.
    pub(super) fn set_width(&mut self, width: Width) {
        let before = self.segment();
        self.path.width = width;
        self.path.identification = None;
        self.search = Search::beyond(width);
        self.resized(before);
    }

    /// Lets routers fragment packets. Those of [`NARROWEST`] bytes pass every path only in
    /// fragments (RFC 791 section 3.2). Longer packets in flight than `mtu` bytes are sent again.
    fn allow_fragments(&mut self, mtu: usize) {
        self.path.identification = Some(self.next.0 as u16);
        let headers = self.path.headers;
        self.outstanding.lose(|sent| sent.len() + headers > mtu);
        self.urgent |= self.outstanding.lost() > 0;
    }

    /// Adapts to another segment size. Segments that became too long are sent again. Their loss is
    /// no sign of congestion (RFC 1191 section 6.4).
    fn resized(&mut self, before: usize) -> bool {
        let segment = self.segment();
        if segment == before {
            return false;
        }
        self.congestion.set_segment(segment);
        if segment > before {
            return false;
        }
        self.outstanding.lose(|sent| sent.len() > segment);
        self.urgent |= self.outstanding.lost() > 0;
        self.outstanding.lost() > 0
    }
}
