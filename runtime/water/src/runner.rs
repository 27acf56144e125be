//! Opens and checks the connections of one WATER module. `roles` and `driver::water` call it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Prepared;
use super::connections::Connections;
use super::end::{Caller, Control};
use super::fds::{Descriptor, Resource};
use super::instance::{Instance, Stop};
use super::outside::Outside;
use super::state::State;
use super::worker::{Closing, Worker};
use watm_net::counters::Counters;

use crate::{Destination, Error, FlowInfo, Limits, Module, Role, Target};
use watm_engine::cpu_meter::CpuMeter;
use watm_engine::cpu_quota::CpuQuota;
use watm_engine::job::{Job, Opened, Settings};
use watm_engine::limiter::{Limiter, MEMORIES_OF_WATER};
use watm_engine::log::{LogRate, Logger};
use watm_engine::output::{Output, Stream};
use watm_net::quota::Permit;
use watm_net::quota::Quota;
use watm_policy::access::Access;

/// Runs a WATER module, with one instance for each connection.
pub struct WaterRunner {
    module: Module,
    name: Arc<str>,
    limits: Limits,
    config: Option<Arc<[u8]>>,
    access: Arc<Access>,
    logger: Arc<Mutex<Logger>>,
    counters: Arc<Counters>,
    flows: Quota,
    /// The count of connections that its instances have made or accepted.
    descriptors: Quota,
    /// The share of a core that all its instances have together.
    cpu_quota: CpuQuota,
    connections: Arc<Connections>,
}

impl WaterRunner {
    /// Links the module, and prepares it for these settings.
    pub fn new(module: &Module, settings: Settings) -> Result<WaterRunner, Error> {
        let logger = Logger::new(
            &settings.name,
            LogRate::new(&settings.limits),
            settings.counters.clone(),
            settings.log_level,
        );
        Ok(WaterRunner {
            module: module.clone(),
            access: Arc::new(Access {
                name: settings.name.clone(),
                reach: module.granted().reach(settings.reach),
                connector: settings.connector,
                connect_timeout: settings.limits.connect_timeout,
                counters: settings.counters.clone(),
                lookups: settings.lookups,
            }),
            name: settings.name.into(),
            config: settings.config.map(Into::into),
            logger: Arc::new(Mutex::new(logger)),
            counters: settings.counters,
            flows: settings.flows,
            descriptors: settings.descriptors,
            cpu_quota: CpuQuota::new(module.granted().cpu_permille()),
            connections: Arc::new(Connections::new(module)?),
            limits: settings.limits,
        })
    }

    /// Opens one connection. Dropping the future abandons the attempt; after that the connection
    /// lives in a task of its own, in the runtime that this was called in.
    pub fn open(
        self: Arc<Self>,
        job: Job,
    ) -> Pin<Box<dyn Future<Output = Result<Opened, Error>> + Send>> {
        Box::pin(self.open_in_time(job))
    }

    async fn open_in_time(self: Arc<Self>, job: Job) -> Result<Opened, Error> {
        let after = self.limits.handshake_timeout;
        let name = self.name.clone();
        match timeout(after, self.open_connection(job)).await {
            Ok(result) => result,
            Err(_) => Err(Error::Timeout {
                module: name.to_string(),
                after,
            }),
        }
    }

    /// Returns the connections that it has opened.
    pub fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Returns the error for a call of the handshake that did not return.
    fn stopped(&self, stop: Stop) -> Error {
        self.connections.report_fault(&stop.reason());
        stop.into_error(&self.name)
    }

    /// Runs steps 1 and 2 of [`super`], to learn the module's opinion of its configuration. With
    /// `listens`, it also runs step 3 up to the request for a client's connection: some modules
    /// check there what a listener needs.
    pub async fn check_config(&self, listens: bool) -> Result<(), Error> {
        let after = self.limits.handshake_timeout;
        let prepared = self.prepared()?;
        let role = if listens {
            Role::Listener
        } else {
            Role::Dialer
        };
        let outside = Outside::for_check(role, self.access.clone(), self.descriptors.clone());
        let state = self.state(outside, self.config.clone(), &prepared);
        let checked = timeout(after, async {
            let mut instance = Instance::new(&prepared, state)
                .await
                .map_err(|stop| stop.into_error(&self.name))?;
            self.check_call(&mut instance, prepared.abi.init, ())
                .await?;
            match prepared.abi.function(role) {
                Some(function) if listens => self.check_listening(&mut instance, function).await,
                _ => Ok(()),
            }
        });
        checked.await.unwrap_or_else(|_| {
            Err(Error::Timeout {
                module: self.name.to_string(),
                after,
            })
        })
    }

