//! The types and traits of the WIT, generated; nothing else here is. They re-export the host's
//! types that they are given, which must be `pub` for that; this module and theirs are private.
#![allow(missing_docs, clippy::all)]

wasmtime::component::bindgen!({
    path: "wit",
    world: "module",
    imports: { default: trappable },
    // Recordings encode and decode the types.
    additional_derives: [serde_derive::Serialize, serde_derive::Deserialize],
    trappable_error_type: {
        "watm:transport/types.error-code" => crate::Failure,
    },
    with: {
        "watm:transport/sockets.datagram-socket": crate::sockets::DatagramSocket,
        "watm:transport/sockets.byte-stream": crate::sockets::ByteStream,
        "watm:transport/sockets.listener": crate::sockets::Listener,
        "watm:transport/flows.datagram-flow": watm_net::flow::GuestDatagrams,
        "watm:transport/generations.mailbox": crate::generations::Mailbox,
        "watm:transport/packets.packet-device": crate::packets::PacketDevice,
        "watm:transport/names.lookup": crate::names::Lookup,
        "watm:transport/signing.private-key": crate::signing::PrivateKey,
        "watm:transport/crypto.aead-key": crate::crypto::AeadKey,
    },
});
