//! A running component: its instantiation and its exports. The driver's generations and replays
//! call it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use serde::Serialize;
use tokio::runtime::Handle;
use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{Store, UpdateDeadline, WasmBacktrace};

use super::bindings::Module as Bindings;
use super::bindings::exports::watm::transport::endpoint::{self, Guest};
use super::bindings::watm::transport::types;
use super::connect::UNKNOWN;
use super::convert::{config_error, destination_to_guest, guest_level, shortened};
use super::cpu::CpuMeter;
use super::dialling::{BegunDial, Dial, Dialling};
use super::optional;
use super::sockets::ByteStream;
use super::tape::Tape;
use super::{Failure, Prepared, State};
use crate::mailboxes::Mailboxes;
use crate::recording::{Call, Event};
use crate::{
    Capture, ClientConfig, Destination, Error, ErrorCode, FlowInfo, Module, Network, PeerStatus,
};
use watm_engine::cpu_quota::CpuQuota;
use watm_engine::hub::Hub;
use watm_engine::limiter::{Limiter, MEMORIES_OF_COMPONENT};
use watm_engine::log::Logger;
use watm_engine::log::MAX_MESSAGE;
use watm_engine::slice;
use watm_net::account::{CALL_BYTES, Charge};
use watm_net::flow::{DatagramFlow, StreamFlow, charge, datagram_pair, stream_pair};
use watm_net::ports::Port;
use watm_net::quota::Permit;
use watm_net::ready::{ReadyList, Token, WakeBatch};
use watm_policy::access::Access;
use watm_policy::keys::Keys;
use watm_types::one_line;

/// The most peers in a status: as many as a configuration of WireGuard may have.
const MOST_PEERS: usize = 32_768;

/// The most handles that are lent for one call: an import takes one.
const BORROWED: usize = 64;

/// The most counters in a status.
const MOST_COUNTERS: usize = 1024;

/// The beginning of the names of the host's counters, of which a module has none.
const OF_THE_HOST: &str = "host.";

/// The resources of an instance.
#[derive(Clone)]
pub struct Grants {
    /// The state of its server.
    pub hub: Arc<Hub>,
    /// The sockets, each with its label.
    pub ports: Arc<Vec<(String, Port)>>,
    /// The mailboxes that generations send each other messages through.
    pub mailboxes: Arc<Mailboxes>,
    /// The policy of the module's connections; `None` allows none.
    pub access: Option<Arc<Access>>,
    /// The runtime of connectors, unless a dial names another. By default that of the module.
    pub home: Option<Handle>,
    /// True if it may use the ciphers of the host.
    pub host_crypto: bool,
    /// The keys of the host that it may sign with.
    pub keys: Keys,
    /// The capture, if the user wants copies.
    pub capture: Option<Capture>,
    /// The least severe level of the records that are passed on.
    pub log_level: tracing::Level,
    /// The module's share of a core.
    pub cpu_quota: CpuQuota,
    /// The tape, while it is recorded or replayed.
    pub tape: Option<Tape>,
}

/// A running module. After a [`Trap`] it must not be called again.
pub struct Instance {
    store: Store<State>,
    bindings: Bindings,
    optional: optional::Exports,
    log_level: tracing::Level,
    /// The zero of the clock that the module sees.
    epoch: Clock,
}

/// The reason why an instance is lost.
#[derive(Debug)]
pub struct Trap {
    /// The reason, on one line.
    pub reason: String,
    /// The stack, if it trapped in the module.
    pub backtrace: Option<String>,
}

/// The reason why `start` or `reconfigure` failed.
pub enum StartError {
    /// The module refused its configuration, in its words.
    Refused(String),
    /// The module trapped.
    Trap(Trap),
}

/// The time of the module's next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// At once.
    Again,
    /// At this time, or when a token is ready.
    At(Clock),
    /// When a token is ready.
    OnReady,
    /// Another generation serves, and there is nothing left to do.
    Finished,
}

/// The module's report on its state.
pub struct ModuleStatus {
    /// The peers.
    pub peers: Vec<PeerStatus>,
    /// The number of flows that it has open.
    pub flows: u32,
    /// Its own counters by name.
    pub counters: BTreeMap<String, u64>,
}

