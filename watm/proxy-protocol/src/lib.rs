//! The PROXY protocol (HAProxy's `proxy-protocol.txt`, revision of 2026-04-27) as a transport.
//!
//! A proxy that forwards a connection first names its client: in a line of text in version 1, in a binary header in
//! version 2. When accepting, the transport removes this header, reports it to the application as the flow's source and
//! destination, and then copies. When dialling, it puts a header in front of the application's data.
//!
//! A datagram and its header come as one. The datagrams of one client are a flow, and its answers go to the proxy that
//! was last heard for it.
//!
//! A header is trusted, so that the configuration lists the addresses that may send one; by default there are none. The
//! transport does not guess whether there is a header: a connection without one is reset.
//!
//! [`parse`] is for other programs too: it takes bytes as they arrive, allocates nothing, and reports errors precisely.
//!
//! # Costs
//!
//! `make bench-proxy` measures it beside mmproxy 0.2.2, in the way of that project's README: fifty clients, each of
//! which sends `PING` again when it is answered, and two hundred that connect at once. Both proxies connect to the
//! application from the clients' addresses, and have a thread for each core. One run on two cores of an AMD EPYC, which
//! compiled other things meanwhile (medians of 9 rounds of 1.5 s, in turns: `tests/proxy/bench --rounds 9 --seconds
//! 1.5`):
//!
//! | | here | mmproxy | ratio |
//! |---|---|---|---|
//! | answers by TCP, per second | 14100 | 11908 | 1.18 |
//! | the same: CPU for each, µs | 20.8 | 21.3 | 0.98 |
//! | answers by UDP, per second | 17873 | 12786 | 1.40 |
//! | the same: CPU for each, µs | 17.4 | 15.8 | 1.10 |
//! | 200 connections at once, s | 0.107 | 0.180 | 0.59 |
//!
//! On a quieter machine (34,000 answers by UDP a second) an answer by UDP took 14.7 µs here and 14.8 with mmproxy: the
//! ratio grows with the load of the machine. An answer by UDP takes 3.2 system calls here and 6.0 there (`strace -c
//! -f`). The additional cost is that of the runtime and the module, three tenths of the time.
//!
//! The kernel takes seven tenths of it, about the same for both. A gigabyte on one connection costs three times the
//! CPU: mmproxy has the kernel move it from socket to socket, and reads none of it.
//!
//! # Promises and their tests
//!
//! `vectors`, `codec`, `datagrams` and `differential` are in `tests/` of this crate; `proxy`, `serve`, `tls` and
//! `interop` are in `tests/` of the project. A test checks that these tests exist. `proxy` and `proxied` are also
//! targets of `make fuzz`, whose corpus every run of `make test` replays.
//!
//! | | promise | tests |
//! |---|---|---|
//! | P1 | the parser accepts exactly the specification, like another parser where that one is strict | `vectors::lines_of_version_1`, `vectors::lines_that_are_no_version_1`, `vectors::headers_of_version_2`, `vectors::headers_that_are_no_version_2`, `vectors::the_checksum_is_of_the_whole_header`, `differential::lines_mean_the_same`, `differential::headers_mean_the_same` |
//! | P2 | a header may arrive in pieces | `vectors::what_is_not_yet_a_header_is_incomplete`, `codec::the_flow_is_the_clients_and_the_rest_is_its`, `proxy::test_bugs::test_b7_a_header_may_come_byte_by_byte` |
//! | P3 | a header and the upstream have time limits | `proxy::test_bugs::test_b11_a_header_does_not_take_for_ever`, `serve::test_limits::test_an_upstream_has_its_time_to_accept` |
//! | P4 | connections come from the clients' addresses, if this is granted | `proxy::test_spoofing::test_a_connection_is_from_its_client_on_both_sides`, `proxy::test_spoofing::test_b4_datagrams_are_from_their_clients_behind_one_socket` |
//! | P5 | a header forwards the client's address to the upstream or to mitmproxy | `serve::test_serve::test_haproxy_believes_the_header`, `serve::test_datagrams::test_each_begins_with_who_it_is_from_on_both_sides`, `serve::test_families::test_haproxy_hears_of_a_client_behind_another_proxy`, `serve::test_families::test_datagrams_name_a_client_of_another_family`, `interop::test_proxy::test_curl_through_mitmdump_is_seen_as_the_client` |
//! | P6 | TCP and UDP, IPv4 and IPv6, in one instance | `proxy::test_spoofing::test_f2_the_upstream_is_of_the_clients_family`, `proxy::test_bugs::test_b13_it_survives_that_the_upstream_is_away` |
//! | P7 | a header in each datagram, in the first, or of the Simple Proxy Protocol | `datagrams::a_clients_datagrams_are_its_flow_and_answers_go_to_the_proxy`, `datagrams::the_first_datagram_of_an_address_speaks_for_all_that_follow`, `datagrams::an_address_of_a_proxys_is_one_clients_at_a_time_and_a_client_has_a_few`, `datagrams::simple_proxy_protocol_goes_both_ways` |
//! | P8 | datagram flows belong to clients, are bounded, and end after an idle timeout | `datagrams::b4_clients_behind_one_socket_of_a_proxy_are_told_apart`, `datagrams::answers_go_to_the_address_of_the_proxy_that_was_heard_last`, `datagrams::a_flow_ends_when_nothing_came_or_went_for_its_time`, `datagrams::of_too_many_flows_that_ends_which_was_idle_longest` |
//! | P9 | no sender is trusted by default, and a new list applies at once | `codec::only_those_in_from_are_believed`, `datagrams::only_those_in_from_are_believed_and_another_list_holds_at_once`, `proxy::test_bugs::test_another_list_of_who_is_believed_holds_at_once_and_without_one_nobody_is` |
//! | P10 | each worker has a socket with a large queue, for datagrams too | `serve::test_limits::test_each_worker_has_a_socket_with_room_for_a_crowd`, `serve::test_datagrams::test_each_address_stays_with_its_worker`, `proxy::test_bugs::test_b5_two_hundred_connections_at_once_wait_for_nobody` |
//! | P11 | a slow reader loses no byte, and each direction ends separately | `proxy::test_bugs::test_a_slow_reader_gets_all_of_it`, `proxy::test_spoofing::test_a_connection_is_from_its_client_on_both_sides` |
//! | P12 | accepted and refused connections are counted, and each client's bytes | `proxy::test_bugs::test_b9_b10_b15_a_wrong_header_is_refused_and_counted`, `datagrams::b1_b9_b10_what_is_no_header_of_a_datagram_is_refused_and_counted`, `serve::test_reports::test_bytes_are_of_so_many_clients_and_of_all_others_together` |
//! | P13 | no input, lack of descriptors or unreachable upstream ends it | `differential::nothing_makes_it_panic`, `proxy::test_bugs::test_b1_b9_no_datagram_ends_it`, `proxy::test_bugs::test_b12_it_survives_a_lack_of_descriptors`, `proxy::test_bugs::test_b13_it_survives_that_the_upstream_is_away` |
//! | P14 | TLVs are checked, forwarded, and reported to the application | `vectors::facts_fill_the_header_and_have_their_sizes`, `codec::facts_become_attributes`, `serve::test_families::test_tlvs_go_through_a_chain_as_they_came`, `interop::test_proxy::test_haproxys_facts_and_checksum_are_taken`, `serve::test_serve::test_haproxy_believes_the_header` |
//! | P15 | missing settings of the machine are found, with the commands to run | `proxy::test_spoofing::test_what_the_doctor_prints_puts_it_right`, `proxy::test_spoofing::test_the_doctor_sees_what_a_process_may_not_do`, `proxy::test_spoofing::test_the_doctor_sees_a_kernel_that_throws_answers_away`, `proxy::test_spoofing::test_the_doctor_sees_too_few_descriptors` |

mod about;
mod account;
mod codec;
mod config;
mod datagrams;
mod facts;
mod header;
mod parse;
mod reason;
mod refused;
mod sources;
mod spp;
mod tlv;
mod transport;
mod v1;
mod v2;

pub use about::ABOUT;
pub use codec::{ProxyCodec, ProxyProtocol};
pub use config::FIELDS;
pub use header::{Addresses, Header, Proxied};
pub use parse::{LONGEST, Parsed, Rules, parse};
pub use refused::Refused;
pub use spp::{SPP_LENGTH, parse_spp, write_spp};
pub use transport::ProxyServer;
pub use watm_proxy_header::{Protocol, Ssl, Tlv, Tlvs, write_v1, write_v2};

#[cfg(feature = "module")]
watm_schema::about!(ABOUT);

#[cfg(all(target_family = "wasm", feature = "module", not(feature = "water-v1")))]
watm_guest::export!(ProxyServer);

#[cfg(all(target_family = "wasm", feature = "module", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<ProxyProtocol>);

#[cfg(all(target_family = "wasm", feature = "module", feature = "water-v1"))]
watm_guest_v1::names_clients!();
