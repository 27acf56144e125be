//! Checks of a module against its seal and grant, before a server or a dialer gives it anything.

use watm_net::sockets::Protocol;
use watm_policy::grant::Granted;
use watm_seal::Capabilities;

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
        sockets: impl IntoIterator<Item = (Network, String)>,
    ) -> Result<(), Error> {
        let refuse = |reason: String| Error::NotGranted {
            module: name.to_owned(),
            reason,
        };
        self.granted().check_usable().map_err(refuse)?;
        for (network, label) in sockets {
            self.granted()
                .check_socket(network, &label)
                .map_err(refuse)?;
        }
        Ok(())
    }

    /// Refuses a socket that it may not have, or that it cannot open. Those of a WATER module are
    /// checked when it starts.
    #[doc(hidden)]
    pub fn check_use(&self, name: &str, label: &str, granted: Protocol) -> Result<(), Error> {
        let (granted, other) = match granted {
            Protocol::Udp => (Network::Udp, Network::Tcp),
            Protocol::Tcp => (Network::Tcp, Network::Udp),
        };
        self.check_granted(name, [(granted, label.to_owned())])?;
        let opens = self.listens_on();
        if !self.is_component() || opens.contains(&granted) {
            return Ok(());
        }
        let instead = match opens.contains(&other) {
            true => format!("must be {other}"),
            false => "must be removed: the module does not listen".to_owned(),
        };
        Err(Error::Options(format!(
            "{name}: does not open a {granted} socket; the one granted as \"{label}\" {instead}"
        )))
    }
}
