//! What the WIT says, in Rust. Generated; the only place that is. It re-exports the types
//! it is given, which must be `pub` for that; this module and theirs are private.
#![allow(missing_docs, clippy::all)]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "module",
    imports: { default: trappable },
    // For recordings.
    additional_derives: [serde_derive::Serialize, serde_derive::Deserialize],
    trappable_error_type: {
        "watm:transport/types.error-code" => crate::component::Failure,
    },
    with: {
        "watm:transport/sockets.datagram-socket": crate::component::sockets::DatagramSocket,
        "watm:transport/sockets.byte-stream": crate::component::sockets::ByteStream,
        "watm:transport/sockets.listener": crate::component::sockets::Listener,
        "watm:transport/flows.datagram-flow": crate::flow::GuestDatagrams,
        "watm:transport/generations.mailbox": crate::component::generations::Mailbox,
        "watm:transport/names.lookup": crate::component::names::Lookup,
        "watm:transport/signing.private-key": crate::component::signing::PrivateKey,
        "watm:transport/crypto.aead-key": crate::component::crypto::AeadKey,
    },
});
