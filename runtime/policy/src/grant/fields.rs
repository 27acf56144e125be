//! The fields of `grants.toml`. The tests of `file` compare them with its types, and with the page in the book.

use watm_schema::{Described, Field, Kind};

const fn field(name: &'static str, kind: Kind) -> Field {
    Field::new(name, kind).or_else("the seal's")
}

const fn number(name: &'static str) -> Field {
    Field::number(name, "", 0, u32::MAX as u64).or_else("the seal's")
}

/// The fields of a grant.
pub(super) const GRANT: [Described; 10] = [
    (
        field(
            "sockets",
            Kind::List("a list of `udp LABEL`, `tcp LABEL` and `packets LABEL`"),
        ),
        "Sockets by protocol and label, such as `udp listen`.",
    ),
    (
        field("connect", Kind::List("a list of patterns")),
        "The destinations that the module may connect and send to.",
    ),
    (
        field("host-crypto", Kind::Switch),
        "The host's ciphers, which are faster than the module's own.",
    ),
    (
        field("bind-transparent", Kind::Switch),
        "Connections [from the client's address](serve.md#from-the-clients-address).",
    ),
    (
        field("host-keys", Kind::Switch),
        "Signatures by [keys that stay in the host](tls.md#keys-that-stay-in-the-host).",
    ),
    (
        field("capture", Kind::Switch),
        "Copies of packets and keys, if you [enable a capture](wireguard.md#debugging).",
    ),
    (number("memory-mib"), "The memory of an instance, in MiB."),
    (
        number("cpu-permille"),
        "The CPU quota, in thousandths of a core.",
    ),
    (number("flows"), "Flows at once."),
    (number("instances"), "Instances at once."),
];
