//! Sends messages to generations that do not exist, and with wrong lengths.

use watm_host_kit::generations::{Mailbox, MessageInfo, Messages};
use watm_host_kit::{
    Case, ConfigError, ErrorCode, StartOptions, case, done, refused, same, send_mail,
};

struct MailToNobody {
    _mailbox: Mailbox,
}

impl Case for MailToNobody {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let mailbox = Mailbox::open(1).map_err(refused)?;
        same(
            "a message to a generation of the future",
            &send_mail(&mailbox, 7, &[b"hello"]),
            &Ok(1),
        );
        let wrong = Messages {
            payload: b"four".to_vec(),
            messages: vec![MessageInfo {
                generation: 7,
                len: 5,
            }],
        };
        same(
            "a message with a wrong length",
            &mailbox.send(&wrong),
            &Err(ErrorCode::InvalidArgument),
        );
        done();
        Ok(MailToNobody { _mailbox: mailbox })
    }
}

case!(MailToNobody);
