//! Descriptions of recorded calls and answers, for the differences that a replay reports.

use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::{Digest, Function};
use crate::recording::Call;
use crate::wit::crypto::AeadAlgorithm;
use crate::wit::endpoint::{ClientConfig, ConfigError, Status, Wakeup};
use crate::wit::flows::{FlowInfo, Kind};
use crate::wit::generations::MessageInfo;
use crate::wit::log::Level;
use crate::wit::sockets::{DatagramInfo, Direction};
use crate::wit::types::{Destination, ErrorCode, IpSocketAddress};

/// The most characters of one value that are shown.
const MAX_SHOWN: usize = 600;

impl Function {
    /// Returns the name in `wit/`.
    fn name(self) -> &'static str {
        match self {
            Function::DatagramSocketOpen => "sockets.datagram-socket.open",
            Function::DatagramSocketReceive => "sockets.datagram-socket.receive",
            Function::DatagramSocketSend => "sockets.datagram-socket.send",
            Function::DatagramSocketLocalAddress => "sockets.datagram-socket.local-address",
            Function::DatagramSocketDrop => "sockets.datagram-socket (drop)",
            Function::ByteStreamRead => "sockets.byte-stream.read",
            Function::ByteStreamWrite => "sockets.byte-stream.write",
            Function::ByteStreamShutdown => "sockets.byte-stream.shutdown",
            Function::ByteStreamReset => "sockets.byte-stream.reset",
            Function::ByteStreamRemoteAddress => "sockets.byte-stream.remote-address",
            Function::ByteStreamDrop => "sockets.byte-stream (drop)",
            Function::ListenerOpen => "sockets.listener.open",
            Function::ListenerAccept => "sockets.listener.accept",
            Function::ListenerLocalAddress => "sockets.listener.local-address",
            Function::ListenerDrop => "sockets.listener (drop)",
            Function::OpenStream => "flows.open-stream",
            Function::OpenDatagrams => "flows.open-datagrams",
            Function::DatagramFlowReceive => "flows.datagram-flow.receive",
            Function::DatagramFlowSend => "flows.datagram-flow.send",
            Function::DatagramFlowDrop => "flows.datagram-flow (drop)",
            Function::AeadKeyCreate => "crypto.aead-key.create",
            Function::Log => "log.log",
            Function::RandomBytes => "random.get-random-bytes",
            Function::RandomU64 => "random.get-random-u64",
            Function::WallClock => "wall-clock.now",
            Function::Connect => "sockets.connect",
            Function::MailboxOpen => "generations.mailbox.open",
            Function::MailboxReceive => "generations.mailbox.receive",
            Function::MailboxSend => "generations.mailbox.send",
            Function::MailboxDrop => "generations.mailbox (drop)",
            Function::LookupStart => "names.lookup.start",
            Function::LookupAddresses => "names.lookup.addresses",
            Function::LookupDrop => "names.lookup (drop)",
            Function::PrivateKeyOpen => "signing.private-key.open",
            Function::PrivateKeyPublicKey => "signing.private-key.public-key",
            Function::PrivateKeySchemes => "signing.private-key.schemes",
            Function::PrivateKeySign => "signing.private-key.sign",
            Function::PrivateKeyDrop => "signing.private-key (drop)",
            Function::ByteStreamConnecting => "sockets.byte-stream.connecting",
            Function::ByteStreamConnected => "sockets.byte-stream.connected",
            Function::Accepts => "flows.accepts",
            Function::DatagramSocketLongest => "sockets.datagram-socket.longest",
            Function::DatagramSocketSetDontFragment => "sockets.datagram-socket.set-dont-fragment",
            Function::DatagramFlowSetLongest => "flows.datagram-flow.set-longest",
            Function::DatagramSocketRefused => "sockets.datagram-socket.refused",
            Function::Coalesce => "sockets.coalesce",
        }
    }

    /// Describes the call with the arguments at the beginning of `bytes`, for people. Shows no
    /// payload and no key.
    pub fn describe_call(self, bytes: &[u8]) -> String {
        let arguments = self.arguments(bytes);
        let arguments = arguments.as_deref().unwrap_or("unreadable data");
        format!("{} {arguments}", self.name())
    }

    fn arguments(self, bytes: &[u8]) -> Option<String> {
        match self {
            Function::DatagramSocketOpen | Function::ListenerOpen => show::<(String, u64)>(bytes),
            Function::DatagramSocketReceive
            | Function::DatagramFlowReceive
            | Function::MailboxReceive => show::<(u32, u32, u32)>(bytes),
            Function::DatagramSocketSend => show::<(u32, Digest, Vec<DatagramInfo>)>(bytes),
            Function::ByteStreamRead | Function::DatagramFlowSetLongest => {
                show::<(u32, u32)>(bytes)
            }
            Function::DatagramSocketLongest => show::<(u32, IpSocketAddress)>(bytes),
            Function::DatagramSocketSetDontFragment => show::<(u32, bool)>(bytes),
            Function::ByteStreamWrite => show::<(u32, Digest)>(bytes),
            Function::ByteStreamShutdown => show::<(u32, Direction)>(bytes),
            Function::ByteStreamReset => show::<(u32, ErrorCode)>(bytes),
            Function::ListenerAccept => show::<(u32, u64)>(bytes),
            Function::OpenStream | Function::OpenDatagrams => show::<(FlowInfo, u64)>(bytes),
            Function::DatagramFlowSend => show::<(u32, Digest, Vec<u32>)>(bytes),
            Function::Connect => show::<(Destination, u64)>(bytes),
            Function::Accepts => show::<(Kind, Destination)>(bytes),
            Function::AeadKeyCreate => show::<(AeadAlgorithm, Digest)>(bytes),
            Function::Log => show::<(Level, String, String, u64)>(bytes),
            Function::MailboxOpen => show::<(u64,)>(bytes),
            Function::MailboxSend => show::<(u32, Digest, Vec<MessageInfo>)>(bytes),
            Function::LookupStart => show::<(String, u16, u64)>(bytes),
            Function::PrivateKeyOpen => show::<(String,)>(bytes),
            Function::PrivateKeySign => show::<(u32, u16, Digest)>(bytes),
            Function::RandomBytes => show::<(u64,)>(bytes),
            Function::RandomU64 | Function::WallClock => show::<()>(bytes),
            Function::DatagramSocketLocalAddress
            | Function::DatagramSocketRefused
            | Function::DatagramSocketDrop
            | Function::ByteStreamRemoteAddress
            | Function::ByteStreamDrop
            | Function::ByteStreamConnecting
            | Function::ByteStreamConnected
            | Function::ListenerLocalAddress
            | Function::ListenerDrop
            | Function::DatagramFlowDrop
            | Function::LookupAddresses
            | Function::LookupDrop
            | Function::PrivateKeyPublicKey
            | Function::PrivateKeySchemes
            | Function::PrivateKeyDrop
            | Function::MailboxDrop
            | Function::Coalesce => show::<(u32,)>(bytes),
        }
    }
}

