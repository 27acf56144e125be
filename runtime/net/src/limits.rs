//! The limits of servers, dialers, listeners and relays. Their builders check them.

use std::time::Duration;

use crate::sockets::descriptors_of_module;
use crate::{Error, ModuleKind};

/// The limits of one server, dialer, listener or relay. A busy WireGuard server does not reach the
/// defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of an instance, in bytes. Beyond it `memory.grow` fails. Default 512 MiB: a
    /// module keeps about 10 KiB for each idle flow, and up to a few MiB for each one that fills a
    /// long path.
    pub memory_bytes: usize,
    /// CPU time (not wall time) that one call into the module may take; past it the instance is
    /// replaced. Default 1 s, a thousand times the time of a batch. At least 20 ms, since it is
    /// checked every 10 ms. A WATER module has one call for the whole life of a connection; there
    /// it is the time between two moments at which it waits or moves bytes, and past it the
    /// connection is closed.
    pub cpu_per_call: Duration,
    /// Flows open at once. Default 32768, twice the default of the WireGuard module: a flow that
    /// the module has ended counts until the application has dropped it. A WATER module, which has an
    /// instance for each, has no more than 6553 under Linux's usual `vm.max_map_count`.
    pub flows: usize,
    /// Bytes that the application keeps of its own for each flow, such as a task and a socket. They
    /// are charged to the module, which then has fewer flows. Default 0.
    pub flow_bytes: usize,
    /// Flows offered and not yet accepted; beyond it the module is told `limit-reached`.
    /// Default 1024.
    pub accept_backlog: usize,
    /// Bytes of a stream flow that wait for the application. Default 256 KiB: 2 ms of 1 Gbit/s.
    pub stream_buffer_bytes: usize,
    /// Bytes written by the application above which
    /// [`poll_drained`](crate::flow::StreamFlow::poll_drained) waits. Default 64 KiB, as
    /// in asyncio.
    pub write_high_water: usize,
    /// Bytes at or below which it no longer waits. Default 16 KiB, as in asyncio.
    pub write_low_water: usize,
    /// Datagrams of a datagram flow that wait, each way. Default 256.
    pub datagram_queue: usize,
    /// Bytes of those datagrams, each way. Default 512 KiB.
    pub datagram_queue_bytes: usize,
    /// Handles (sockets, streams, keys) a module may hold. Default 65536, twice the
    /// flows: a relay holds an accepted stream and a flow for each.
    pub handles: usize,
    /// Connections of a module that are open at once, accepted or made: each takes a descriptor of
    /// the process. Beyond it no more are made (`limit-reached`), and incoming ones wait in the
    /// kernel, or are closed if the module is a WATER module. Default: half of the descriptors that
    /// the process may open when this is called, from 64 to 65536.
    pub descriptors: usize,
    /// Keys that a module may give to the host's ciphers. Default 16384: two sessions of two keys
    /// each for 4096 peers.
    pub crypto_keys: usize,
    /// Log records a second, after a burst of ten times as many. Default 20: a person reads no
    /// faster.
    pub log_records_per_second: u32,
    /// Bytes of a recording, after which it ends. Default 1 GiB: ten seconds at 1 Gbit/s,
    /// weeks of a phone's keepalives.
    pub record_bytes: u64,
    /// Time to make one connection on behalf of a module. Default 20 s, a little more than four
    /// unanswered SYNs.
    pub connect_timeout: Duration,
    /// Time from the start of a module until its connection is ready, connecting included. Default
    /// 30 s.
    pub handshake_timeout: Duration,
    /// Connections of one listener or relay that are in their handshake; as many more wait in the
    /// kernel. Default 256.
    pub handshakes: usize,
    /// Instances of a server's module at once: the serving one, and former ones with open flows. A
    /// swap beyond it is refused. Default 16, each of some megabytes.
    pub generations: usize,
    /// Time that a module has to pass on what was written before its connection was closed, and
    /// then the same time again to end when it is told to. A WATER module has longer while it still
    /// moves bytes of a connection that the application closed: five times as long for each. Default
    /// 1 s: a lost segment is sent again sooner, over most paths.
    pub close_grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes: 512 << 20,
            cpu_per_call: Duration::from_secs(1),
            flows: 32768,
            flow_bytes: 0,
            accept_backlog: 1024,
            stream_buffer_bytes: 256 << 10,
            write_high_water: 64 << 10,
            write_low_water: 16 << 10,
            datagram_queue: 256,
            datagram_queue_bytes: 512 << 10,
            handles: 65536,
            descriptors: descriptors_of_module(),
            crypto_keys: 16384,
            log_records_per_second: 20,
            record_bytes: 1 << 30,
            connect_timeout: Duration::from_secs(20),
            handshake_timeout: Duration::from_secs(30),
            handshakes: 256,
            generations: 16,
            close_grace: Duration::from_secs(1),
        }
    }
}

impl Limits {
    /// Returns the defaults of dialers, listeners and relays: those of [`Limits::default`], except
    /// 64 MiB of memory, since an instance serves one connection and there may be thousands, and a
    /// high-water mark of 128 KiB, which is twice the size of one read of a module of this project.
    pub fn for_connections() -> Limits {
        Limits {
            memory_bytes: 64 << 20,
            write_high_water: 128 << 10,
            write_low_water: 64 << 10,
            ..Limits::default()
        }
    }

    /// Returns the defaults of a dialer, listener or relay with a module of this kind: those of
    /// [`for_connections`](Limits::for_connections), except for a component or a program, which serves
    /// all connections in one instance: it has the memory of
    /// [`Limits::default`], and a high-water mark of 256 KiB, which reduces the switches between
    /// threads.
    pub fn for_connections_of(kind: ModuleKind) -> Limits {
        match kind {
            ModuleKind::Component | ModuleKind::Program => Limits {
                write_high_water: 256 << 10,
                write_low_water: 128 << 10,
                ..Limits::default()
            },
            _ => Limits::for_connections(),
        }
    }

    /// Refuses values that no server could work with.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Options(text));
        if self.cpu_per_call < Duration::from_millis(20) {
            return refuse(format!(
                "limits.cpu_per_call: {:?} is too short; at least 20 ms",
                self.cpu_per_call
            ));
        }
        if self.write_low_water > self.write_high_water {
            return refuse(format!(
                "limits.write_low_water: {} is above write_high_water ({})",
                self.write_low_water, self.write_high_water
            ));
        }
        for (field, value) in [
            ("memory_bytes", self.memory_bytes),
            ("flows", self.flows),
            ("accept_backlog", self.accept_backlog),
            ("stream_buffer_bytes", self.stream_buffer_bytes),
            ("datagram_queue", self.datagram_queue),
            ("datagram_queue_bytes", self.datagram_queue_bytes),
            ("handles", self.handles),
            ("descriptors", self.descriptors),
            ("handshakes", self.handshakes),
            ("generations", self.generations),
        ] {
            if value == 0 {
                return refuse(format!("limits.{field}: must be at least 1"));
            }
        }
        if self.log_records_per_second == 0 {
            return refuse("limits.log_records_per_second: must be at least 1".to_owned());
        }
        Ok(())
    }
}
