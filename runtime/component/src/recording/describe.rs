//! Descriptions of recorded calls and answers, for the differences that a replay reports.

use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::{Digest, Function};
use crate::recording::Call;
use crate::wit::endpoint::{ClientConfig, ConfigError, Status, Wakeup};
use crate::wit::types::ErrorCode;

/// The most characters of one value that are shown.
const MAX_SHOWN: usize = 600;

impl Function {
    /// Describes the call with the arguments at the beginning of `bytes`, for people. Shows no
    /// payload and no key.
    pub fn describe_call(self, bytes: &[u8]) -> String {
        let arguments = self.show_arguments(bytes);
        let arguments = arguments.as_deref().unwrap_or("unreadable data");
        format!("{} {arguments}", self.name())
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

pub(super) fn show<T: DeserializeOwned + Debug>(bytes: &[u8]) -> Option<String> {
    let (value, _) = postcard::take_from_bytes::<T>(bytes).ok()?;
    let mut text = format!("{value:?}");
    if text.len() > MAX_SHOWN {
        text.truncate(text.floor_char_boundary(MAX_SHOWN));
        text.push('…');
    }
    Some(text)
}
