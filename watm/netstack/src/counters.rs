macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What happened so far. A stranger's packet is counted, never logged above debug.
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
    /// Packets whose IP headers are wrong.
    ip_malformed,
    /// Packets from or to an address that nobody can be reached at.
    ip_bad_address,
    /// Packets to a multicast or broadcast address.
    ip_multicast,
    /// IPv6 packets without a payload.
    ip_empty,
    /// Fragments received.
    fragments_in,
    /// Fragments dropped: wrong, overlapping, or too many.
    fragments_dropped,
    /// Packets put together from fragments.
    fragments_reassembled,
    /// Packets given up because a fragment never came, or others needed the room.
    fragments_expired,
    /// TCP segments that are wrong.
    tcp_malformed,
    /// TCP flows offered to the application.
    tcp_opened,
    /// TCP flows that the application began to open.
    tcp_dialled,
    /// TCP flows refused with RST: too many, no memory, or the application said no.
    tcp_refused,
    /// Handshakes given up because newer ones needed the room.
    tcp_half_open_evicted,
    /// Handshakes that were not completed in time.
    tcp_half_open_expired,
    /// TCP flows that the peer stopped answering on.
    tcp_timed_out,
    /// Flows that had bytes to send and no timer: bugs of ours. Such a flow is tried again.
    tcp_without_timer,
    /// Segments dropped because the peer or the stack holds too much already.
    tcp_no_memory,
    /// Segments dropped because they lie beyond the buffer.
    tcp_beyond_buffer,
    /// Segments dropped because there are too many gaps before them.
    tcp_too_many_gaps,
    /// SYNs and RSTs answered with what the flow expects, and not heeded.
    tcp_challenged,
    /// RSTs sent for segments of unknown flows.
    tcp_strays_reset,
    /// Segments of unknown flows not answered, to bound the rate.
    tcp_strays_ignored,
    /// UDP datagrams that are wrong.
    udp_malformed,
    /// UDP flows offered to the application.
    udp_opened,
    /// UDP flows that the application opened.
    udp_dialled,
    /// Datagrams dropped because the application took no more flows.
    udp_refused,
    /// UDP flows ended by idleness.
    udp_expired,
    /// UDP flows ended because others needed the room.
    udp_evicted,
    /// Datagrams dropped because the application does not keep up.
    udp_dropped,
    /// Datagrams of the application too large for IP.
    udp_too_large,
    /// ICMP errors that a TCP flow has heeded.
    icmp_heeded,
    /// ICMP messages that are wrong.
    icmp_malformed,
    /// Echo requests answered.
    icmp_echoed,
    /// ICMP messages of other kinds, ignored.
    icmp_ignored,
    /// ICMP errors sent for protocols that are not carried, and ports that nobody is at.
    icmp_errors_sent,
    /// ICMP errors not sent, to bound the rate.
    icmp_errors_withheld,
}
