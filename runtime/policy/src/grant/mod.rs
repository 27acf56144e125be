//! The capabilities of a module: those of its seal, limited to the user's grant. The host asks
//! before it gives a module anything.

#[cfg(test)]
mod fields;
mod file;

use watm_net::sockets::instances_of_module;
use watm_seal::{Capabilities, ConnectPattern, Socket, SocketKind};

use crate::keys::Keys;
use crate::{Capture, Limits, ModuleKind, Reach};

pub use file::Grants;

/// The limits of a module, all of which apply. Empty if it has no seal, and no grant to its name.
///
/// The application has further limits: it grants sockets one by one, a [`Reach`] names
/// destinations, and [`Limits`] bound the resources. These limits are applied to each of those.
#[derive(Debug, Clone, Default)]
pub struct Granted {
    bounds: Vec<Bound>,
}

/// A limit, and its origin.
#[derive(Debug, Clone)]
struct Bound {
    whose: &'static str,
    most: Capabilities,
}

impl Granted {
    /// Makes the limits of the seal, and of the user's grant to this name.
    pub fn new(ceiling: Option<&Capabilities>, granted: Option<&Capabilities>) -> Granted {
        let bound = |whose| {
            move |most: &Capabilities| Bound {
                whose,
                most: most.clone(),
            }
        };
        let ceiling = ceiling.map(bound("its seal"));
        Granted {
            bounds: ceiling
                .into_iter()
                .chain(granted.map(bound("its grant")))
                .collect(),
        }
    }

    /// Checks that it may have a socket of this kind under this label.
    pub fn check_socket(&self, kind: SocketKind, label: &str) -> Result<(), String> {
        let Some(bound) = self
            .bounds
            .iter()
            .find(|bound| !bound.has_socket(kind, label))
        else {
            return Ok(());
        };
        let sockets = &bound.most.sockets;
        let named: Vec<String> = sockets
            .iter()
            .map(|socket| format!("\"{socket}\""))
            .collect();
        Err(format!(
            "{} has no socket \"{kind} {label}\"; it has {}",
            bound.whose,
            match named.is_empty() {
                true => "none".to_owned(),
                false => named.join(", "),
            }
        ))
    }

    /// Returns the limits combined to one; `None` if there are none.
    pub fn together(&self) -> Option<Capabilities> {
        let bounds = self.bounds.iter().map(|bound| bound.most.clone());
        bounds.reduce(|one, other| {
            let covered = |pattern: &&ConnectPattern, by: &Capabilities| {
                by.connect.iter().any(|wide| wide.covers(pattern))
            };
            let own = one
                .connect
                .iter()
                .filter(|pattern| covered(pattern, &other));
            let others = other
                .connect
                .iter()
                .filter(|pattern| covered(pattern, &one));
            let has = |socket: &&Socket| {
                let mut sockets = other.sockets.iter();
                sockets.any(|wide| wide.kind == socket.kind && wide.label.covers(&socket.label))
            };
            Capabilities {
                sockets: one.sockets.iter().filter(has).cloned().collect(),
                connect: own.chain(others).cloned().collect(),
                host_crypto: one.host_crypto && other.host_crypto,
                bind_transparent: one.bind_transparent && other.bind_transparent,
                host_keys: one.host_keys && other.host_keys,
                capture: one.capture && other.capture,
                memory_bytes: one.memory_bytes.min(other.memory_bytes),
                cpu_permille: one.cpu_permille.min(other.cpu_permille),
                flows: one.flows.min(other.flows),
                instances: one.instances.min(other.instances),
            }
        })
    }

    /// Checks that a module can run at all within its limits, and names the field that prevents it.
    pub fn check_usable(&self) -> Result<(), String> {
        for Bound { whose, most } in &self.bounds {
            for (field, value) in [
                ("memory-bytes", most.memory_bytes),
                ("cpu-permille", most.cpu_permille.into()),
                ("flows", most.flows.into()),
                ("instances", most.instances.into()),
            ] {
                if value == 0 {
                    return Err(format!("{whose} sets {field} to 0; must be at least 1"));
                }
            }
        }
        Ok(())
    }

