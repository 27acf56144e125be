//! The state that the generations of a server share: which one serves, and the messages between
//! them. `component::generations` and `driver` use it.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Waker};

use crate::ready::register;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// The most bytes that wait in one mailbox. A generation passes on what it receives in one call,
/// some hundred kilobytes, and the recipient is called in turn.
const MAX_BYTES: usize = 4 << 20;
const MAX_LETTERS: usize = 8192;

/// The shared state of a server's generations.
#[derive(Default)]
pub(crate) struct Post {
    serving: AtomicU32,
    boxes: Mutex<BTreeMap<u32, Mailbox>>,
}

#[derive(Default)]
struct Mailbox {
    letters: VecDeque<Letter>,
    bytes: usize,
    ended: Vec<u32>,
    /// The owner's waker, if it found less than it had asked for.
    reader: Option<Waker>,
    /// The wakers of senders that found no room: the last one of each.
    writers: BTreeMap<u32, Waker>,
}

/// A message, with the generation that sent it.
pub(crate) struct Letter {
    pub(crate) generation: u32,
    pub(crate) content: Box<[u8]>,
}

impl Post {
    /// Returns the number of the generation that receives from the sockets.
    pub(crate) fn serving(&self) -> u32 {
        self.serving.load(Ordering::Relaxed)
    }

    /// Makes this generation the one that serves.
    pub(crate) fn serve(&self, generation: u32) {
        self.serving.store(generation, Ordering::Relaxed);
    }

    /// Makes a mailbox. Returns false if there is one.
    pub(crate) fn open(&self, generation: u32) -> bool {
        let mut boxes = self.lock();
        let fresh = !boxes.contains_key(&generation);
        boxes.entry(generation).or_default();
        fresh
    }

    /// Removes a mailbox and its contents.
    pub(crate) fn close(&self, generation: u32) {
        let gone = self.lock().remove(&generation);
        let writers = gone.map(|gone| gone.writers).unwrap_or_default();
        writers.into_values().for_each(Waker::wake);
    }

