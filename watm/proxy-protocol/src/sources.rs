//! The senders whose headers are trusted. Used by `config`.

use std::net::{IpAddr, SocketAddr};

/// Trusted addresses. None by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sources {
    /// No address.
    #[default]
    Nobody,
    /// These networks: an address, and the number of its significant bits.
    Networks(Vec<(IpAddr, u32)>),
    /// Every address that reaches the listener.
    Anybody,
}

impl Sources {
    /// Parses `any`, or addresses and networks with commas between them. The error is text for
    /// people.
    pub fn parse(text: &str) -> Result<Sources, String> {
        if text.trim() == "any" {
            return Ok(Sources::Anybody);
        }
        let networks: Result<Vec<_>, _> = text.split(',').map(str::trim).map(network).collect();
        networks.map(Sources::Networks)
    }

    /// Returns true if this address is trusted. Only [`Anybody`](Sources::Anybody) trusts an
    /// address that the host does not tell.
    pub fn admit(&self, remote: Option<SocketAddr>) -> bool {
        match self {
            Sources::Nobody => false,
            Sources::Anybody => true,
            Sources::Networks(networks) => remote.is_some_and(|remote| {
                let address = remote.ip().to_canonical();
                networks.iter().any(|network| contains(network, address))
            }),
        }
    }
}

fn network(text: &str) -> Result<(IpAddr, u32), String> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let wrong = || {
        format!(
            "'{text}' is neither an address nor a network, such as 10.0.0.1 or 10.0.0.0/8; \
             'any' accepts every sender"
        )
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let address = address.to_canonical();
    let all = if address.is_ipv4() { 32 } else { 128 };
    match bits.map(str::parse) {
        None => Ok((address, all)),
        Some(Ok(bits)) if bits <= all => Ok((address, bits)),
        Some(_) => Err(wrong()),
    }
}

fn contains((network, bits): &(IpAddr, u32), address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let differ = u32::from(*network) ^ u32::from(address);
            differ.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differ = u128::from(*network) ^ u128::from(address);
            differ.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}