    /// Restricts a reach to the destinations that all limits allow.
    pub fn reach(&self, reach: Reach) -> Reach {
        self.bounds.iter().fold(reach, |reach, bound| {
            reach.within(bound.most.connect.iter().cloned())
        })
    }

    /// Returns true if it may use the ciphers of the host and asked for them.
    pub fn host_crypto(&self, asked: bool) -> bool {
        asked && self.bounds.iter().all(|bound| bound.most.host_crypto)
    }

    /// Checks that it may sign with keys of the host.
    pub fn check_host_keys(&self) -> Result<(), String> {
        match self.bounds.iter().find(|bound| !bound.most.host_keys) {
            None => Ok(()),
            Some(bound) => Err(format!(
                "{} has no host-keys, which is required to sign with keys of the host",
                bound.whose
            )),
        }
    }

    /// Returns the keys that it may sign with.
    pub fn keys(&self, given: &Keys) -> Keys {
        match self.check_host_keys() {
            Ok(()) => given.clone(),
            Err(_) => Keys::new(),
        }
    }

    /// Checks that it may copy its traffic to the user.
    pub fn check_capture(&self) -> Result<(), String> {
        match self.bounds.iter().find(|bound| !bound.most.capture) {
            None => Ok(()),
            Some(bound) => Err(format!(
                "{} has no capture, which is required to copy packets and keys",
                bound.whose
            )),
        }
    }

    /// Returns the capture, if it may copy its traffic.
    pub fn capture(&self, wanted: Option<&Capture>) -> Option<Capture> {
        wanted.filter(|_| self.check_capture().is_ok()).cloned()
    }

    /// Checks that its flows may be passed on from their clients' addresses.
    pub fn check_bind_transparent(&self) -> Result<(), String> {
        match self
            .bounds
            .iter()
            .find(|bound| !bound.most.bind_transparent)
        {
            None => Ok(()),
            Some(bound) => Err(format!(
                "{} has no bind-transparent, which is required to connect from clients' addresses",
                bound.whose
            )),
        }
    }

    /// Returns the memory limit in bytes: `asked`, within the grant.
    pub fn memory_bytes(&self, asked: usize) -> usize {
        self.least(asked, |most| {
            usize::try_from(most.memory_bytes).unwrap_or(usize::MAX)
        })
    }

    /// Returns the limit of open flows: `asked`, within the grant.
    pub fn flows(&self, asked: usize) -> usize {
        self.least(asked, |most| most.flows as usize)
    }

    /// Returns the share of one core, in thousandths; `None` for no limit.
    pub fn cpu_permille(&self) -> Option<u32> {
        self.bounds
            .iter()
            .map(|bound| bound.most.cpu_permille)
            .min()
    }

    /// Returns the number of instances at once.
    pub fn instances(&self) -> usize {
        self.least(usize::MAX, |most| most.instances as usize)
    }

    /// Applies the limits to those of the application. A WATER module has an instance for each
    /// connection, so it has no more connections than instances, and no more than half of the
    /// process's mappings are enough for.
    pub fn limits(&self, kind: ModuleKind, mut limits: Limits) -> Limits {
        limits.memory_bytes = self.memory_bytes(limits.memory_bytes);
        limits.flows = self.flows(limits.flows);
        if !matches!(kind, ModuleKind::Component | ModuleKind::Program) {
            let most = self.instances().min(instances_of_module());
            limits.flows = limits.flows.min(most);
        }
        limits
    }

    fn least(&self, asked: usize, most: impl Fn(&Capabilities) -> usize) -> usize {
        self.bounds
            .iter()
            .map(|bound| most(&bound.most))
            .fold(asked, usize::min)
    }
}

