//! Counters of the stack by name. Its owner reports them in its status.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counts of events. A stranger's packet is counted, never logged above debug.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((concat!("netstack.", stringify!($name)), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Packets with malformed IP headers, a source route, or an IPv6 header that the stack must
    /// refuse.
    ip_malformed,
    /// Packets from or to an address that is not a host's.
    ip_bad_address,
    /// Packets to a multicast or broadcast address.
    ip_multicast,
    /// IPv6 packets without a payload.
    ip_empty,
    /// Fragments received.
    fragments_in,
    /// Fragments dropped: malformed, repeated, overlapping, too many, or of a packet that has a
    /// congestion mark but is not ECN-capable.
    fragments_dropped,
    /// Packets reassembled from fragments.
    fragments_reassembled,
    /// Packets given up because a fragment never arrived, or others needed the room.
    fragments_expired,
    /// Malformed TCP segments.
    tcp_malformed,
    /// TCP flows offered to the application.
    tcp_opened,
    /// TCP flows that the application dialled.
    tcp_dialled,
    /// TCP flows refused with RST: too many, no memory, or refused by the application.
    tcp_refused,
    /// Handshakes given up because newer ones needed the room.
    tcp_half_open_evicted,
    /// Handshakes not completed in time.
    tcp_half_open_expired,
    /// TCP flows whose peer stopped answering.
    tcp_timed_out,
    /// Flows that had bytes to send and no timer, which is a bug of the stack. Such a flow is tried
    /// again.
    tcp_without_timer,
    /// Segments dropped because the peer or the stack already holds too much.
    tcp_no_memory,
    /// Segments dropped because they lie beyond the buffer.
    tcp_beyond_buffer,
    /// Segments dropped because there are too many gaps before them.
    tcp_too_many_gaps,
    /// SYNs, RSTs and segments outside of a handshake's window, answered with a challenge ACK
    /// instead of being obeyed.
    tcp_challenged,
    /// RSTs sent for segments of unknown flows.
    tcp_strays_reset,
    /// Segments of unknown flows left unanswered, to bound the rate.
    tcp_strays_ignored,
    /// Malformed UDP datagrams.
    udp_malformed,
    /// UDP flows offered to the application.
    udp_opened,
    /// UDP flows that the application dialled.
    udp_dialled,
    /// Datagrams dropped because the application took no more flows.
    udp_refused,
    /// UDP flows ended after their idle timeout.
    udp_expired,
    /// UDP flows ended because others needed the room.
    udp_evicted,
    /// Datagrams dropped because the application does not keep up.
    udp_dropped,
    /// Datagrams of the application that are too large for IP.
    udp_too_large,
    /// ICMP errors that changed a flow.
    icmp_heeded,
    /// Malformed ICMP messages.
    icmp_malformed,
    /// Echo requests answered.
    icmp_echoed,
    /// ICMP messages of other kinds, ignored.
    icmp_ignored,
    /// ICMP errors sent: for unknown protocols, closed ports, IPv6 headers that cannot be ignored,
    /// and missing fragments.
    icmp_errors_sent,
    /// ICMP errors withheld, to bound the rate.
    icmp_errors_withheld,
}
