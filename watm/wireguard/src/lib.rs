//! A WireGuard server as a transport: peers' IP packets become flows.
//!
//! # The path of a packet
//!
//! 1. [`WireGuard::process`](watm_core::Transport::process) receives a batch from the
//!    socket granted as `listen` and takes its trains apart. If that is a listener,
//!    datagrams come in streams: see [`FramedSocket`](watm_stream::FramedSocket).
//! 2. The receiver index says which peer a datagram is for; for a handshake initiation
//!    it is the key inside, after the rate limiter has let it pass.
//! 3. boringtun decrypts. Only now is the sender known, and its address remembered.
//! 4. The inner source address is checked against the peer's AllowedIPs, and the packet
//!    goes to the network stack, which offers its flow to the application.
//! 5. What the stack answers is encrypted into the outgoing batch, equal sizes to one
//!    address as a train, and sent when all of the incoming batch is done.
//!
//! A server can be put in the place of another while traffic flows: see `generations`.
//!
//! Timers run once a second, for the peers that have a session or a handshake under way.
//!
//! Time and randomness are arguments: boringtun's clock is the thread's
//! [`MockClock`](mock_instant::MockClock), set from [`Host::now`](watm_core::Host::now)
//! at the start of each call, and its random numbers come from this workspace's
//! `getrandom`, which a test can seed.
//!
//! # What it costs as a client
//!
//! `make bench-tunnel` has iperf3 go through a forwarded port of `watm dial`, of onetun 0.3.10 and of
//! wireguard-go's own network stack, to wireguard-go. It said (commit c15fad9, one round, two for 0 ms; two
//! cores of an AMD EPYC that others used too, so that the ratios count), in Mbit/s, and in seconds of the
//! client's processors for a GB:
//!
//! | | this | onetun | wireguard-go | the kernel's TCP |
//! |---|---|---|---|---|
//! | 0 ms, up, 1 stream | 1123, 3.7 s | 5, 1283 s | 639, 7.0 s | 1468 |
//! | 0 ms, down, 1 stream | 1145, 3.6 s | 162, 9.1 s | 1021, 4.8 s | 1414 |
//! | 0 ms, up, 4 streams | 1091, 3.5 s | did not end | 293, 11.1 s | 977 |
//! | 0 ms, down, 4 streams | 1089, 3.9 s | 273, 10.1 s | 762, 6.7 s | 849 |
//! | 20 ms, 200 Mbit/s, up, 1 stream | 151, 8.7 s | 5, 1138 s | 142, 21.4 s | 188 |
//! | 20 ms, 200 Mbit/s, down, 1 stream | 190, 17.7 s | 20, 39.9 s | 188, 22.7 s | 188 |
//! | 20 ms, 200 Mbit/s, up, 4 streams | 190, 9.0 s | did not end | 186, 18.0 s | 182 |
//! | 20 ms, 200 Mbit/s, down, 4 streams | 190, 15.2 s | 77, 21.1 s | 180, 23.2 s | 194 |
//! | 100 ms, 100 Mbit/s, up, 1 stream | 95, 12.5 s | 5, 1503 s | 90, 40.3 s | 89 |
//! | 100 ms, 100 Mbit/s, down, 1 stream | 95, 28.2 s | 5, 116 s | 93, 42.0 s | 86 |
//! | 100 ms, 100 Mbit/s, up, 4 streams | 95, 13.0 s | did not end | 86, 47.4 s | 91 |
//! | 100 ms, 100 Mbit/s, down, 4 streams | 89, 33.0 s | 19, 56.3 s | 88, 54.1 s | 91 |
//! | 20 ms, 200 Mbit/s, 1 % lost, up, 1 stream | 53, 11.1 s | 3, 3158 s | 7, 27.1 s | 189 |
//! | 20 ms, 200 Mbit/s, 1 % lost, down, 1 stream | 186, 14.6 s | 16, 52.3 s | 183, 21.9 s | 185 |
//! | 20 ms, 200 Mbit/s, 1 % lost, up, 4 streams | 145, 10.2 s | did not end | 12, 31.5 s | 194 |
//! | 20 ms, 200 Mbit/s, 1 % lost, down, 4 streams | 170, 14.1 s | 49, 23.5 s | 193, 21.2 s | 193 |
//! | round trip of 64 bytes, 0 ms | 280 µs | 3888 µs | 250 µs | 121 µs |
//!
//! The kernel's TCP goes through wireguard-go's interface, by BBR, over the same paths; what arrives at most
//! is 95 of the 100 Mbit/s and 190 of the 200, the rest being headers. Down, it is the kernel that sends.

mod client;
mod clock;
mod config;
mod counters;
mod floor;
mod generations;
mod handshake_time;
mod key;
mod names;
mod outgoing;
mod peer;
mod peers;
mod routes;
mod server;

pub use server::WireGuard;

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(WireGuard, capture);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Hosted<WireGuard>);