impl Bound {
    fn has_socket(&self, kind: SocketKind, label: &str) -> bool {
        // A label that is not a valid name belongs to no module.
        let Ok(label) = label.parse() else {
            return false;
        };
        let mut sockets = self.most.sockets.iter();
        sockets.any(|socket| socket.kind == kind && socket.label.has(&label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_may_have_is_what_both_allow() {
        let connect = |texts: &[&str]| {
            let patterns = texts.iter().map(|text| text.parse().expect("a pattern"));
            patterns.collect()
        };
        let seal = Capabilities {
            sockets: ["udp listen", "tcp listen"]
                .map(|text| text.parse().expect("a socket"))
                .into(),
            connect: connect(&["tcp://*.example.com:443", "udp://192.0.2.1:53"]),
            memory_bytes: 100,
            cpu_permille: 1000,
            flows: 10,
            instances: 1,
            host_crypto: true,
            bind_transparent: true,
            host_keys: true,
            capture: true,
        };
        let user = Capabilities {
            sockets: ["udp *".parse().expect("a socket")].into(),
            connect: connect(&[
                "tcp://www.example.com:*",
                "tcp://a.example.com:443",
                "udp://*:*",
            ]),
            memory_bytes: 50,
            flows: 20,
            host_crypto: false,
            bind_transparent: false,
            host_keys: false,
            capture: false,
            ..Capabilities::unlimited()
        };
        let may = Granted::new(Some(&seal), Some(&user)).together();
        let expected = Capabilities {
            sockets: ["udp listen".parse().expect("a socket")].into(),
            connect: connect(&["tcp://a.example.com:443", "udp://192.0.2.1:53"]),
            memory_bytes: 50,
            host_crypto: false,
            bind_transparent: false,
            host_keys: false,
            capture: false,
            ..seal
        };
        assert_eq!(may, Some(expected));
        let refused = Granted::new(Some(&seal), Some(&user)).check_bind_transparent();
        assert!(
            refused.is_err_and(|reason| reason.starts_with("its grant has no bind-transparent"))
        );
        assert_eq!(
            Granted::new(Some(&seal), None).check_bind_transparent(),
            Ok(())
        );
        let refused = Granted::new(Some(&seal), Some(&user)).check_host_keys();
        assert!(refused.is_err_and(|reason| reason.starts_with("its grant has no host-keys")));
        assert_eq!(Granted::new(Some(&seal), None).check_host_keys(), Ok(()));
        let refused = Granted::new(Some(&seal), Some(&user)).check_capture();
        assert!(refused.is_err_and(|reason| reason.starts_with("its grant has no capture")));
        assert_eq!(Granted::new(Some(&seal), None).check_capture(), Ok(()));
        assert_eq!(Granted::default().together(), None);
    }

    /// A key that signs nothing.
    struct Nobody;

    impl crate::Signer for Nobody {
        fn public_key(&self) -> Vec<u8> {
            Vec::new()
        }

        fn schemes(&self) -> Vec<u16> {
            Vec::new()
        }

        fn sign(&self, _: u16, _: &[u8]) -> Result<Vec<u8>, String> {
            Err("signs nothing".to_owned())
        }
    }

    fn limited(change: impl FnOnce(&mut Capabilities)) -> Granted {
        let mut most = Capabilities::unlimited();
        change(&mut most);
        Granted::new(None, Some(&most))
    }

    #[test]
    fn a_socket_that_a_limit_lacks_is_refused_and_those_it_has_are_named() {
        let with = |texts: &[&str]| {
            let sockets = texts.iter().map(|text| text.parse().expect("a socket"));
            let sockets = sockets.collect();
            limited(|most| most.sockets = sockets)
        };
        let both = with(&["udp listen", "tcp other"]);
        assert_eq!(both.check_socket(SocketKind::Udp, "listen"), Ok(()));
        assert_eq!(both.check_socket(SocketKind::Tcp, "other"), Ok(()));
        for (kind, label) in [(SocketKind::Tcp, "listen"), (SocketKind::Udp, "other")] {
            let expected = format!(
                "its grant has no socket \"{kind} {label}\"; it has \"tcp other\", \"udp listen\""
            );
            assert_eq!(both.check_socket(kind, label), Err(expected));
        }
        let none = with(&[]).check_socket(SocketKind::Udp, "listen");
        assert!(none.is_err_and(|reason| reason.ends_with("; it has none")));
        // No label, which no pattern can have.
        let wrong = with(&["udp *"]).check_socket(SocketKind::Udp, "no label");
        assert!(wrong.is_err());
        assert_eq!(
            Granted::default().check_socket(SocketKind::Udp, "listen"),
            Ok(())
        );
    }

    /// A change of a limit.
    type Change = fn(&mut Capabilities);

    #[test]
    fn a_limit_of_nothing_is_an_error_with_its_name() {
        let of = |change: Change| limited(change).check_usable();
        let changes: [(&str, Change); 4] = [
            ("memory-bytes", |most| most.memory_bytes = 0),
            ("cpu-permille", |most| most.cpu_permille = 0),
            ("flows", |most| most.flows = 0),
            ("instances", |most| most.instances = 0),
        ];
        for (field, change) in changes {
            let expected = format!("its grant sets {field} to 0; must be at least 1");
            assert_eq!(of(change), Err(expected));
        }
        assert_eq!(of(|most| most.flows = 1), Ok(()));
    }

    #[test]
    fn a_module_has_the_least_of_all_limits() {
        let asked = Limits {
            memory_bytes: 1000,
            flows: 1000,
            ..Limits::default()
        };
        let limits = |may: &Granted, kind| {
            let limits = may.limits(kind, asked.clone());
            (limits.memory_bytes, limits.flows)
        };
        let may = limited(|most| {
            most.memory_bytes = 500;
            most.flows = 400;
            most.instances = 300;
            most.cpu_permille = 200;
        });
        assert_eq!(limits(&may, ModuleKind::Component), (500, 400));
        // A connection of a WATER module is an instance.
        assert_eq!(limits(&may, ModuleKind::WaterV1), (500, 300));
        assert_eq!(may.instances(), 300);
        assert_eq!(may.cpu_permille(), Some(200));
        let free = Granted::default();
        assert_eq!(limits(&free, ModuleKind::Component), (1000, 1000));
        assert_eq!(free.instances(), usize::MAX);
        assert_eq!(free.cpu_permille(), None);
    }

    #[test]
    fn the_hosts_ciphers_and_keys_need_every_limit_and_a_request() {
        let refused = limited(|most| {
            most.host_crypto = false;
            most.host_keys = false;
            most.capture = false;
        });
        let free = Granted::default();
        assert!(free.host_crypto(true));
        assert!(!free.host_crypto(false));
        assert!(!refused.host_crypto(true));
        let keys = Keys::new().add("host-key", Nobody).expect("a name");
        assert_eq!(free.keys(&keys), keys);
        assert!(refused.keys(&keys).is_empty());
        let wanted = Some(Capture::new(Some("packets".into()), None));
        assert!(free.capture(wanted.as_ref()).is_some());
        assert!(refused.capture(wanted.as_ref()).is_none());
        assert!(free.capture(None).is_none());
    }

    #[test]
    fn a_reach_is_kept_to_what_every_limit_names() {
        let connect = ["tcp://192.0.2.0/24:*".parse().expect("a pattern")].into();
        let may = limited(|most| most.connect = connect);
        let reach = Reach::none().allow("*").expect("a pattern");
        let judge = |reach: &Reach, address: &str| {
            let address = address.parse().expect("an address");
            reach.judge(&crate::Target::tcp(crate::Destination::Address(address)))
        };
        let within = may.reach(reach.clone());
        assert_eq!(
            judge(&within, "192.0.2.1:1"),
            crate::reach::Verdict::Allowed
        );
        assert_eq!(
            judge(&within, "198.51.100.1:1"),
            crate::reach::Verdict::Denied
        );
        assert_eq!(Granted::default().reach(reach.clone()), reach);
    }
}