impl Instance {
    /// Instantiates the module as this generation, and runs the component's initializers.
    pub fn new(module: &Module, grants: &Grants, generation: u32) -> Result<Instance, Trap> {
        let prepared = module.linked(Prepared::new).map_err(|error| Trap {
            reason: error.to_string(),
            backtrace: None,
        })?;
        let hub = &grants.hub;
        let granted = module.granted();
        let memory_bytes = granted.memory_bytes(hub.limits.memory_bytes);
        let mut table = ResourceTable::new();
        table.set_max_capacity(hub.limits.handles);
        let state = State {
            table,
            objects: Charge::new(&hub.counters.account),
            hub: hub.clone(),
            ports: grants.ports.clone(),
            generation,
            mailboxes: grants.mailboxes.clone(),
            taken: BTreeMap::new(),
            ready: Arc::default(),
            wakers: WakeBatch::default(),
            moved: false,
            coalescing: Duration::ZERO,
            failed: Arc::new(AtomicBool::new(false)),
            cpu: CpuMeter::new(grants.cpu_quota.longest_call(hub.limits.cpu_per_call)),
            limiter: Limiter::new(memory_bytes, MEMORIES_OF_COMPONENT, hub.counters.clone()),
            cpu_quota: grants.cpu_quota.clone(),
            flows: granted.flows(hub.limits.flows),
            logger: Logger::new(
                &hub.name,
                hub.log_rate.clone(),
                hub.counters.clone(),
                grants.log_level,
            ),
            access: grants.access.as_ref().map(|access| access.cut(granted)),
            home: grants.home.clone(),
            dialling: None,
            awaited: BTreeMap::new(),
            host_crypto: granted.host_crypto(grants.host_crypto),
            keys: 0,
            private_keys: granted.keys(&grants.keys),
            capture: granted.capture(grants.capture.as_ref()),
            capture_known: false,
            tape: grants.tape.clone(),
        };
        let mut store = Store::new(prepared.pre.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.epoch_deadline_callback(|mut context| {
            let state = context.data_mut();
            if state.hub.is_closing() || state.replay_interrupts() {
                return Ok(UpdateDeadline::Interrupt);
            }
            slice::look(Clock::now());
            Ok(state.cpu.tick())
        });
        store.set_hostcall_fuel(CALL_BYTES);
        // The store counts handles itself, including those that a call borrows.
        store.set_max_component_handles(hub.limits.handles.saturating_add(BORROWED));
        store.set_epoch_deadline(1);
        store.data().record(|| Event::Instance);
        let begin = Clock::now();
        let instantiated = prepared.pre.instantiate(&mut store).and_then(|instance| {
            let bindings = prepared.endpoint.load(&mut store, &instance)?;
            Ok((bindings, prepared.optional.load(&mut store, &instance)?))
        });
        // The component's initializers are the module's code too.
        store.data().spent(begin);
        match instantiated {
            Ok((bindings, optional)) => Ok(Instance {
                store,
                bindings,
                optional,
                log_level: grants.log_level,
                epoch: Clock::now(),
            }),
            Err(error) => Err(trap(&store, &error)),
        }
    }

    /// Returns the ready list of the module's tokens.
    pub fn ready(&self) -> &Arc<ReadyList> {
        &self.store.data().ready
    }

    /// Returns true if it has read or written anything since the last call.
    pub fn has_moved(&mut self) -> bool {
        std::mem::take(&mut self.store.data_mut().moved)
    }

    /// Returns the interval between calls that have little to do; zero does not delay them.
    pub fn coalescing(&self) -> Duration {
        self.store.data().coalescing
    }

    /// Returns the time until which it must rest because it has used up its share of a core, if it
    /// has.
    pub fn rests_until(&self, now: Clock) -> Option<Clock> {
        self.store.data().cpu_quota.rests_until(now)
    }

    /// Makes it accept the configuration, and the `snapshot` of the serving generation, if there is
    /// one.
    pub fn start(&mut self, config: &[u8], predecessor: Option<&[u8]>) -> Result<(), StartError> {
        let generation = self.store.data().generation;
        let options = endpoint::StartOptions {
            config: config.to_vec(),
            log_level: guest_level(self.log_level),
            generation,
            predecessor: predecessor.map(<[u8]>::to_vec),
        };
        // The first instance of a worker starts after that of another worker, and sees the same
        // configuration: one warning about it is enough.
        self.store.data_mut().logger.warned = generation == 0 && predecessor.is_some();
        let answer = self.call(
            |now| Call::Start {
                now,
                config: config.into(),
                predecessor: predecessor.map(Cow::from),
            },
            |guest, store, now| guest.call_start(store, &options, now),
        );
        self.store.data_mut().logger.warned = false;
        answer
            .map_err(StartError::Trap)?
            .map_err(|error| StartError::Refused(config_error(error)))
    }

    /// Gives the module another configuration, which it may refuse.
    pub fn reconfigure(&mut self, config: &[u8]) -> Result<(), StartError> {
        let answer = self.call(
            |now| Call::Reconfigure {
                now,
                config: config.into(),
            },
            |guest, store, now| guest.call_reconfigure(store, config, now),
        );
        answer
            .map_err(StartError::Trap)?
            .map_err(|error| StartError::Refused(config_error(error)))
    }

    /// Sets the capture. The module learns of it when it asks, in `start` or `reconfigure`.
    pub fn set_capture(&mut self, capture: Option<Capture>) {
        let state = self.store.data_mut();
        state.capture = capture;
        state.capture_known = false;
    }

    /// Returns true if the module has asked for its captures since they were last set.
    pub fn knows_captures(&self) -> bool {
        self.store.data().capture_known
    }

    /// Calls the module with the tokens that are ready. Returns when to call it again.
    pub fn process(&mut self, ready: &[u64]) -> Result<Wakeup, Trap> {
        let wakeup = self.call(
            |now| Call::Process {
                now,
                ready: ready.into(),
            },
            |guest, store, now| guest.call_process(store, now, ready),
        )?;
        Ok(match wakeup {
            endpoint::Wakeup::Again => Wakeup::Again,
            endpoint::Wakeup::OnReady => Wakeup::OnReady,
            endpoint::Wakeup::Finished => Wakeup::Finished,
            endpoint::Wakeup::At(instant) => {
                match self.epoch.checked_add(Duration::from_nanos(instant)) {
                    Some(instant) => Wakeup::At(instant),
                    // The time is past the end of the clock.
                    None => Wakeup::OnReady,
                }
            }
        })
    }

    /// Returns the state that its successor needs.
    pub fn snapshot(&mut self) -> Result<Vec<u8>, Trap> {
        self.call(
            |now| Call::Snapshot { now },
            |guest, store, now| guest.call_snapshot(store, now),
        )
    }

    /// Tells it that this generation serves. The sockets know already.
    pub fn serving(&mut self, generation: u32) -> Result<(), Trap> {
        self.call(
            |now| Call::Serving { now, generation },
            |guest, store, now| guest.call_serving(store, generation, now),
        )?;
        let state = self.store.data();
        if state.generation == generation {
            // Datagrams and connections that arrive from now on are its own.
            state.taken.values().for_each(Token::notify);
        }
        Ok(())
    }

    /// Tells it that the machine's addresses or routes have changed, if it asks to know.
    pub fn network_changed(&mut self) -> Result<(), Trap> {
        let Some(export) = self.optional.network_changed else {
            return Ok(());
        };
        self.call(
            |now| Call::NetworkChanged { now },
            |_, store, now| export.call(store, (now,)),
        )
    }

    /// Has a stream carried to `destination`, or to the one of the configuration. Returns the
    /// application's end of it, which later failures reset.
    pub fn dial(&mut self, dial: Dial) -> Result<Result<BegunDial<StreamFlow>, Error>, Trap> {
        self.begin(
            dial,
            |state, info, token, permit| {
                let charge = charge(
                    Network::Tcp,
                    &info,
                    &state.hub.limits,
                    &state.hub.counters.account,
                )?;
                let (guest, flow) = stream_pair(info, token, &state.hub.limits, permit, charge);
                let handle = state.keep(ByteStream::Flow(guest))?;
                Ok((handle.rep(), flow))
            },
            Instance::call_dial,
        )
    }

    /// Dials, as [`dial`](Instance::dial), for datagrams.
    pub fn dial_datagrams(
        &mut self,
        dial: Dial,
    ) -> Result<Result<BegunDial<DatagramFlow>, Error>, Trap> {
        if self.optional.dial_datagrams.is_none() {
            return Ok(Err(Error::Refused {
                module: self.store.data().hub.name.clone(),
                code: ErrorCode::NotSupported,
            }));
        }
        // The module may send to this address on its own sockets.
        if let Some(Destination::Address(to)) = &dial.destination {
            for (_, port) in self.store.data().ports.iter() {
                if let Port::Udp(port) = port {
                    port.known().dialled(*to, Clock::now());
                }
            }
        }
        self.begin(
            dial,
            |state, info, token, permit| {
                let (counters, failed) = (state.hub.counters.clone(), state.failed.clone());
                let charge = charge(Network::Udp, &info, &state.hub.limits, &counters.account)?;
                let (guest, flow) = datagram_pair(
                    info,
                    token,
                    &state.hub.limits,
                    permit,
                    counters,
                    failed,
                    charge,
                );
                Ok((state.keep(guest)?.rep(), flow))
            },
            Instance::call_dial_datagrams,
        )
    }

    /// Begins a dial with the result of `open`: a handle for the module, and the application's end.
    fn begin<F>(
        &mut self,
        dial: Dial,
        open: impl FnOnce(&mut State, FlowInfo, Arc<Token>, Permit) -> Result<(u32, F), Failure>,
        call: impl FnOnce(
            &mut Instance,
            Option<types::Destination>,
            u32,
        ) -> Result<Result<u64, types::ErrorCode>, Trap>,
    ) -> Result<Result<BegunDial<F>, Error>, Trap> {
        let state = self.store.data_mut();
        let full = |module: &str| {
            Ok(Err(Error::Refused {
                module: module.to_owned(),
                code: ErrorCode::LimitReached,
            }))
        };
        let Some(permit) = state.flow_permit() else {
            return full(&state.hub.name);
        };
        let destination = dial.destination.clone();
        let info = FlowInfo {
            source: UNKNOWN,
            destination: destination.clone().unwrap_or(Destination::Address(UNKNOWN)),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        };
        let token = Token::unnamed(&state.ready);
        let Ok((handle, flow)) = open(state, info, token.clone(), permit) else {
            return full(&state.hub.name);
        };
        let (dialling, attempts) = Dialling::new(dial, handle);
        state.dialling = Some(dialling);
        let answer = call(self, destination.map(destination_to_guest), handle);
        let state = self.store.data_mut();
        let dialling = state.dialling.take();
        Ok(match answer? {
            Ok(name) => {
                token.name(name);
                // The token had no name when it was listed before.
                token.notify();
                Ok(BegunDial { flow, attempts })
            }
            Err(code) => Err(match dialling {
                Some(dialling) => dialling.failure(&state.hub.name, code.into()),
                None => Error::Refused {
                    module: state.hub.name.clone(),
                    code: code.into(),
                },
            }),
        })
    }

    /// Calls `endpoint.dial` with the stream that the table, or the recording, has under `handle`.
    pub fn call_dial(
        &mut self,
        destination: Option<types::Destination>,
        handle: u32,
    ) -> Result<Result<u64, types::ErrorCode>, Trap> {
        self.call(
            |now| Call::Dial {
                now,
                destination: destination.clone(),
                application: handle,
            },
            |guest, store, now| {
                guest.call_dial(store, destination.as_ref(), Resource::new_own(handle), now)
            },
        )
    }

    /// Calls `datagram-dialer.dial-datagrams`, as [`call_dial`](Instance::call_dial).
    pub fn call_dial_datagrams(
        &mut self,
        destination: Option<types::Destination>,
        handle: u32,
    ) -> Result<Result<u64, types::ErrorCode>, Trap> {
        let Some(export) = self.optional.dial_datagrams else {
            return Ok(Err(types::ErrorCode::NotSupported));
        };
        self.call(
            |now| Call::DialDatagrams {
                now,
                destination: destination.clone(),
                application: handle,
            },
            |_, store, now| {
                let application = Resource::new_own(handle);
                let (answer,) = export.call(store, (destination.clone(), application, now))?;
                Ok(answer)
            },
        )
    }

    /// Asks the module for its state.
    pub fn status(&mut self) -> Result<ModuleStatus, Trap> {
        let status = self.call(
            |now| Call::GetStatus { now },
            |guest, store, now| guest.call_get_status(store, now),
        )?;
        Ok(ModuleStatus {
            peers: status
                .peers
                .into_iter()
                .take(MOST_PEERS)
                .map(PeerStatus::from)
                .collect(),
            flows: status.flows,
            counters: status
                .counters
                .into_iter()
                .take(MOST_COUNTERS)
                .filter(|(name, _)| !name.starts_with(OF_THE_HOST))
                .map(|(name, value)| (shortened(name), value))
                .collect(),
        })
    }

    /// Asks the module for the configurations of its clients, for the address that they reach it at.
    pub fn client_configs(
        &mut self,
        public: Destination,
    ) -> Result<Result<Vec<ClientConfig>, ErrorCode>, Trap> {
        let public = destination_to_guest(public);
        let configs = self.call(
            |_| Call::ClientConfigs {
                public: public.clone(),
            },
            |guest, store, _| guest.call_client_configs(store, &public),
        )?;
        Ok(configs
            .map(|configs| configs.into_iter().map(ClientConfig::from).collect())
            .map_err(ErrorCode::from))
    }

    /// Calls the module, then wakes the application for its changes. `describe` returns the call
    /// for a recording.
    fn call<'a, T: Serialize>(
        &mut self,
        describe: impl FnOnce(u64) -> Call<'a>,
        call: impl FnOnce(&Guest, &mut Store<State>, u64) -> wasmtime::Result<T>,
    ) -> Result<T, Trap> {
        let begin = Clock::now();
        // The cast overflows after 584 years.
        let now = begin.duration_since(self.epoch).as_nanos() as u64;
        let now = self.store.data().replayed_now().unwrap_or(now);
        self.store.data().record(|| Event::Call(describe(now)));
        self.store.set_epoch_deadline(1);
        self.store.data_mut().cpu.begin();
        let result = call(
            self.bindings.watm_transport_endpoint(),
            &mut self.store,
            now,
        );
        let state = self.store.data_mut();
        state.spent(begin);
        state.wakers.fire();
        match result {
            Ok(answer) => {
                state.returned(&answer);
                Ok(answer)
            }
            Err(error) => {
                state.failed.store(true, Ordering::Relaxed);
                Err(trap(&self.store, &error))
            }
        }
    }
}

