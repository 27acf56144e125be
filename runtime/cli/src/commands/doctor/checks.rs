//! Checks of the process's privileges and limits, and of the upstream, for `watm doctor`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::time::timeout;
use watm_runtime::{BindTransparent, connect_upstream, connect_upstream_datagrams};

use super::Check;
use crate::system::{effective_capabilities, most_descriptors};

/// Bits of capabilities(7).
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;

/// The descriptors of 8,192 connections, with one for each side.
const DESCRIPTORS: u64 = 16_384;

/// Addresses that no client has: those for documentation (RFC 5737, RFC 3849).
const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The time limit for an answer. An upstream on this machine needs far less.
const ANSWER: Duration = Duration::from_secs(3);

/// A failed check, for systems without such connections.
pub(super) fn needs_linux() -> Check {
    Check {
        name: "system",
        upstream: None,
        ok: false,
        found: "connections from their clients' addresses need Linux".to_owned(),
        run: vec!["# have the PROXY protocol name the client in its place".to_owned()],
    }
}

/// Checks the capabilities to bind to other machines' addresses and to mark packets.
pub(super) fn capabilities(mark: Option<u32>) -> Check {
    let enough = match mark {
        Some(_) => NET_ADMIN,
        None => NET_ADMIN | NET_RAW,
    };
    let has = effective_capabilities().unwrap_or(0);
    let named: Vec<&str> = [(NET_ADMIN, "CAP_NET_ADMIN"), (NET_RAW, "CAP_NET_RAW")]
        .into_iter()
        .filter_map(|(bit, name)| (has & bit != 0).then_some(name))
        .collect();
    let ok = has & enough != 0;
    let run = [
        "setcap cap_net_admin+ep \"$(command -v watm)\"".to_owned(),
        "# or, in the systemd unit: AmbientCapabilities=CAP_NET_ADMIN".to_owned(),
    ];
    Check {
        name: "capabilities",
        upstream: None,
        ok,
        found: match named.is_empty() {
            true => "the process has neither CAP_NET_ADMIN nor CAP_NET_RAW".to_owned(),
            false => format!("the process has {}", named.join(" and ")),
        },
        run: if ok { Vec::new() } else { run.into() },
    }
}

pub(super) fn descriptors() -> Check {
    let most = most_descriptors();
    let ok = most.is_none_or(|most| most >= DESCRIPTORS);
    let run = [
        format!("ulimit -n {DESCRIPTORS}"),
        format!("# or, in the systemd unit: LimitNOFILE={DESCRIPTORS}"),
    ];
    Check {
        name: "descriptors",
        upstream: None,
        ok,
        found: match most {
            Some(most) => format!("at most {most}, enough for {} connections", most / 2),
            None => "no limit".to_owned(),
        },
        run: if ok { Vec::new() } else { run.into() },
    }
}

/// Checks that the upstream answers this machine.
pub(super) async fn direct(upstream: SocketAddr, udp: bool) -> Check {
    let (ok, found) = ask(upstream, udp, None).await;
    Check {
        name: "reachable directly",
        upstream: Some(upstream),
        ok,
        found,
        run: match ok {
            true => Vec::new(),
            false => vec![format!("# start the server on {upstream}")],
        },
    }
}

/// Checks that the upstream answers a client's address.
pub(super) async fn from_client(
    upstream: SocketAddr,
    udp: bool,
    transparent: &BindTransparent,
) -> Check {
    let client: SocketAddr = match upstream {
        SocketAddr::V4(_) => (CLIENT_V4, 0).into(),
        SocketAddr::V6(_) => (CLIENT_V6, 0).into(),
    };
    let (ok, found) = ask(upstream, udp, Some((transparent, client))).await;
    Check {
        name: "reachable from a client's address",
        upstream: Some(upstream),
        ok,
        found: format!("from {}: {found}", client.ip()),
        run: match ok {
            true => Vec::new(),
            false => vec!["# fix the failed checks above".to_owned()],
        },
    }
}

async fn ask(
    upstream: SocketAddr,
    udp: bool,
    source: Option<(&BindTransparent, SocketAddr)>,
) -> (bool, String) {
    let connecting = async {
        match udp {
            false => connect_upstream(&[upstream], source).await.map(drop),
            true => connect_upstream_datagrams(&[upstream], source)
                .await
                .map(drop),
        }
    };
    let result = timeout(ANSWER, connecting).await;
    match result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(()) if udp => (
            true,
            "datagrams can be sent; their arrival cannot be checked".to_owned(),
        ),
        Ok(()) => (true, "it answers".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            (false, format!("no answer within {} s", ANSWER.as_secs()))
        }
        Err(error) => (false, error.to_string()),
    }
}
