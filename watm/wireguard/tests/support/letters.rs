//! The mailboxes of generations, under the host's rules.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use watm_core::{ErrorCode, Mail, Mailbox, MessageInfo, Messages, Token};

/// All mailboxes.
#[derive(Clone)]
pub struct Office(Rc<RefCell<State>>);

struct State {
    boxes: BTreeMap<u32, Slot>,
    /// The number of messages that fit into one.
    room: usize,
    /// Every message: from, to, bytes.
    pub sent: Vec<(u32, u32, Vec<u8>)>,
}

#[derive(Default)]
struct Slot {
    token: Token,
    letters: VecDeque<(u32, Vec<u8>)>,
    ended: Vec<u32>,
    ready: bool,
    armed_to_read: bool,
    /// The generations that found no room.
    writers: BTreeSet<u32>,
}

impl State {
    fn put(&mut self, from: u32, to: u32, message: &[u8]) {
        self.sent.push((from, to, message.to_vec()));
        if let Some(mailbox) = self.boxes.get_mut(&to) {
            mailbox.letters.push_back((from, message.to_vec()));
            mailbox.ready |= std::mem::take(&mut mailbox.armed_to_read);
        }
    }
}

impl Office {
    pub fn new() -> Self {
        Office(Rc::new(RefCell::new(State {
            boxes: BTreeMap::new(),
            room: 8192,
            sent: Vec::new(),
        })))
    }

    /// Sets the number of messages that fit into each box.
    pub fn set_room(&self, room: usize) {
        self.0.borrow_mut().room = room;
    }

    /// The mailbox of one generation.
    pub fn letters(&self, generation: u32) -> Letters {
        Letters {
            office: self.clone(),
            generation,
        }
    }

    /// Leaves a message in the name of any generation.
    pub fn put(&self, from: u32, to: u32, message: &[u8]) {
        self.0.borrow_mut().put(from, to, message);
    }

    /// Ends a generation.
    pub fn end(&self, generation: u32) {
        let state = &mut *self.0.borrow_mut();
        state.boxes.remove(&generation);
        for mailbox in state.boxes.values_mut() {
            mailbox.ended.push(generation);
            mailbox.ready |= std::mem::take(&mut mailbox.armed_to_read);
        }
    }

    /// The messages since the last call.
    pub fn take_sent(&self) -> Vec<(u32, u32, Vec<u8>)> {
        std::mem::take(&mut self.0.borrow_mut().sent)
    }
}

/// The end of one generation.
#[derive(Clone)]
pub struct Letters {
    office: Office,
    generation: u32,
}

impl Letters {
    pub fn open(&self, token: Token) -> Box<dyn Mailbox> {
        let mailbox = Slot {
            token,
            ready: true,
            ..Slot::default()
        };
        let state = &mut *self.office.0.borrow_mut();
        let before = state.boxes.insert(self.generation, mailbox);
        assert!(before.is_none(), "a mailbox is taken once");
        Box::new(self.clone())
    }

    pub fn take_ready(&self) -> Option<Token> {
        let state = &mut *self.office.0.borrow_mut();
        let mailbox = state.boxes.get_mut(&self.generation)?;
        std::mem::take(&mut mailbox.ready).then_some(mailbox.token)
    }
}

impl Mailbox for Letters {
    fn receive(&mut self, max_messages: u32, max_bytes: u32) -> Mail {
        let state = &mut *self.office.0.borrow_mut();
        let mailbox = state.boxes.get_mut(&self.generation).expect("its own");
        let mut mail = Mail::default();
        while mail.messages.messages.len() < max_messages as usize
            && let Some((from, message)) = mailbox.letters.front()
            && mail.messages.payload.len() + message.len() <= max_bytes as usize
        {
            mail.messages.messages.push(MessageInfo {
                generation: *from,
                len: message.len() as u32,
            });
            mail.messages.payload.extend_from_slice(message);
            mailbox.letters.pop_front();
        }
        if mailbox.letters.is_empty() {
            mail.ended = std::mem::take(&mut mailbox.ended);
        }
        if mail.messages.messages.len() < max_messages as usize {
            mailbox.armed_to_read = mailbox.letters.is_empty();
            mailbox.ready = !mailbox.letters.is_empty();
        }
        for writer in std::mem::take(&mut mailbox.writers) {
            if let Some(writer) = state.boxes.get_mut(&writer) {
                writer.ready = true;
            }
        }
        mail
    }

    fn send(&mut self, messages: &Messages) -> Result<u32, ErrorCode> {
        let total: u32 = messages.messages.iter().map(|info| info.len).sum();
        assert_eq!(total as usize, messages.payload.len(), "the lengths add up");
        let mut accepted = 0;
        for (to, message) in messages.iter() {
            let state = &mut *self.office.0.borrow_mut();
            let room = state.room;
            if let Some(mailbox) = state.boxes.get_mut(&to)
                && mailbox.letters.len() >= room
            {
                mailbox.writers.insert(self.generation);
                break;
            }
            state.put(self.generation, to, message);
            accepted += 1;
        }
        Ok(accepted)
    }
}
