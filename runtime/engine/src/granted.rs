//! Checks of a module against its seal and grant, before a server or a dialer gives it anything.

use watm_net::sockets::Protocol;
use watm_policy::grant::Granted;
use watm_seal::{Capabilities, SocketKind};

use watm_policy::keys::Keys;

use crate::{Error, Module, ModuleKind, Network};

impl Module {
    /// Returns the most that it may have: what its seal asks for, limited to what the user granted
    /// to its name. The host gives it no more than that. `None` if it has no seal, and no such
    /// limit.
    pub fn may_have(&self) -> Option<Capabilities> {
        self.granted().together()
    }

    /// Returns its limits.
    #[doc(hidden)]
    pub fn granted(&self) -> &Granted {
        &self.seal_details().granted
    }

    /// Checks that it has a use for these keys of the host, and may sign with them.
    #[doc(hidden)]
    pub fn check_keys(&self, name: &str, keys: &Keys) -> Result<(), Error> {
        const SIGNING: &str = "watm:transport/signing@";
        if keys.is_empty() {
            return Ok(());
        }
        let info = self.info();
        if !info
            .imports
            .iter()
            .any(|import| import.starts_with(SIGNING))
        {
            let what = match info.kind {
                ModuleKind::Component => "this component",
                ModuleKind::Program => "a program",
                _ => "a WATER module",
            };
            return Err(Error::Options(format!(
                "{name}: {what} does not use keys of the host; remove {}",
                keys.names()
            )));
        }
        let refuse = |reason| Error::NotGranted {
            module: name.to_owned(),
            reason,
        };
        self.granted().check_host_keys().map_err(refuse)
    }

    /// Checks that it carries connections that the host asks for. A program makes its own.
    #[doc(hidden)]
    pub fn check_serves(&self, name: &str) -> Result<(), Error> {
        match self.info().kind {
            ModuleKind::Program => Err(Error::Module {
                module: name.to_owned(),
                reason:
                    "is a program of WASI 0.2, which listens itself; use it as a listener or a \
                         server, or run it with `watm relay`"
                        .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Checks that it can copy its traffic, and may.
    #[doc(hidden)]
    pub fn check_capture(&self, name: &str) -> Result<(), Error> {
        const CAPTURE: &str = "watm:transport/capture@";
        let mut imports = self.info().imports.iter();
        if !imports.any(|import| import.starts_with(CAPTURE)) {
            return Err(Error::Options(format!(
                "{name}: this module cannot copy packets or keys; remove the capture"
            )));
        }
        let refuse = |reason| Error::NotGranted {
            module: name.to_owned(),
            reason,
        };
        self.granted().check_capture().map_err(refuse)
    }

    /// Checks that it may be given these sockets, and can run within its limits.
    #[doc(hidden)]
    pub fn check_granted(
        &self,
        name: &str,
        sockets: impl IntoIterator<Item = (SocketKind, String)>,
    ) -> Result<(), Error> {
        let refuse = |reason: String| Error::NotGranted {
            module: name.to_owned(),
            reason,
        };
        self.granted().check_usable().map_err(refuse)?;
        for (kind, label) in sockets {
            self.granted().check_socket(kind, &label).map_err(refuse)?;
        }
        Ok(())
    }

    /// Refuses a socket that it may not have, or that it cannot open. Those of a WATER module are
    /// checked when it starts.
    #[doc(hidden)]
    pub fn check_use(&self, name: &str, label: &str, granted: Protocol) -> Result<(), Error> {
        let (kind, network) = match granted {
            Protocol::Udp => (SocketKind::Udp, Some(Network::Udp)),
            Protocol::Tcp => (SocketKind::Tcp, Some(Network::Tcp)),
            Protocol::Packets => (SocketKind::Packets, None),
        };
        self.check_granted(name, [(kind, label.to_owned())])?;
        let opens = self.listens_on();
        let uses = match network {
            Some(network) => !self.is_component() || opens.contains(&network),
            None => self.takes_packets(),
        };
        if uses {
            return Ok(());
        }
        let instead = match opens {
            _ if network.is_none() => "must be removed".to_owned(),
            [] if self.takes_packets() => "must be a packets device".to_owned(),
            [] => "must be removed: the module does not listen".to_owned(),
            [other, ..] => format!("must be {other}"),
        };
        Err(Error::Options(format!(
            "{name}: does not open a {kind} socket; the one granted as \"{label}\" {instead}"
        )))
    }

    /// Returns true if it can use a device for IP packets, by its imports.
    pub fn takes_packets(&self) -> bool {
        const PACKETS: &str = "watm:transport/packets@";
        let mut imports = self.info().imports.iter();
        imports.any(|import| import.starts_with(PACKETS))
    }
}
