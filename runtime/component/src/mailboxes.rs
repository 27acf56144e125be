//! The state that the generations of a server share: which one serves, and the messages between
//! them. `component::generations` and `driver` use it.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Waker};

use watm_net::ready::register;
use watm_net::sync::atomic::{AtomicU32, Ordering};
use watm_net::sync::{Mutex, MutexGuard};

/// The most bytes that wait in one mailbox. A generation passes on what it receives in one call,
/// some hundred kilobytes, and the recipient is called in turn.
const MAX_BYTES: usize = 4 << 20;
const MAX_LETTERS: usize = 8192;

/// The shared state of a server's generations.
#[derive(Default)]
pub struct Mailboxes {
    serving: AtomicU32,
    boxes: Mutex<BTreeMap<u32, Mailbox>>,
}

#[derive(Default)]
struct Mailbox {
    messages: VecDeque<Message>,
    bytes: usize,
    ended: Vec<u32>,
    /// The owner's waker, if it found less than it had asked for.
    reader: Option<Waker>,
    /// The wakers of senders that found no room: the last one of each.
    writers: BTreeMap<u32, Waker>,
}

/// A message, with the generation that sent it.
pub struct Message {
    /// The generation that sent it.
    pub generation: u32,
    /// The content, which is opaque to the host.
    pub content: Box<[u8]>,
}

impl Mailboxes {
    /// Returns the number of the generation that receives from the sockets.
    pub fn serving(&self) -> u32 {
        self.serving.load(Ordering::Relaxed)
    }

    /// Makes this generation the one that serves.
    pub fn serve(&self, generation: u32) {
        self.serving.store(generation, Ordering::Relaxed);
    }

    /// Makes a mailbox. Returns false if there is one.
    pub fn open(&self, generation: u32) -> bool {
        let mut boxes = self.lock();
        let fresh = !boxes.contains_key(&generation);
        boxes.entry(generation).or_default();
        fresh
    }

    /// Removes a mailbox and its contents.
    pub fn close(&self, generation: u32) {
        let gone = self.lock().remove(&generation);
        let writers = gone.map(|gone| gone.writers).unwrap_or_default();
        writers.into_values().for_each(Waker::wake);
    }

    /// Removes the mailbox of a generation that is gone, and tells the others.
    pub fn end(&self, generation: u32) {
        self.close(generation);
        let mut readers = Vec::new();
        for mailbox in self.lock().values_mut() {
            mailbox.ended.push(generation);
            mailbox.writers.remove(&generation);
            readers.extend(mailbox.reader.take());
        }
        readers.into_iter().for_each(Waker::wake);
    }