impl State {
    /// Counts the time of the module since `begin`, and takes it from its share.
    fn spent(&self, begin: Clock) {
        // The cast overflows after 584 years.
        let now = Clock::now();
        let spent = now.duration_since(begin).as_nanos() as u64;
        self.hub.counters.guest_time_ns.add(spent);
        self.cpu_quota.spend(spent);
        slice::look(now);
    }
}

/// Marks the flows for a reset: an instance is dropped only when it failed or its server closes.
impl Drop for Instance {
    fn drop(&mut self) {
        self.store.data().failed.store(true, Ordering::Relaxed);
    }
}

fn trap(store: &Store<State>, error: &wasmtime::Error) -> Trap {
    let state = store.data();
    let reason = if let Some(limit) = state.cpu.overrun() {
        format!("used more than {limit:?} of CPU time in one call")
    } else if let Some(limit) = state.limiter.refused() {
        format!(
            "ran out of memory (limit {} MiB): {}",
            limit >> 20,
            error.root_cause()
        )
    } else {
        error.root_cause().to_string()
    };
    // The call was interrupted for its CPU time, or to close.
    let interrupted = matches!(error.downcast_ref(), Some(wasmtime::Trap::Interrupt));
    state.record(|| Event::Trapped {
        interrupted,
        reason: reason.as_str().into(),
    });
    Trap {
        backtrace: error
            .downcast_ref::<WasmBacktrace>()
            // Its functions have the names that the module gives them.
            .map(|backtrace| one_line(&backtrace.to_string(), MAX_MESSAGE)),
        reason,
    }
}
