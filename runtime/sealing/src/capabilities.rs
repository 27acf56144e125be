//! Capabilities in JSON manifests and in output for people. Used by `manifest` and `root`, and by commands.

use serde_derive::{Deserialize, Serialize};
use watm_seal::{Capabilities, ConnectPattern, Refused};

use crate::words::counted;

/// Capabilities as a person writes them. Missing fields allow nothing.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CapabilitiesText {
    /// Sockets such as `udp listen`.
    sockets: Vec<String>,
    /// Destinations such as `tcp://*.example.com:443`.
    connect: Vec<String>,
    host_crypto: bool,
    bind_transparent: bool,
    host_keys: bool,
    capture: bool,
    memory_bytes: u64,
    cpu_permille: u32,
    flows: u32,
    instances: u32,
}

impl CapabilitiesText {
    /// Returns the capabilities, which are parsed.
    pub fn parse(&self) -> Result<Capabilities, Refused> {
        Ok(Capabilities {
            sockets: self
                .sockets
                .iter()
                .map(|text| text.parse())
                .collect::<Result<_, _>>()?,
            connect: self
                .connect
                .iter()
                .map(|text| Ok::<_, Refused>(text.parse::<ConnectPattern>()?))
                .collect::<Result<_, _>>()?,
            host_crypto: self.host_crypto,
            bind_transparent: self.bind_transparent,
            host_keys: self.host_keys,
            capture: self.capture,
            memory_bytes: self.memory_bytes,
            cpu_permille: self.cpu_permille,
            flows: self.flows,
            instances: self.instances,
        })
    }

    /// Describes them for people, in a line each.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.sockets.iter().map(|socket| format!("socket {socket}")));
        words.extend(self.connect.iter().map(|to| format!("connect to {to}")));
        if self.host_crypto {
            words.push("the host's ciphers".to_owned());
        }
        if self.bind_transparent {
            words.push("clients' addresses as the source of connections".to_owned());
        }
        if self.host_keys {
            words.push("signatures by keys that the host keeps".to_owned());
        }
        if self.capture {
            words.push("copies of packets and keys, if the user enables them".to_owned());
        }
        words.push(format!("{} KiB of memory", self.memory_bytes >> 10));
        words.push(format!(
            "{} % of a core",
            f64::from(self.cpu_permille) / 10.0
        ));
        words.push(format!(
            "{}, {}",
            counted(self.flows.into(), "flow"),
            counted(self.instances.into(), "instance")
        ));
        words
    }
}

impl From<&Capabilities> for CapabilitiesText {
    fn from(capabilities: &Capabilities) -> CapabilitiesText {
        CapabilitiesText {
            sockets: texts(&capabilities.sockets),
            connect: texts(&capabilities.connect),
            host_crypto: capabilities.host_crypto,
            bind_transparent: capabilities.bind_transparent,
            host_keys: capabilities.host_keys,
            capture: capabilities.capture,
            memory_bytes: capabilities.memory_bytes,
            cpu_permille: capabilities.cpu_permille,
            flows: capabilities.flows,
            instances: capabilities.instances,
        }
    }
}

/// Formats each item.
pub fn texts<T: ToString>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(|item| item.to_string()).collect()
}
