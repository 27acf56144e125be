//! `--reverse`: ports at this machine's addresses in the tunnel, and the local services that they
//! lead to.

use std::sync::Arc;

use tokio::task::JoinSet;
use watm_runtime::{Destination, Dialer, Flow, Network as Carried};
use watm_socks::{Counters, Limits, reverse};

use super::file::File;
use crate::accept_loop::Complaints;
use crate::failure::Failure;
use crate::forward::{Forward, Network};
use crate::logging::PROGRAM;
use crate::proxies::complain;
use crate::stop::Stop;

/// The reverse port forwards, each at an address of the tunnel.
#[derive(Clone)]
pub(super) struct Reverses(Arc<[Forward]>);

impl Reverses {
    /// Expands each of `wanted` to the file's addresses that it covers: an unspecified address
    /// stands for all of its family.
    pub(super) fn check(wanted: &[Forward], file: &File) -> Result<Reverses, Failure> {
        let mut all = Vec::new();
        for reverse in wanted {
            let ip = reverse.from.ip();
            let ours = file.addresses.iter().filter(|ours| {
                **ours == ip || ip.is_unspecified() && ours.is_ipv4() == ip.is_ipv4()
            });
            let before = all.len();
            all.extend(ours.map(|ours| {
                let mut at = reverse.clone();
                at.from.set_ip(*ours);
                at
            }));
            if all.len() == before {
                let ours: Vec<String> = file.addresses.iter().map(ToString::to_string).collect();
                return Err(Failure::unusable(format!(
                    "--reverse {reverse}: {ip} is not an address of this side of the tunnel; must \
                     be an Address of the file: {}",
                    ours.join(", ")
                )));
            }
        }
        Ok(Reverses(all.into()))
    }

    /// Returns true if a flow to this destination is forwarded.
    pub(super) fn admit(&self, carried: Carried, to: &Destination) -> bool {
        self.find(carried, to).is_some()
    }

    fn find(&self, carried: Carried, to: &Destination) -> Option<&Forward> {
        let network = match carried {
            Carried::Tcp => Network::Tcp,
            Carried::Udp => Network::Udp,
        };
        self.0
            .iter()
            .find(|reverse| reverse.network == network && *to == Destination::Address(reverse.from))
    }

    /// Carries the flows that the dialer's other end opens, until a signal ends the program. The
    /// module's limit on flows bounds their number.
    pub(super) async fn serve(self, dialer: Dialer, mut stop: Stop) -> Result<(), Failure> {
        for Forward { network, from, .. } in &*self.0 {
            let network = match network {
                Network::Tcp => "tcp",
                Network::Udp => "udp",
            };
            tracing::info!(
                target: PROGRAM,
                address = %from,
                network,
                "listening in the tunnel on {from} for {network}"
            );
        }
        let (counters, complaints) = (Arc::<Counters>::default(), Arc::<Complaints>::default());
        let mut carried = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                Some(_) = carried.join_next() => {}
                flow = dialer.accept() => {
                    let flow = flow.ok_or_else(|| Failure::failed("the module ended"))?;
                    let info = flow.info();
                    let network = match flow {
                        Flow::Stream(_) => Carried::Tcp,
                        Flow::Datagrams(_) => Carried::Udp,
                    };
                    // The module offers no others.
                    let Some(reverse) = self.find(network, &info.destination) else { continue };
                    let to = reverse.to.clone();
                    let (counters, complaints) = (counters.clone(), complaints.clone());
                    carried.spawn(async move {
                        let served = match flow {
                            Flow::Stream(flow) => reverse::stream(flow, &to, &counters).await,
                            Flow::Datagrams(flow) => {
                                let idle = Limits::default().idle;
                                reverse::datagrams(flow, &to, idle, &counters).await
                            }
                        };
                        match served {
                            Ok(()) => complaints.works(),
                            Err(error) => complain(&complaints, &error),
                        }
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_forwarded_is_admitted() {
        let file = File {
            addresses: vec!["10.7.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            ..File::default()
        };
        let wanted = [
            "tcp:10.7.0.2:80=localhost:8080",
            "udp:[::]:53=127.0.0.1:5353",
        ];
        let wanted = wanted.map(|text| text.parse().unwrap());
        let reverses = Reverses::check(&wanted, &file).unwrap();
        for (carried, to, admitted) in [
            (Carried::Tcp, "10.7.0.2:80", true),
            (Carried::Udp, "10.7.0.2:80", false),
            (Carried::Tcp, "10.7.0.2:81", false),
            (Carried::Tcp, "10.7.0.3:80", false),
            (Carried::Udp, "[fd00::2]:53", true),
            (Carried::Udp, "[fd00::3]:53", false),
            (Carried::Udp, "10.7.0.2:53", false),
            (Carried::Tcp, "name:80", false),
        ] {
            assert_eq!(
                reverses.admit(carried, &to.parse().unwrap()),
                admitted,
                "{to}"
            );
        }
        let strange = ["tcp:10.7.0.3:80=a:1".parse().unwrap()];
        let refused = Reverses::check(&strange, &file).err().unwrap().to_string();
        assert!(
            refused.ends_with("must be an Address of the file: 10.7.0.2, fd00::2"),
            "{refused}"
        );
    }
}
