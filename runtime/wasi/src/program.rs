//! One instance of a program, from its start to its end. `roles` of the runtime runs it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::time::timeout;
use wasmtime::component::{Linker, ResourceTable};
use wasmtime::{Store, WasmBacktrace};
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, random, sockets};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::random::WasiRandom;
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView};
use wasmtime_wasi::{I32Exit, WasiCtx, WasiView};
use watm_engine::cpu_meter::CpuMeter;
use watm_engine::cpu_quota::CpuQuota;
use watm_engine::job::Settings;
use watm_engine::limiter::{Limiter, MEMORIES_OF_COMPONENT};
use watm_engine::log::{LogRate, Logger, MAX_MESSAGE};
use watm_engine::output::{Output, Stream};
use watm_engine::{Code, Module, Ticking};
use watm_net::Limits;
use watm_net::account::CALL_BYTES;
use watm_policy::access::Access;
use watm_types::{Destination, Error, one_line};

use crate::connection::Surroundings;
use crate::lines::Lines;
use crate::network::{Application, Network};
use crate::ports::Ports;
use crate::state::State;
use crate::tasks::Tasks;
use crate::{names, tcp, udp};

/// The most random bytes of one call.
const MOST_RANDOM: u64 = 1 << 20;

/// The handles of a program for each of its descriptors: a socket, its two streams, and what it
/// polls of each.
const HANDLES_OF_DESCRIPTOR: usize = 8;

/// The handles of a program beside those of its descriptors.
const OTHER_HANDLES: usize = 1024;

/// A program before its start, with everything that its instances get.
pub struct Start {
    module: Module,
    settings: Settings,
    arguments: Arc<[String]>,
    ports: Arc<Ports>,
    own: Option<Destination>,
    application: Option<Application>,
    access: Arc<Access>,
    cpu_quota: CpuQuota,
    log_rate: LogRate,
    ticking: Ticking,
}

/// The options of a program beside the settings of every module.
pub struct Options {
    /// Its arguments, after its name.
    pub arguments: Vec<String>,
    /// The addresses that it may listen on.
    pub ports: Ports,
    /// A destination that it may connect to beside its reach.
    pub own: Option<Destination>,
    /// Makes its connections to [`APPLICATION`](crate::APPLICATION) flows; `None` for a relay.
    pub application: Option<Application>,
}

/// The reason why a program ended, other than by itself and well.
#[derive(Debug)]
pub enum Stop {
    /// It exited with this status.
    Exit(i32),
    /// It failed.
    Trap(String),
}

/// A module with its imports resolved.
struct Prepared(CommandPre<State>);

impl Prepared {
    fn new(module: &Module) -> Result<Prepared, String> {
        let Code::Program(code) = module.code() else {
            return Err("is not a program".to_owned());
        };
        let mismatch = |error: wasmtime::Error| format!("does not fit wasi:cli/command: {error:#}");
        let linker = linker(module.engine().wasmtime()).map_err(mismatch)?;
        let pre = linker.instantiate_pre(code).map_err(mismatch)?;
        Ok(Prepared(CommandPre::new(pre).map_err(mismatch)?))
    }
}

/// Fails if the module does not fit this host.
pub fn check_linked(module: &Module) -> Result<(), Error> {
    module.linked(Prepared::new).map(drop)
}

fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    let to = &mut linker;
    wasmtime_wasi::p2::bindings::io::error::add_to_linker::<State, Io>(to, table)?;
    wasmtime_wasi::p2::bindings::io::poll::add_to_linker::<State, Io>(to, table)?;
    wasmtime_wasi::p2::bindings::io::streams::add_to_linker::<State, Io>(to, table)?;
    clocks::wall_clock::add_to_linker::<State, WasiClocks>(to, State::clocks)?;
    clocks::monotonic_clock::add_to_linker::<State, WasiClocks>(to, State::clocks)?;
    random::random::add_to_linker::<State, WasiRandom>(to, |state| state.ctx().ctx.random())?;
    random::insecure::add_to_linker::<State, WasiRandom>(to, |state| state.ctx().ctx.random())?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(to, |state| {
        state.ctx().ctx.random()
    })?;
    cli::exit::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::environment::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::stdin::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::stdout::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::stderr::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::terminal_input::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::terminal_output::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::terminal_stdin::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::terminal_stdout::add_to_linker::<State, WasiCli>(to, State::cli)?;
    cli::terminal_stderr::add_to_linker::<State, WasiCli>(to, State::cli)?;
    // There are no files. The interfaces are there because every standard library looks for some.
    filesystem::preopens::add_to_linker::<State, WasiFilesystem>(to, State::filesystem)?;
    filesystem::types::add_to_linker::<State, WasiFilesystem>(to, State::filesystem)?;
    sockets::instance_network::add_to_linker::<State, WasiSockets>(to, State::sockets)?;
    let options = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<State, WasiSockets>(to, &options, State::sockets)?;
    udp::add_to_linker(to)?;
    tcp::add_to_linker(to)?;
    names::add_to_linker(to)?;
    Ok(linker)
}

