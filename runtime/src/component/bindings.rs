//! The types and traits of the WIT, generated; nothing else here is. They re-export the host's
//! types that they are given, which must be `pub` for that; this module and theirs are private.
#![allow(missing_docs, clippy::all)]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "module",
    imports: { default: trappable },
    // Recordings encode and decode the types.
    additional_derives: [serde_derive::Serialize, serde_derive::Deserialize],
    trappable_error_type: {
        "watm:transport/types.error-code" => crate::component::Failure,
    },
    with: {
        "watm:transport/sockets.datagram-socket": crate::component::sockets::DatagramSocket,
        "watm:transport/sockets.byte-stream": crate::component::sockets::ByteStream,
        "watm:transport/sockets.listener": crate::component::sockets::Listener,
        "watm:transport/flows.datagram-flow": watm_net::flow::GuestDatagrams,
        "watm:transport/generations.mailbox": crate::component::generations::Mailbox,
        "watm:transport/names.lookup": crate::component::names::Lookup,
        "watm:transport/signing.private-key": crate::component::signing::PrivateKey,
        "watm:transport/crypto.aead-key": crate::component::crypto::AeadKey,
    },
});
