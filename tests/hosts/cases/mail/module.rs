//! Exchanges messages with the generation before it, and learns of its end.

use watm_host_kit::generations::Mailbox;
use watm_host_kit::{
    ALL, Case, ConfigError, StartOptions, Wakeup, case, check, done, refused, same, send_mail,
};

const TEXTS: [&[u8]; 3] = [b"one", b"", b"three\0\xff"];

struct Mail {
    mailbox: Mailbox,
    generation: u32,
    received: Vec<(u32, Vec<u8>)>,
    finished: bool,
}

impl Case for Mail {
    fn start(options: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let mailbox = Mailbox::open(1).map_err(refused)?;
        Ok(Mail {
            mailbox,
            generation: options.generation,
            received: Vec::new(),
            finished: false,
        })
    }

    fn serving(&mut self, generation: u32) {
        if generation == 1 && self.generation == 1 {
            same("the messages", &send_mail(&self.mailbox, 0, &TEXTS), &Ok(3));
        }
    }

    fn process(&mut self, _: u64, _: &[u64]) -> Wakeup {
        let mail = self.mailbox.receive(ALL, ALL);
        let mut rest = mail.messages.payload.as_slice();
        for info in &mail.messages.messages {
            let (text, tail) = rest.split_at(info.len as usize);
            rest = tail;
            self.received.push((info.generation, text.to_vec()));
        }
        if self.generation == 0 && self.received.len() == TEXTS.len() && !self.finished {
            let texts: Vec<&[u8]> = self
                .received
                .iter()
                .map(|(_, text)| text.as_slice())
                .collect();
            self.finished = send_mail(&self.mailbox, 1, &texts) == Ok(3);
        }
        if self.generation == 1 && !mail.ended.is_empty() {
            same("the generations that have ended", &mail.ended, &vec![0]);
            let expected: Vec<_> = TEXTS.iter().map(|text| (0, text.to_vec())).collect();
            same("the messages before the end", &self.received, &expected);
            check(rest.is_empty(), "the lengths add up");
            done();
        }
        match self.finished {
            true => Wakeup::Finished,
            false => Wakeup::OnReady,
        }
    }
}

case!(Mail);