/// The resources of the interfaces of `wasi:io`.
struct Io;

impl wasmtime::component::HasData for Io {
    type Data<'a> = &'a mut ResourceTable;
}

fn table(state: &mut State) -> &mut ResourceTable {
    &mut state.table
}

impl Start {
    /// Links the module, and prepares its instances.
    pub fn new(module: &Module, settings: Settings, options: Options) -> Result<Start, Error> {
        check_linked(module)?;
        Ok(Start {
            access: access(module, &settings),
            cpu_quota: CpuQuota::new(module.granted().cpu_permille()),
            log_rate: LogRate::new(&settings.limits),
            module: module.clone(),
            arguments: options.arguments.into(),
            ports: Arc::new(options.ports),
            own: options.own,
            application: options.application,
            settings,
            ticking: module.engine().tick()?,
        })
    }

    /// Prepares another module with the same settings, options and listeners.
    pub fn with_module(&self, module: &Module) -> Result<Start, Error> {
        let limits = self.settings.limits.clone();
        let settings = Settings {
            limits: module.granted().limits(module.info().kind, limits),
            ..self.settings.clone()
        };
        check_linked(module)?;
        Ok(Start {
            access: access(module, &settings),
            cpu_quota: CpuQuota::new(module.granted().cpu_permille()),
            module: module.clone(),
            ticking: module.engine().tick()?,
            ..self.with_settings(settings)
        })
    }

    /// Prepares the same module with another configuration.
    pub fn with_config(&self, config: Vec<u8>) -> Start {
        self.with_settings(Settings {
            config: (!config.is_empty()).then_some(config),
            ..self.settings.clone()
        })
    }

    fn with_settings(&self, settings: Settings) -> Start {
        Start {
            module: self.module.clone(),
            settings,
            arguments: self.arguments.clone(),
            ports: self.ports.clone(),
            own: self.own.clone(),
            application: self.application.clone(),
            access: self.access.clone(),
            cpu_quota: self.cpu_quota.clone(),
            log_rate: self.log_rate.clone(),
            ticking: self.ticking.clone(),
        }
    }

