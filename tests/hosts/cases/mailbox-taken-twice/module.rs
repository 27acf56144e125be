//! Takes the mailbox twice.

use watm_host_kit::generations::Mailbox;
use watm_host_kit::{Case, ConfigError, ErrorCode, StartOptions, case, done, refused, same};

struct MailboxTakenTwice {
    _mailbox: Mailbox,
}

impl Case for MailboxTakenTwice {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let mailbox = Mailbox::open(1).map_err(refused)?;
        same(
            "the second open",
            &Mailbox::open(2).err(),
            &Some(ErrorCode::InvalidState),
        );
        done();
        Ok(MailboxTakenTwice { _mailbox: mailbox })
    }
}

case!(MailboxTakenTwice);