    /// Takes the messages that have arrived, up to both limits, and the generations that have
    /// ended, once there is no message left. If that falls short of `max_messages`, `cx` is woken
    /// when there is more.
    pub fn receive(
        &self,
        generation: u32,
        max_messages: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> (Vec<Message>, Vec<u32>) {
        let mut boxes = self.lock();
        let Some(mailbox) = boxes.get_mut(&generation) else {
            return (Vec::new(), Vec::new());
        };
        let mut messages = Vec::new();
        let mut room = max_bytes;
        while messages.len() < max_messages
            && let Some(message) = mailbox.messages.front()
            && message.content.len() <= room
        {
            room -= message.content.len();
            mailbox.bytes -= message.content.len();
            messages.extend(mailbox.messages.pop_front());
        }
        let mut ended = Vec::new();
        if mailbox.messages.is_empty() {
            ended = std::mem::take(&mut mailbox.ended);
            if messages.len() < max_messages {
                register(&mut mailbox.reader, cx);
            }
        } else if messages.len() < max_messages {
            // There may be more, which another call can take at once.
            cx.waker().wake_by_ref();
        }
        let writers = match messages.is_empty() {
            true => BTreeMap::new(),
            false => std::mem::take(&mut mailbox.writers),
        };
        drop(boxes);
        writers.into_values().for_each(Waker::wake);
        (messages, ended)
    }

    /// Leaves a message for `recipient`; drops it if that has no mailbox. Returns false if there is
    /// no room, and `cx` is woken when there is. A sender of many continues with those for others,
    /// and repeats those for this one in their order.
    pub fn send(&self, recipient: u32, message: Message, cx: &mut Context<'_>) -> bool {
        let mut boxes = self.lock();
        let Some(mailbox) = boxes.get_mut(&recipient) else {
            return true;
        };
        // A longer message goes alone; a call brings at most twice that.
        let full = mailbox.messages.len() >= MAX_LETTERS
            || mailbox.bytes > 0 && mailbox.bytes + message.content.len() > MAX_BYTES;
        if full {
            let writer = cx.waker().clone();
            mailbox.writers.insert(message.generation, writer);
            return false;
        }
        mailbox.bytes += message.content.len();
        mailbox.messages.push_back(message);
        let reader = mailbox.reader.take();
        drop(boxes);
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Mailbox>> {
        self.boxes.lock().expect("no panic under this lock")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use watm_net::ready::{ReadyList, Token};

    fn message(content: &[u8]) -> Message {
        Message {
            generation: 1,
            content: content.into(),
        }
    }

    fn listed(list: &ReadyList) -> Vec<u64> {
        let mut tokens = Vec::new();
        list.take(&mut tokens);
        tokens
    }

    #[test]
    fn messages_arrive_in_order_and_wake_their_reader_once() {
        let (mailboxes, list) = (Mailboxes::default(), Arc::<ReadyList>::default());
        let waker: Waker = Token::new(7, &list).into();
        let mut cx = Context::from_waker(&waker);
        assert!(mailboxes.open(0));
        assert!(!mailboxes.open(0));
        assert!(mailboxes.receive(0, 10, 100, &mut cx).0.is_empty());
        assert!(mailboxes.send(0, message(b"one"), &mut cx));
        assert!(mailboxes.send(0, message(b"three"), &mut cx));
        mailboxes.end(1);
        assert_eq!(listed(&list), [7]);
        // The end comes after the last message, whatever the limits are.
        let (messages, ended) = mailboxes.receive(0, 10, 4, &mut cx);
        assert_eq!((messages.len(), ended.len()), (1, 0));
        assert_eq!(&*messages[0].content, b"one");
        assert_eq!(listed(&list), [7]);
        let (messages, ended) = mailboxes.receive(0, 10, 100, &mut cx);
        assert_eq!((messages.len(), ended), (1, vec![1]));
        assert_eq!(listed(&list), [0u64; 0]);
    }

    #[test]
    fn a_full_mailbox_stops_its_writer_until_there_is_room() {
        let (mailboxes, list) = (Mailboxes::default(), Arc::<ReadyList>::default());
        let waker: Waker = Token::new(9, &list).into();
        let mut cx = Context::from_waker(&waker);
        // A message to nobody is accepted and dropped.
        assert!(mailboxes.send(5, message(b"lost"), &mut cx));
        mailboxes.open(0);
        for _ in 0..MAX_LETTERS {
            assert!(mailboxes.send(0, message(b""), &mut cx));
        }
        assert!(!mailboxes.send(0, message(b""), &mut cx));
        assert_eq!(listed(&list), [0u64; 0]);
        let noop = &mut Context::from_waker(Waker::noop());
        assert_eq!(mailboxes.receive(0, 1, 0, noop).0.len(), 1);
        assert_eq!(listed(&list), [9]);
        assert!(mailboxes.send(0, message(b""), &mut cx));
    }

    #[test]
    fn a_writer_that_asks_by_many_tokens_is_kept_once() {
        let (mailboxes, list) = (Mailboxes::default(), Arc::<ReadyList>::default());
        let cx = &mut Context::from_waker(Waker::noop());
        mailboxes.open(0);
        while mailboxes.send(0, message(b"full"), cx) {}
        for token in 0..1000 {
            let waker: Waker = Token::new(token, &list).into();
            assert!(!mailboxes.send(0, message(b"more"), &mut Context::from_waker(&waker)));
        }
        assert_eq!(mailboxes.lock()[&0].writers.len(), 1);
        mailboxes.receive(0, 1, 100, cx);
        assert_eq!(listed(&list), [999]);
    }

    #[test]
    fn a_full_mailbox_is_nobody_else_s_matter() {
        let mailboxes = Mailboxes::default();
        let cx = &mut Context::from_waker(Waker::noop());
        mailboxes.open(0);
        mailboxes.open(1);
        while mailboxes.send(0, message(b"full"), cx) {}
        // A refused message is sent again when there is room, and none of its sender's is before
        // it.
        assert!(mailboxes.send(1, message(b"first"), cx));
        assert!(!mailboxes.send(0, message(b"full"), cx));
        assert!(mailboxes.send(1, message(b"second"), cx));
        let (messages, _) = mailboxes.receive(1, 10, 100, cx);
        let contents: Vec<&[u8]> = messages.iter().map(|message| &*message.content).collect();
        assert_eq!(contents, [b"first".as_slice(), b"second"]);
    }

    #[test]
    fn a_hundred_generations_leave_one_mailbox() {
        let mailboxes = Mailboxes::default();
        let cx = &mut Context::from_waker(Waker::noop());
        for generation in 0..=100 {
            assert!(mailboxes.open(generation));
            mailboxes.send(generation, message(b"hello"), cx);
            if let Some(before) = generation.checked_sub(1) {
                mailboxes.send(before, message(b"lost with it"), cx);
                mailboxes.end(before);
                let (messages, ended) = mailboxes.receive(generation, 10, 100, cx);
                assert_eq!((messages.len(), ended), (1, vec![before]));
            }
        }
        let boxes = mailboxes.lock();
        assert_eq!(boxes.len(), 1);
        let last = boxes.get(&100).expect("the last one's");
        assert_eq!(
            (last.messages.len(), last.bytes, last.ended.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn bytes_are_bounded_but_for_one_message() {
        let mailboxes = Mailboxes::default();
        let cx = &mut Context::from_waker(Waker::noop());
        mailboxes.open(0);
        assert!(mailboxes.send(0, message(&vec![0; MAX_BYTES + 1]), cx));
        assert!(!mailboxes.send(0, message(b"1"), cx));
        mailboxes.close(0);
        assert!(mailboxes.send(0, message(b"1"), cx));
    }
}