    async fn check_listening(&self, instance: &mut Instance, function: &str) -> Result<(), Error> {
        let nobody = flow_info(None, None);
        let account = &self.counters.account;
        let (caller, _flow, _) = Caller::new(nobody, &self.limits, self.permit()?, account);
        let fd = self.insert(instance, Resource::End(Box::new(caller)))?;
        let called = self.check_call(instance, function, fd).await;
        match instance.state().outside.has_asked() {
            true => Ok(()),
            false => called,
        }
    }

    async fn check_call<Params>(
        &self,
        instance: &mut Instance,
        name: &str,
        params: Params,
    ) -> Result<(), Error>
    where
        Params: wasmtime::WasmParams + Sync,
    {
        let called = instance.call(name, params).await;
        let result = called.map_err(|stop| stop.into_error(&self.name))?;
        match instance.failure(name, result) {
            None => Ok(()),
            Some(reason) => Err(Error::Config {
                module: self.name.to_string(),
                reason,
            }),
        }
    }

    /// Runs steps 1 to 5 of [`super`].
    async fn open_connection(self: Arc<Self>, job: Job) -> Result<Opened, Error> {
        let prepared = self.prepared()?;
        let role = job.role();
        let function = prepared.abi.function(role).ok_or_else(|| Error::Module {
            module: self.name.to_string(),
            reason: format!("does not have the role {role}"),
        })?;
        let config = job.config.or_else(|| self.config.clone());
        let info = flow_info(job.target.as_ref(), job.accepted.as_ref());
        let outside = Outside::new(
            role,
            job.target,
            job.accepted,
            self.access.clone(),
            self.descriptors.clone(),
        );
        let state = self.state(outside, config, &prepared);
        let mut instance = Instance::new(&prepared, state)
            .await
            .map_err(|stop| self.stopped(stop))?;
        self.call(&mut instance, prepared.abi.init, ()).await?;

        let permit = self.permit()?;
        let (caller, permit, flow, used) = match role {
            Role::Relay => (None, Some(permit), None, None),
            _ => {
                let account = &self.counters.account;
                let (caller, flow, used) = Caller::new(info, &self.limits, permit, account);
                (Some(caller), None, Some(flow), Some(used))
            }
        };
        let (local, peer) = match &caller {
            Some(caller) => {
                let fd = self.insert(&mut instance, Resource::End(Box::new(caller.clone())))?;
                let net = self.call(&mut instance, function, fd).await?;
                let refuse = |what: &str| Error::Handshake {
                    module: self.name.to_string(),
                    reason: format!("{function} returned {net}, which is {what}"),
                };
                match instance.state().fds.get(net) {
                    Ok(descriptor) if descriptor.outside => descriptor.addresses,
                    // The application's stream is the only one yet: the control pipe does not
                    // exist.
                    Ok(Descriptor {
                        resource: Resource::End(_),
                        ..
                    }) => {
                        return Err(refuse(
                            "the application's own stream; must be a connection from env",
                        ));
                    }
                    _ => return Err(refuse("not one of its connections")),
                }
            }
            None => {
                self.call(&mut instance, function, ()).await?;
                if instance.state().outside.waits() {
                    return Err(Error::Handshake {
                        module: self.name.to_string(),
                        reason: format!("{function} returned without the client's connection"),
                    });
                }
                (None, None)
            }
        };
        let control = Control::default();
        let fd = self.insert(&mut instance, Resource::End(Box::new(control.guest_end())))?;
        self.call(&mut instance, prepared.abi.control, fd).await?;

        let (stop, stopped) = oneshot::channel::<()>();
        let (done, finished) = oneshot::channel();
        let closing: Closing = match &caller {
            Some(caller) => {
                let watch = caller.watch();
                Box::pin(async move { poll_fn(|cx| watch.poll_closed(cx)).await })
            }
            // Returns when the stop is sent, or when nobody is left to send it.
            None => Box::pin(async move {
                let _ = stopped.await;
            }),
        };
        let worker = Worker {
            instance,
            caller,
            control,
            closing,
            _permit: permit,
            reset: false,
            grace: self.limits.close_grace,
            name: self.name.clone(),
            connections: self.connections.clone(),
        };
        tokio::spawn(async move {
            worker.run().await;
            drop(done);
        });
        Ok(Opened {
            flow,
            local,
            peer,
            used: used.filter(|_| role == Role::Listener),
            stop,
            finished,
        })
    }

