//! Runs a module's instances against a player. Both kinds of replay use it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cpu_time::ThreadTime;

use crate::{Error, Limits, LogRecord, Module, RecordingEnd, Report};
use watm_component::convert::tracing_level;
use watm_component::recording::{Asked, Call, End, Function, Header};
use watm_component::{Grants, Instance, Player, StartError, Tape, Trap};
use watm_engine::Ticking;
use watm_engine::cpu_quota::CpuQuota;
use watm_engine::hub::Hub;
use watm_policy::keys::Keys;
use watm_types::printable;

/// The factor on the CPU limit of the recording: another machine may be slower, and the recording
/// itself stops a call that was stopped then.
const CPU_ALLOWANCE: u32 = 10;

pub(super) const MAX_TRAPS: usize = 100;
const MAX_LOG_RECORDS: usize = 1000;

/// Runs instances whose imports are answered by a player in the host's place.
pub(super) struct Stage {
    module: Module,
    grants: Grants,
    pub(super) instance: Option<Instance>,
    calls: u64,
    instances: u32,
    cpu_time: Duration,
    _ticking: Ticking,
}

impl Stage {
    pub(super) fn new(
        module: &Module,
        header: &Header,
        player: Arc<Mutex<dyn Player>>,
    ) -> Result<Stage, Error> {
        let recorded = header.limits();
        let limits = Limits {
            cpu_per_call: recorded.cpu_per_call.saturating_mul(CPU_ALLOWANCE),
            ..recorded
        };
        let grants = Grants {
            hub: Arc::new(Hub::new(header.server.clone(), limits)),
            ports: Arc::default(),
            mailboxes: Arc::default(),
            access: None,
            home: None,
            host_crypto: header.host_crypto,
            keys: Keys::new(),
            capture: None,
            log_level: tracing_level(header.log_level),
            cpu_quota: CpuQuota::default(),
            tape: Some(Tape::Replay(player)),
        };
        Ok(Stage {
            _ticking: module.engine().tick()?,
            module: module.clone(),
            grants,
            instance: None,
            calls: 0,
            instances: 0,
            cpu_time: Duration::ZERO,
        })
    }

    /// Makes the next instance, in place of the former one.
    pub(super) fn instantiate(&mut self) -> Result<(), Trap> {
        self.instance = None;
        let generation = self.instances;
        self.instances += 1;
        self.grants.mailboxes.serve(generation);
        match Instance::new(&self.module, &self.grants, generation) {
            Ok(instance) => {
                self.instance = Some(instance);
                Ok(())
            }
            Err(trap) => Err(trap),
        }
    }

    /// Makes a call, which the player already knows. Does nothing without an instance.
    pub(super) fn call(&mut self, call: &Call<'_>) -> Result<(), Trap> {
        let Some(instance) = self.instance.as_mut() else {
            return Ok(());
        };
        self.calls += 1;
        let begin = ThreadTime::now();
        let result = match call {
            Call::Start {
                config,
                predecessor,
                ..
            } => accepted(instance.start(config, predecessor.as_deref())),
            Call::Reconfigure { config, .. } => accepted(instance.reconfigure(config)),
            Call::Process { ready, .. } => instance.process(ready).map(drop),
            Call::Snapshot { .. } => instance.snapshot().map(drop),
            Call::Serving { generation, .. } => instance.serving(*generation),
            Call::NetworkChanged { .. } => instance.network_changed(),
            Call::GetStatus { .. } => instance.status().map(drop),
            Call::Dial {
                destination,
                application,
                ..
            } => instance
                .call_dial(destination.clone(), *application)
                .map(drop),
            Call::DialDatagrams {
                destination,
                application,
                ..
            } => instance
                .call_dial_datagrams(destination.clone(), *application)
                .map(drop),
            Call::ClientConfigs { public } => {
                instance.client_configs(public.clone().into()).map(drop)
            }
        };
        self.cpu_time += begin.elapsed();
        result.inspect_err(|_| self.instance = None)
    }

    /// Adds what was counted here to a report.
    pub(super) fn finish(mut self, report: Report, log: Vec<LogRecord>) -> Report {
        let status = self.instance.as_mut().map(Instance::status);
        Report {
            calls: self.calls,
            instances: self.instances.into(),
            log,
            cpu_time: self.cpu_time,
            counters: match status {
                Some(Ok(status)) => status.counters,
                _ => BTreeMap::new(),
            },
            ..report
        }
    }
}

/// Returns only a trap as an error: a refusal is an answer.
fn accepted(result: Result<(), StartError>) -> Result<(), Trap> {
    match result {
        Err(StartError::Trap(trap)) => Err(trap),
        Ok(()) | Err(StartError::Refused(_)) => Ok(()),
    }
}

impl From<Option<End>> for RecordingEnd {
    fn from(end: Option<End>) -> RecordingEnd {
        match end {
            None => RecordingEnd::NotReached,
            Some(End::Ended(reason)) => RecordingEnd::Ended(reason),
            Some(End::Truncated) => RecordingEnd::Truncated,
        }
    }
}

/// Keeps a log record, if the function is `log`.
pub(super) fn keep_log(log: &mut Vec<LogRecord>, function: Function, arguments: &[u8]) {
    if function != Function::Log || log.len() >= MAX_LOG_RECORDS {
        return;
    }
    if let Some(Asked::Log {
        level,
        target,
        message,
        ..
    }) = function.asked(arguments)
    {
        log.push(LogRecord {
            level: tracing_level(level),
            part: printable(&target, target.len()).into_owned(),
            message: printable(&message, message.len()).into_owned(),
        });
    }
}