    /// Returns the module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Returns the addresses that it may listen on.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Runs an instance until it ends. Dropping the future cancels it, and resets its connections.
    pub async fn run(&self) -> Result<(), Stop> {
        let limits = &self.settings.limits;
        let prepared = self.module.linked(Prepared::new);
        let prepared = prepared.map_err(|error| Stop::Trap(error.to_string()))?;
        let output = Arc::new(Mutex::new(Output::new(Arc::new(Mutex::new(Logger::new(
            &self.settings.name,
            self.log_rate.clone(),
            self.settings.counters.clone(),
            self.settings.log_level,
        ))))));
        let tasks = Arc::<Tasks>::default();
        let cpu = CpuMeter::new(
            limits.cpu_per_call,
            self.cpu_quota.clone(),
            self.settings.counters.clone(),
        );
        let state = self.state(&output, &cpu, &tasks);
        let mut store = Store::new(self.module.engine().wasmtime(), state);
        // Dropped before the store: until a program ends by itself, its end is a failure.
        let mut unfinished = Unfinished(Some(tasks.clone()));
        store.limiter(|state| &mut state.limiter);
        let ticks = cpu.clone();
        store.epoch_deadline_callback(move |_| Ok(ticks.tick()));
        store.set_hostcall_fuel(CALL_BYTES);
        store.set_max_component_handles(handles(limits));
        store.set_epoch_deadline(1);
        let call = async {
            let command = prepared.0.instantiate_async(&mut store).await?;
            command.wasi_cli_run().call_run(&mut store).await
        };
        let ended = cpu.metered(call).noticing_waits().await;
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(())) => return Err(Stop::Exit(1)),
            Err(error) => stop(store.data(), &output, &error)?,
        }
        unfinished.0 = None;
        drop(store);
        // The rest of its data. Bytes that the other ends do not take by then are lost.
        let _ = timeout(limits.close_grace, tasks.join()).await;
        Ok(())
    }

    fn state(&self, output: &Arc<Mutex<Output>>, cpu: &CpuMeter, tasks: &Arc<Tasks>) -> State {
        let settings = &self.settings;
        let limits = &settings.limits;
        let network = Arc::new(Network::new(
            self.access.clone(),
            self.own.clone(),
            self.ports.clone(),
            self.application.clone(),
            &settings.counters,
        ));
        let mut wasi = WasiCtx::builder();
        wasi.arg(&settings.name)
            .args(&self.arguments)
            .stdout(Lines::new(output, Stream::Out))
            .stderr(Lines::new(output, Stream::Error))
            .max_random_size(MOST_RANDOM)
            .allow_tcp(false)
            // A connector carries connections, and no sockets.
            .allow_udp(self.access.connector.is_none())
            .allow_ip_name_lookup(false)
            .socket_addr_check(udp::check(network.clone(), cpu.clone()));
        if let Some(config) = &settings.config {
            wasi.stdin(MemoryInputPipe::new(config.clone()));
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(handles(limits));
        State {
            wasi: wasi.build(),
            table,
            network,
            around: Surroundings {
                cpu: cpu.clone(),
                tasks: tasks.clone(),
                grace: limits.connect_timeout,
            },
            descriptors: settings.descriptors.clone(),
            udp: HashMap::new(),
            limiter: Limiter::new(
                limits.memory_bytes,
                MEMORIES_OF_COMPONENT,
                settings.counters.clone(),
            ),
            counters: settings.counters.clone(),
        }
    }
}

/// Returns the network access of a module with these settings.
fn access(module: &Module, settings: &Settings) -> Arc<Access> {
    Arc::new(Access {
        name: settings.name.clone(),
        reach: module.granted().reach(settings.reach.clone()),
        connector: settings.connector.clone(),
        connect_timeout: settings.limits.connect_timeout,
        counters: settings.counters.clone(),
        lookups: settings.lookups.clone(),
    })
}

/// Returns the most handles of a program.
fn handles(limits: &Limits) -> usize {
    let of_descriptors = limits.descriptors.saturating_mul(HANDLES_OF_DESCRIPTOR);
    limits
        .handles
        .min(of_descriptors.saturating_add(OTHER_HANDLES))
}

/// Marks a program as failed, unless it has finished.
struct Unfinished(Option<Arc<Tasks>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(tasks) = &self.0 {
            tasks.fail();
        }
    }
}

/// Returns the reason for an error that ended the program.
fn stop(state: &State, output: &Mutex<Output>, error: &wasmtime::Error) -> Result<(), Stop> {
    match error.downcast_ref() {
        Some(I32Exit(0)) => return Ok(()),
        Some(I32Exit(status)) => return Err(Stop::Exit(*status)),
        None => {}
    }
    if let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() {
        // Its functions have the names that the module gives them.
        let backtrace = one_line(&backtrace.to_string(), MAX_MESSAGE);
        tracing::debug!(target: "watm::server", "{backtrace}");
    }
    let cause = error.root_cause();
    Err(Stop::Trap(
        if let Some(limit) = state.around.cpu.overrun() {
            format!("used more than {limit:?} of CPU time without waiting")
        } else if let Some(limit) = state.limiter.refused() {
            format!("ran out of memory (limit {} MiB): {cause}", limit >> 20)
        } else {
            let mut output = output.lock().expect("no panic under this lock");
            let cause = one_line(&cause.to_string(), MAX_MESSAGE);
            match output.last_error() {
                Some(said) => format!("{cause}; the program's last output: {said}"),
                None => cause,
            }
        },
    ))
}

impl Stop {
    /// Describes the end, in words that follow the program's name.
    pub fn reason(&self) -> String {
        match self {
            Stop::Exit(status) => format!("exited with status {status}"),
            Stop::Trap(reason) => reason.clone(),
        }
    }
}