    /// Reserves a place for one more connection of an application.
    fn permit(&self) -> Result<Permit, Error> {
        self.flows.permit().ok_or_else(|| Error::Refused {
            module: self.name.to_string(),
            code: crate::ErrorCode::LimitReached,
        })
    }

    fn prepared(&self) -> Result<Arc<Prepared>, Error> {
        self.module.linked(Prepared::new)
    }

    fn state(&self, outside: Outside, config: Option<Arc<[u8]>>, prepared: &Prepared) -> State {
        let mounted = config.is_some() && prepared.abi.has_directory();
        let mut state = State::new(
            Output::new(self.logger.clone()),
            outside,
            config,
            CpuMeter::new(
                self.limits.cpu_per_call,
                self.cpu_quota.clone(),
                self.counters.clone(),
            ),
            Limiter::new(
                self.limits.memory_bytes,
                MEMORIES_OF_WATER,
                self.counters.clone(),
            ),
        );
        let standard = [
            Some(Resource::Input),
            Some(Resource::Output(Stream::Out)),
            Some(Resource::Output(Stream::Error)),
            mounted.then_some(Resource::Directory),
        ];
        for resource in standard.into_iter().flatten() {
            // The table is empty, so there is room.
            let _ = state.fds.insert(Descriptor::new(resource));
        }
        state
    }

    fn insert(&self, instance: &mut Instance, resource: Resource) -> Result<i32, Error> {
        let inserted = instance.state().fds.insert(Descriptor::new(resource));
        inserted.map_err(|_| Error::Handshake {
            module: self.name.to_string(),
            reason: "has no free descriptors left".to_owned(),
        })
    }

    /// Calls a function of the handshake. If it fails because a connection failed, the connection's
    /// error is returned.
    async fn call<Params>(
        &self,
        instance: &mut Instance,
        name: &str,
        params: Params,
    ) -> Result<i32, Error>
    where
        Params: wasmtime::WasmParams + Sync,
    {
        let result = instance.call(name, params).await;
        let reason = match result {
            Ok(result) => match instance.failure(name, result) {
                None => return Ok(result),
                Some(reason) => reason,
            },
            Err(stop) => match instance.state().outside.take_failure() {
                Some(error) => return Err(error),
                None => return Err(self.stopped(stop)),
            },
        };
        let state = instance.state();
        if let Some(error) = state.outside.take_failure() {
            return Err(error);
        }
        // A module may refuse what a client sends.
        if !state.outside.accepts() && !state.has_lost() {
            self.connections.report_fault(&reason);
        }
        Err(Error::Handshake {
            module: self.name.to_string(),
            reason,
        })
    }
}

/// Returns what is known of a connection before it is made.
fn flow_info(target: Option<&Target>, accepted: Option<&watm_net::Wire>) -> FlowInfo {
    let unknown = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let (local, peer) = accepted.map_or((None, None), |wire| (wire.local, wire.peer));
    FlowInfo {
        source: peer.unwrap_or(unknown),
        destination: match target {
            Some(target) => target.destination.clone(),
            None => Destination::Address(local.unwrap_or(unknown)),
        },
        peer: None,
        underlay: peer.zip(local),
        attributes: Vec::new(),
    }
}