impl Call<'_> {
    /// Describes the answer of this call, for people. Client configurations hold keys and are not
    /// shown.
    pub fn describe_answer(&self, bytes: &[u8]) -> String {
        let shown = match self {
            Call::Start { .. } | Call::Reconfigure { .. } => show::<Result<(), ConfigError>>(bytes),
            Call::Process { .. } => show::<Wakeup>(bytes),
            Call::Dial { .. } | Call::DialDatagrams { .. } => show::<Result<u64, ErrorCode>>(bytes),
            // A snapshot holds the peers' state, so only its digest is shown.
            Call::Snapshot { .. } => postcard::from_bytes::<Vec<u8>>(bytes)
                .ok()
                .map(|snapshot| format!("{:?}", Digest::of(&snapshot))),
            Call::Serving { .. } | Call::NetworkChanged { .. } => show::<()>(bytes),
            Call::GetStatus { .. } => show::<Status>(bytes),
            Call::ClientConfigs { .. } => {
                postcard::from_bytes::<Result<Vec<ClientConfig>, ErrorCode>>(bytes)
                    .ok()
                    .map(|answer| {
                        let files = answer.map(|configs| {
                            let content = configs.into_iter();
                            content
                                .map(|config| (config.name, Digest::of(config.content.as_bytes())))
                                .collect::<Vec<_>>()
                        });
                        format!("{files:?}")
                    })
            }
        };
        shown.unwrap_or_else(|| "unreadable data".to_owned())
    }
}

fn show<T: DeserializeOwned + Debug>(bytes: &[u8]) -> Option<String> {
    let (value, _) = postcard::take_from_bytes::<T>(bytes).ok()?;
    let mut text = format!("{value:?}");
    if text.len() > MAX_SHOWN {
        text.truncate(text.floor_char_boundary(MAX_SHOWN));
        text.push('…');
    }
    Some(text)
}
