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
//! wireguard-go's own network stack, to wireguard-go. It said (commit 2bfbbc5, one round; two cores of an
//! AMD EPYC with nothing beside it), in Mbit/s, and in seconds of the client's processors for a GB:
//!
//! | | this | onetun | wireguard-go | the kernel's TCP |
//! |---|---|---|---|---|
//! | 0 ms, up, 1 stream | 1543, 3.5 s | 5, 1816 s | 950, 7.4 s | 2227 |
//! | 0 ms, down, 1 stream | 1859, 3.7 s | 162, 13.6 s | 1251, 7.3 s | 2102 |
//! | 0 ms, up, 4 streams | 1539, 4.3 s | did not end | 623, 13.6 s | 1880 |
//! | 0 ms, down, 4 streams | 1596, 4.3 s | 340, 12.8 s | 1215, 7.5 s | 1751 |
//! | 20 ms, 200 Mbit/s, up, 1 stream | 170, 12.0 s | 5, 1578 s | 38, 182 s | 188 |
//! | 20 ms, 200 Mbit/s, down, 1 stream | 190, 20.4 s | 20, 52.8 s | 188, 31.8 s | 188 |
//! | 20 ms, 200 Mbit/s, up, 4 streams | 190, 13.0 s | did not end | 188, 26.5 s | 188 |
//! | 20 ms, 200 Mbit/s, down, 4 streams | 190, 20.9 s | 77, 27.8 s | 188, 28.8 s | 191 |
//! | 100 ms, 100 Mbit/s, up, 1 stream | 95, 18.1 s | 4, 1897 s | 64, 84.2 s | 89 |
//! | 100 ms, 100 Mbit/s, down, 1 stream | 95, 32.8 s | 5, 141 s | 94, 57.2 s | 90 |
//! | 100 ms, 100 Mbit/s, up, 4 streams | 95, 21.0 s | did not end | 95, 50.8 s | 86 |
//! | 100 ms, 100 Mbit/s, down, 4 streams | 93, 35.7 s | 19, 72.2 s | 93, 60.6 s | 90 |
//! | 20 ms, 200 Mbit/s, 1 % lost, up, 1 stream | 81, 13.7 s | 4, 2340 s | 5, 49.1 s | 189 |
//! | 20 ms, 200 Mbit/s, 1 % lost, down, 1 stream | 179, 18.4 s | 15, 69.1 s | 183, 29.7 s | 187 |
//! | 20 ms, 200 Mbit/s, 1 % lost, up, 4 streams | 153, 11.9 s | did not end | 21, 35.7 s | 198 |
//! | 20 ms, 200 Mbit/s, 1 % lost, down, 4 streams | 193, 19.0 s | 62, 35.8 s | 195, 30.9 s | 201 |
//! | round trip of 64 bytes, 0 ms | 386 µs | 3892 µs | 419 µs | 324 µs |
//!
//! Down a path of 20 ms packets come one by one, and what costs most is to be woken for each: two more rounds
//! had wireguard-go take 1.44 to 1.62 times as much there, and 1.77 to 2.76 times at 0 ms.
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
