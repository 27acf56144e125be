//! Fields that this transport does not read: those that may be ignored with a warning, and those
//! that must not be. Used by `json` and `server`.

use serde_json::Value;
use watm_core::ConfigError;

use super::value::{field, quote};

/// The error for a configuration with a plugin.
pub const NO_PLUGINS: &str = "a module cannot start plugins; run the plugin in front of the \
                              server's port and remove this field";

/// Fields that only inform people.
const FOR_PEOPLE: &[&str] = &["id", "remarks", "name", "tag", "comment", "_comment"];

/// Fields that tune another program, or describe its other tasks. They concern the host or nothing
/// here, and ignoring them changes neither the traffic nor its way.
const ELSEWHERE: &[&str] = &[
    "balancer",
    "dns",
    "dns_cache_size",
    "dscp",
    "fast_open",
    "inbound_udp_allow_fragmentation",
    "ipv6_first",
    "ipv6_only",
    "keep_alive",
    "launchd_tcp_socket_name",
    "launchd_udp_socket_name",
    "local_address",
    "local_port",
    "locals",
    "log",
    "manager_address",
    "manager_port",
    "mptcp",
    "mtu",
    "nameserver",
    "no_delay",
    "nofile",
    "online_config",
    "outbound_udp_allow_fragmentation",
    "plugin_mode",
    "protocol",
    "reuse_port",
    "runtime",
    "security",
    "tcp_incoming_rcvbuf",
    "tcp_incoming_sndbuf",
    "tcp_outgoing_rcvbuf",
    "tcp_outgoing_sndbuf",
    "tcp_redir",
    "tcp_tproxy",
    "tcp_weight",
    "timeout",
    "tunnel_address",
    "udp_max_associations",
    "udp_mtu",
    "udp_weight",
    "use_syslog",
    "user",
    "workdir",
    "workers",
];

/// Fields that must not be ignored, because forbidden traffic would pass: who may connect, where
/// to, and by which way. Each with its advice.
const UNSAFE_TO_IGNORE: &[(&str, &str)] = &[
    ("plugin", NO_PLUGINS),
    ("plugin_opts", NO_PLUGINS),
    ("plugin_args", NO_PLUGINS),
    (
        "acl",
        "access control lists are not supported; set the allowed destinations in the host's \
         settings and remove this field",
    ),
    ("outbound_fwmark", OUTGOING),
    ("outbound_user_cookie", OUTGOING),
    ("outbound_bind_addr", OUTGOING),
    ("outbound_bind_interface", OUTGOING),
    ("local_ipv4_address", OUTGOING),
    ("local_ipv6_address", OUTGOING),
    (
        "outbound_proxy",
        "not supported; connections would bypass the proxy",
    ),
    (
        "port_password",
        "not supported; expected one port with server_port and password in each configuration",
    ),
    ("key", "not supported; expected a password"),
    ("auth", "one-time authentication is not supported"),
];

const OUTGOING: &str = "not supported; the host and its routes choose the outgoing path; remove \
                        this field";

/// Returns the warning about a field outside `known`, or an error if it must not be ignored.
pub(super) fn without_effect(
    name: &str,
    value: &Value,
    path: &str,
    known: &[&str],
    custom: bool,
    unknown: &str,
) -> Result<Option<String>, ConfigError> {
    let refused = |why: &str| Err(field(&format!("{path}{}", quote(name)), why));
    if name.is_empty() {
        return Err(ConfigError::Syntax("a field without a name".to_owned()));
    }
    if let Some((_, why)) = UNSAFE_TO_IGNORE.iter().find(|(field, _)| *field == name) {
        return match is_nothing(value) {
            true => Ok(None),
            false => refused(why),
        };
    }
    if known.contains(&name) || FOR_PEOPLE.contains(&name) {
        return Ok(None);
    }
    match ELSEWHERE.contains(&name) {
        true => Ok(Some(format!(
            "{path}{name} has no effect; set it in the host"
        ))),
        false if custom => Ok(Some(format!("{path}{} has no effect here", quote(name)))),
        false => refused(unknown),
    }
}

/// Returns true if a field's value means the same as its absence.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    }
}
