//! The mailbox, with the messages that wait to be sent through it.

use std::collections::BTreeSet;

use watm_core::{ErrorCode, Host, Mail, Mailbox, MessageInfo, Messages, Token};

use super::message::Message;
use crate::counters::{Counter, Counters};

/// The most that one receive takes: a call's worth of datagrams.
const RECEIVE_MESSAGES: u32 = 256;
const RECEIVE_BYTES: u32 = 256 << 10;

/// The size in bytes from which on a batch is sent before more is added.
const BATCH_BYTES: usize = 256 << 10;

/// The most bytes held for recipients that take nothing: enough for ten thousand peers. Messages
/// beyond it are lost.
const HELD_BYTES: usize = 1 << 20;

/// The mailbox and its queue. See the documentation of the parent module.
pub struct Post {
    mailbox: Box<dyn Mailbox>,
    /// The messages of this call.
    batch: Messages,
    /// For each message of the batch, true if it carries a packet.
    carries: Vec<bool>,
    /// Recipients that took less than was given, until the mailbox is ready again.
    full: BTreeSet<u32>,
    /// Messages that they did not take, without packets.
    held: Messages,
    /// True if there may be something to receive.
    readable: bool,
}

impl Post {
    /// Takes the mailbox. `None` where no generation follows another.
    pub fn open(host: &mut dyn Host, token: Token) -> Result<Option<Post>, ErrorCode> {
        match host.mailbox(token) {
            Ok(mailbox) => Ok(Some(Post {
                mailbox,
                batch: Messages::default(),
                carries: Vec::new(),
                full: BTreeSet::new(),
                held: Messages::default(),
                readable: false,
            })),
            Err(ErrorCode::NotSupported) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Handle the mailbox's token: it may accept or have more.
    pub fn ready(&mut self) {
        self.full.clear();
        self.readable = true;
    }

    /// Returns true if there may be something to receive.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Returns true if messages wait to be sent.
    pub fn is_waiting(&self) -> bool {
        !self.carries.is_empty() || !self.held.messages.is_empty()
    }

    /// Returns the messages that have arrived, as many as one call takes.
    pub fn receive(&mut self) -> Mail {
        let mail = self.mailbox.receive(RECEIVE_MESSAGES, RECEIVE_BYTES);
        // A large message makes a short batch that is not the last one: only an empty batch is the
        // end.
        self.readable = !mail.messages.messages.is_empty() || !mail.ended.is_empty();
        mail
    }

    /// Add a message, to be sent with the others of this call.
    pub fn send(&mut self, to: u32, message: &Message<'_>, counters: &mut Counters) {
        if self.batch.payload.len() >= BATCH_BYTES {
            self.flush(counters);
        }
        let before = self.batch.payload.len();
        message.write(&mut self.batch.payload);
        let len = (self.batch.payload.len() - before) as u32;
        self.batch.messages.push(MessageInfo {
            generation: to,
            len,
        });
        self.carries.push(message.carries());
    }

    /// Send the messages of this call. Packets for full recipients are lost.
    pub fn flush(&mut self, counters: &mut Counters) {
        let mut rest = std::mem::take(&mut self.batch);
        let mut carries = std::mem::take(&mut self.carries);
        if self.full.is_empty() && !self.held.messages.is_empty() {
            let held = std::mem::take(&mut self.held);
            carries.splice(0..0, held.messages.iter().map(|_| false));
            rest = held.iter().chain(rest.iter()).collect_messages();
        }
        // Each round but the last finds one more full recipient.
        while !carries.is_empty() {
            if !self.full.is_empty() {
                (rest, carries) = self.without_full(&rest, &carries, counters);
            }
            let given = carries.len();
            // An error means that the batch is malformed, and repeating it does not help.
            let taken = self.mailbox.send(&rest).map_or(given, |n| n as usize);
            if taken >= given {
                return;
            }
            self.full.insert(rest.messages[taken].generation);
            rest = rest.iter().skip(taken).collect_messages();
            carries.drain(..taken);
        }
    }

    /// The messages for recipients with room. Holds the notes for the others, and drops their
    /// packets.
    fn without_full(
        &mut self,
        batch: &Messages,
        carries: &[bool],
        counters: &mut Counters,
    ) -> (Messages, Vec<bool>) {
        let (mut others, mut others_carry) = (Messages::default(), Vec::new());
        for ((to, message), &carries) in batch.iter().zip(carries) {
            if !self.full.contains(&to) {
                push(&mut others, to, message);
                others_carry.push(carries);
            } else if carries || self.held.payload.len() >= HELD_BYTES {
                counters.count(Counter::MailLost);
            } else {
                push(&mut self.held, to, message);
            }
        }
        (others, others_carry)
    }
}

fn push(messages: &mut Messages, to: u32, message: &[u8]) {
    messages.payload.extend_from_slice(message);
    messages.messages.push(MessageInfo {
        generation: to,
        len: message.len() as u32,
    });
}

trait CollectMessages {
    fn collect_messages(self) -> Messages;
}

impl<'a, I: Iterator<Item = (u32, &'a [u8])>> CollectMessages for I {
    fn collect_messages(self) -> Messages {
        let mut messages = Messages::default();
        self.for_each(|(to, message)| push(&mut messages, to, message));
        messages
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use super::super::message::{Errand, Note};
    use super::*;

    type Letter = (u32, Vec<u8>);

    /// The room of each recipient, and the messages that arrived.
    #[derive(Clone, Default)]
    struct Boxes {
        room: Rc<RefCell<BTreeMap<u32, usize>>>,
        came: Rc<RefCell<Vec<Letter>>>,
    }

    impl Mailbox for Boxes {
        fn receive(&mut self, _: u32, _: u32) -> Mail {
            Mail::default()
        }

        fn send(&mut self, messages: &Messages) -> Result<u32, ErrorCode> {
            let mut accepted = 0;
            for (to, message) in messages.iter() {
                let mut room = self.room.borrow_mut();
                let room = room.entry(to).or_insert(usize::MAX);
                if *room == 0 {
                    break;
                }
                *room -= 1;
                self.came.borrow_mut().push((to, message.to_vec()));
                accepted += 1;
            }
            Ok(accepted)
        }
    }

    #[test]
    fn one_full_recipient_costs_the_others_nothing_and_gets_its_notes_later() {
        let boxes = Boxes::default();
        boxes.room.borrow_mut().insert(1, 1);
        let mut post = Post {
            mailbox: Box::new(boxes.clone()),
            batch: Messages::default(),
            carries: Vec::new(),
            full: BTreeSet::new(),
            held: Messages::default(),
            readable: false,
        };
        let counters = &mut Counters::default();
        let packet = Message::Packet(Errand::Send, [0; 32], b"packet");
        let note = |byte| Message::Note(Note::TakenOver, [byte; 32]);
        for (to, message) in [
            (1, &packet),
            (1, &note(1)),
            (1, &packet),
            (2, &packet),
            (1, &note(2)),
        ] {
            post.send(to, message, counters);
        }
        post.flush(counters);
        let to =
            |boxes: &Boxes| -> Vec<u32> { boxes.came.borrow().iter().map(|(to, _)| *to).collect() };
        assert_eq!(to(&boxes), [1, 2]);
        assert!(post.is_waiting());
        let lost = |counters: &Counters| {
            let found = counters.iter().find(|(name, _)| name.ends_with("mail"));
            found.expect("the counter").1
        };
        assert_eq!(lost(counters), 1);

        // While it is full, the others go on, and notes keep their order.
        post.send(1, &note(3), counters);
        post.send(2, &packet, counters);
        post.flush(counters);
        assert_eq!(to(&boxes), [1, 2, 2]);
        boxes.room.borrow_mut().insert(1, usize::MAX);
        post.ready();
        post.send(1, &note(4), counters);
        post.flush(counters);
        assert!(!post.is_waiting());
        let came = boxes.came.borrow();
        let notes: Vec<_> = came[3..].iter().map(|(_, note)| note[1]).collect();
        assert_eq!(notes, [1, 2, 3, 4]);
    }
}