    /// Removes the mailbox of a generation that is gone, and tells the others.
    pub(crate) fn end(&self, generation: u32) {
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
    /// ended, once there is no message left. If that falls short of `max_letters`, `cx` is woken
    /// when there is more.
    pub(crate) fn receive(
        &self,
        generation: u32,
        max_letters: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> (Vec<Letter>, Vec<u32>) {
        let mut boxes = self.lock();
        let Some(mailbox) = boxes.get_mut(&generation) else {
            return (Vec::new(), Vec::new());
        };
        let mut letters = Vec::new();
        let mut room = max_bytes;
        while letters.len() < max_letters
            && let Some(letter) = mailbox.letters.front()
            && letter.content.len() <= room
        {
            room -= letter.content.len();
            mailbox.bytes -= letter.content.len();
            letters.extend(mailbox.letters.pop_front());
        }
        let mut ended = Vec::new();
        if mailbox.letters.is_empty() {
            ended = std::mem::take(&mut mailbox.ended);
            if letters.len() < max_letters {
                register(&mut mailbox.reader, cx);
            }
        } else if letters.len() < max_letters {
            // There may be more, which another call can take at once.
            cx.waker().wake_by_ref();
        }
        let writers = match letters.is_empty() {
            true => BTreeMap::new(),
            false => std::mem::take(&mut mailbox.writers),
        };
        drop(boxes);
        writers.into_values().for_each(Waker::wake);
        (letters, ended)
    }

    /// Leaves a message for `recipient`; drops it if that has no mailbox. Returns false if there is
    /// no room, and `cx` is woken when there is. A sender of many continues with those for others,
    /// and repeats those for this one in their order.
    pub(crate) fn send(&self, recipient: u32, letter: Letter, cx: &mut Context<'_>) -> bool {
        let mut boxes = self.lock();
        let Some(mailbox) = boxes.get_mut(&recipient) else {
            return true;
        };
        // A longer message goes alone; a call brings at most twice that.
        let full = mailbox.letters.len() >= MAX_LETTERS
            || mailbox.bytes > 0 && mailbox.bytes + letter.content.len() > MAX_BYTES;
        if full {
            let writer = cx.waker().clone();
            mailbox.writers.insert(letter.generation, writer);
            return false;
        }
        mailbox.bytes += letter.content.len();
        mailbox.letters.push_back(letter);
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
    use crate::ready::{ReadyList, Token};

    fn letter(content: &[u8]) -> Letter {
        Letter {
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
    fn letters_arrive_in_order_and_wake_their_reader_once() {
        let (post, list) = (Post::default(), Arc::<ReadyList>::default());
        let waker: Waker = Token::new(7, &list).into();
        let mut cx = Context::from_waker(&waker);
        assert!(post.open(0));
        assert!(!post.open(0));
        assert!(post.receive(0, 10, 100, &mut cx).0.is_empty());
        assert!(post.send(0, letter(b"one"), &mut cx));
        assert!(post.send(0, letter(b"three"), &mut cx));
        post.end(1);
        assert_eq!(listed(&list), [7]);
        // The end comes after the last message, whatever the limits are.
        let (letters, ended) = post.receive(0, 10, 4, &mut cx);
        assert_eq!((letters.len(), ended.len()), (1, 0));
        assert_eq!(&*letters[0].content, b"one");
        assert_eq!(listed(&list), [7]);
        let (letters, ended) = post.receive(0, 10, 100, &mut cx);
        assert_eq!((letters.len(), ended), (1, vec![1]));
        assert_eq!(listed(&list), [0u64; 0]);
    }

    #[test]
    fn a_full_mailbox_stops_its_writer_until_there_is_room() {
        let (post, list) = (Post::default(), Arc::<ReadyList>::default());
        let waker: Waker = Token::new(9, &list).into();
        let mut cx = Context::from_waker(&waker);
        // A message to nobody is accepted and dropped.
        assert!(post.send(5, letter(b"lost"), &mut cx));
        post.open(0);
        for _ in 0..MAX_LETTERS {
            assert!(post.send(0, letter(b""), &mut cx));
        }
        assert!(!post.send(0, letter(b""), &mut cx));
        assert_eq!(listed(&list), [0u64; 0]);
        let noop = &mut Context::from_waker(Waker::noop());
        assert_eq!(post.receive(0, 1, 0, noop).0.len(), 1);
        assert_eq!(listed(&list), [9]);
        assert!(post.send(0, letter(b""), &mut cx));
    }

    #[test]
    fn a_writer_that_asks_by_many_tokens_is_kept_once() {
        let (post, list) = (Post::default(), Arc::<ReadyList>::default());
        let cx = &mut Context::from_waker(Waker::noop());
        post.open(0);
        while post.send(0, letter(b"full"), cx) {}
        for token in 0..1000 {
            let waker: Waker = Token::new(token, &list).into();
            assert!(!post.send(0, letter(b"more"), &mut Context::from_waker(&waker)));
        }
        assert_eq!(post.lock()[&0].writers.len(), 1);
        post.receive(0, 1, 100, cx);
        assert_eq!(listed(&list), [999]);
    }

    #[test]
    fn a_full_mailbox_is_nobody_else_s_matter() {
        let post = Post::default();
        let cx = &mut Context::from_waker(Waker::noop());
        post.open(0);
        post.open(1);
        while post.send(0, letter(b"full"), cx) {}
        // A refused message is sent again when there is room, and none of its sender's is before
        // it.
        assert!(post.send(1, letter(b"first"), cx));
        assert!(!post.send(0, letter(b"full"), cx));
        assert!(post.send(1, letter(b"second"), cx));
        let (letters, _) = post.receive(1, 10, 100, cx);
        let contents: Vec<&[u8]> = letters.iter().map(|letter| &*letter.content).collect();
        assert_eq!(contents, [b"first".as_slice(), b"second"]);
    }

    #[test]
    fn a_hundred_generations_leave_one_mailbox() {
        let post = Post::default();
        let cx = &mut Context::from_waker(Waker::noop());
        for generation in 0..=100 {
            assert!(post.open(generation));
            post.send(generation, letter(b"hello"), cx);
            if let Some(before) = generation.checked_sub(1) {
                post.send(before, letter(b"lost with it"), cx);
                post.end(before);
                let (letters, ended) = post.receive(generation, 10, 100, cx);
                assert_eq!((letters.len(), ended), (1, vec![before]));
            }
        }
        let boxes = post.lock();
        assert_eq!(boxes.len(), 1);
        let last = boxes.get(&100).expect("the last one's");
        assert_eq!(
            (last.letters.len(), last.bytes, last.ended.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn bytes_are_bounded_but_for_one_message() {
        let post = Post::default();
        let cx = &mut Context::from_waker(Waker::noop());
        post.open(0);
        assert!(post.send(0, letter(&vec![0; MAX_BYTES + 1]), cx));
        assert!(!post.send(0, letter(b"1"), cx));
        post.close(0);
        assert!(post.send(0, letter(b"1"), cx));
    }
}
