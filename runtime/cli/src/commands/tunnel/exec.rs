//! `--exec` and `--netns`: programs whose network is the tunnel. A second module takes the packets of
//! their device, and each of its flows becomes a connection through the tunnel.

use std::env;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::task::{JoinSet, spawn_blocking};
use watm_launch::{Launched, Namespace, Plan};
use watm_runtime::{DatagramFlow, Destination, Dialer, Flow, Module, PacketDevice, Server};
use watm_runtime::{ErrorCode, StreamFlow};
use watm_socks::{Carried, Dial, Error, Resolving};

use super::applications::Applications;
use super::configuration::Configuration;
use super::gate::Gate;
use super::module::{self, TUN};
use crate::accept_loop::Complaints;
use crate::failure::Failure;
use crate::loading::LoadingOptions;
use crate::logging::PROGRAM;
use crate::proxies::complain;
use crate::stop::Stop;
use crate::system;

/// The label of the device that the module takes.
const LABEL: &str = "tun";

/// The MTU of the device: that of WireGuard over Ethernet. TCP ends at the device.
const MTU: u32 = 1420;

/// The argument by which this program knows that it is a helper.
pub(crate) const HELPER: &str = "--watm-launch-helper";

/// A program, or the programs of a namespace, and the module that takes their packets.
pub(super) struct Exec {
    module: Module,
    plan: Plan,
    applications: Option<Applications>,
    /// The name of the file, for errors.
    file: String,
}

impl Exec {
    /// Loads the module, and checks that the file has addresses for the device. Without a namespace,
    /// the program gets a new one.
    pub(super) fn check(
        program: Vec<OsString>,
        namespace: Option<OsString>,
        configuration: &Configuration<'_>,
        name: &str,
        tun: Option<&Path>,
        loading: &LoadingOptions,
    ) -> Result<Exec, Failure> {
        let file = &configuration.file;
        let of = |ipv4: bool| {
            let mut addresses = file.addresses.iter();
            addresses.find(|address| address.is_ipv4() == ipv4).copied()
        };
        let addresses: Vec<IpAddr> = [of(true), of(false)].into_iter().flatten().collect();
        if addresses.is_empty() {
            return Err(Failure::unusable(format!(
                "{name}: [Interface] has no Address; --exec and --netns need one for the device"
            )));
        }
        if file.dns.is_empty() && namespace.is_none() {
            tracing::warn!(
                target: "watm::tunnel",
                "{name}: [Interface] has no DNS; the program asks the name servers of this machine \
                 through the tunnel, which may not reach them"
            );
        }
        let path = module::find(tun, TUN, "--tun-module")?;
        // Standard input belongs to the program.
        let module = loading.for_another().load(&path, false)?;
        Ok(Exec {
            module,
            plan: Plan {
                program,
                namespace: namespace.map(|name| Namespace { name }),
                addresses,
                mtu: MTU,
                resolvers: file.dns.clone(),
                ..Plan::default()
            },
            applications: configuration.applications.clone(),
            file: name.to_owned(),
        })
    }

    /// Returns true if it runs a program.
    pub(super) fn has_program(&self) -> bool {
        self.plan.namespace.is_none()
    }

    /// Runs the program until it ends, and returns its exit status. Serves a namespace until a signal.
    pub(super) async fn run(
        self,
        dialer: Arc<Resolving<Dialer>>,
        mut stop: Stop,
    ) -> Result<Option<i32>, Failure> {
        let mut launched = launch(&self.plan)?;
        let device = launched.take_device();
        let device = device.ok_or_else(|| Failure::failed("the helper sent no device"))?;
        let device = PacketDevice::given(device, MTU).map_err(Failure::failed)?;
        let gate = match self.applications.clone() {
            Some(rules) => Some(Arc::new(Gate::new(rules, &mut launched, &self.file)?)),
            None => None,
        };
        let server = Server::builder(&self.module)
            .packets(LABEL, device)
            .name(if self.has_program() { "exec" } else { "netns" })
            .start()?;
        if !self.has_program() {
            return match stop.unless(carry(&server, &dialer, gate)).await {
                Some(()) => Err(Failure::failed("the module of --netns ended")),
                None => Ok(None),
            };
        }
        let signals = system::Forwarded::new()?;
        launched.begin().map_err(Failure::failed)?;
        tokio::select! {
            status = follow(launched, signals) => status.map(Some),
            () = carry(&server, &dialer, gate) => Err(Failure::failed("the module of --exec ended")),
        }
    }
}

