//! Configurations for clients, in the format of wg-quick(8). `server` returns them to the host.

use std::fmt::{self, Write};

use watm_core::{ClientConfig, Destination};

use crate::config::{AllowedIps, Config, PeerConfig};
use crate::key;

/// A configuration for each peer, in the order of the server's.
pub fn configs(config: &Config, public: &Destination) -> Vec<ClientConfig> {
    config
        .peers
        .iter()
        .enumerate()
        .map(|(index, peer)| ClientConfig {
            peer: Some(key::encode(peer.public_key.as_bytes())),
            name: format!("wg{index}.conf"),
            media_type: "text/plain".to_owned(),
            content: content(config, peer, public),
        })
        .collect()
}

fn content(config: &Config, peer: &PeerConfig, public: &Destination) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, config, peer, public);
    text
}

fn write(
    text: &mut String,
    config: &Config,
    peer: &PeerConfig,
    public: &Destination,
) -> fmt::Result {
    writeln!(text, "[Interface]")?;
    match &peer.private_key {
        Some(private_key) => {
            writeln!(text, "PrivateKey = {}", key::encode(private_key.as_bytes()))?
        }
        None => writeln!(
            text,
            "# PrivateKey = (the client's own, whose public key is {})",
            key::encode(peer.public_key.as_bytes())
        )?,
    }
    write_address(text, config, peer)?;
    writeln!(text, "DNS = {}", config.client.dns.join(", "))?;
    writeln!(text, "MTU = {}", config.largest_packet())?;
    writeln!(text)?;
    writeln!(text, "[Peer]")?;
    writeln!(
        text,
        "PublicKey = {}",
        key::encode(config.public_key.as_bytes())
    )?;
    if let Some(preshared_key) = &peer.preshared_key {
        writeln!(text, "PresharedKey = {}", key::encode(preshared_key))?;
    }
    writeln!(text, "AllowedIPs = 0.0.0.0/0, ::/0")?;
    writeln!(text, "Endpoint = {public}")
}

/// The client's own addresses, as far as they are known.
fn write_address(text: &mut String, config: &Config, peer: &PeerConfig) -> fmt::Result {
    let networks = match &peer.allowed_ips {
        AllowedIps::Any => config.client.addresses.as_slice(),
        AllowedIps::Networks(networks) => networks,
    };
    let join = |hosts: bool| {
        networks
            .iter()
            .filter(|network| network.is_host() == hosts)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (hosts, ranges) = (join(true), join(false));
    if !hosts.is_empty() {
        writeln!(text, "Address = {hosts}")
    } else if !ranges.is_empty() {
        writeln!(text, "# Address = (one out of {ranges})")
    } else {
        Ok(())
    }
}