/// Makes a device in new namespaces, without a program. Fails with the reason.
pub(in crate::commands) fn try_exec() -> Result<(), String> {
    let plan = Plan {
        mtu: MTU,
        ..Plan::default()
    };
    let tried =
        helper().and_then(|helper| watm_launch::launch(helper, &plan).map_err(Failure::failed));
    tried.map(drop).map_err(|failure| failure.to_string())
}

fn helper() -> Result<Command, Failure> {
    let own = env::current_exe();
    let own = own.map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
    let mut helper = Command::new(own);
    helper.arg(HELPER);
    Ok(helper)
}

fn launch(plan: &Plan) -> Result<Launched, Failure> {
    watm_launch::launch(helper()?, plan).map_err(|error| match plan.namespace {
        None => Failure::failed(format!("--exec: {error}; see `watm doctor`")),
        Some(_) => Failure::failed(format!("--netns: {error}")),
    })
}

/// Passes signals on until the program has ended. Returns its exit status.
async fn follow(mut launched: Launched, mut signals: system::Forwarded) -> Result<i32, Failure> {
    let ended = launched.watch().map_err(Failure::failed)?;
    let mut ended = spawn_blocking(ended);
    loop {
        tokio::select! {
            _ = &mut ended => return launched.wait().map_err(Failure::failed),
            signal = signals.next() => launched.signal(signal),
        }
    }
}

/// Carries the program's flows until the module ends. The module's limit on flows bounds their
/// number.
async fn carry(server: &Server, dialer: &Arc<Resolving<Dialer>>, gate: Option<Arc<Gate>>) {
    let complaints = Arc::<Complaints>::default();
    let mut carried = JoinSet::new();
    loop {
        let flow = tokio::select! {
            biased;
            Some(_) = carried.join_next() => continue,
            flow = server.accept() => flow,
        };
        let Some(flow) = flow else { return };
        let (dialer, complaints, gate) = (dialer.clone(), complaints.clone(), gate.clone());
        carried.spawn(async move {
            let to = flow.info().destination.clone();
            tracing::debug!(target: PROGRAM, destination = %to, "the program connects to {to}");
            if let Some(gate) = gate
                && !gate.admit(&flow).await
            {
                return refuse(flow);
            }
            let served = match flow {
                Flow::Stream(flow) => stream(flow, &to, &dialer).await,
                Flow::Datagrams(flow) => datagrams(&flow, &to, &dialer).await,
            };
            match served {
                Ok(()) => complaints.works(),
                Err(error) => complain(&complaints, &error),
            }
        });
    }
}

/// Ends a flow of a program that may not use the tunnel.
fn refuse(flow: Flow) {
    if let Flow::Stream(flow) = flow {
        flow.abort(ErrorCode::ConnectionRefused);
    }
}

async fn stream(
    mut flow: StreamFlow,
    to: &Destination,
    dialer: &Resolving<Dialer>,
) -> Result<(), Error> {
    match dialer.stream(to).await {
        Ok(mut carried) => {
            if copy_bidirectional(&mut flow, &mut carried).await.is_err() {
                // Truncated data must not look complete.
                flow.abort(ErrorCode::ConnectionReset);
                carried.reset();
            }
            Ok(())
        }
        Err(why) => {
            flow.abort(ErrorCode::ConnectionRefused);
            let to = to.clone();
            Err(Error::Dial { to, why })
        }
    }
}

async fn datagrams(
    flow: &DatagramFlow,
    to: &Destination,
    dialer: &Resolving<Dialer>,
) -> Result<(), Error> {
    let carried = dialer.datagrams(to).await.map_err(|why| {
        let to = to.clone();
        Error::Dial { to, why }
    })?;
    loop {
        // Each module ends its flows after an idle time. Datagrams that find a queue full are lost.
        let sent = tokio::select! {
            came = flow.receive() => match came {
                Ok(Some(datagram)) => carried.send(&datagram).is_ok(),
                Ok(None) | Err(_) => return Ok(()),
            },
            came = carried.receive() => match came {
                Ok(Some(datagram)) => flow.send(&datagram).is_ok(),
                Ok(None) | Err(_) => return Ok(()),
            },
        };
        if !sent {
            return Ok(());
        }
    }
}
