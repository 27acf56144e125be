//! The mailboxes between generations.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::thread;

use crate::mailboxes::{Mailboxes, Message};

/// The size of a message that fills a mailbox, in bytes: the next message has to wait.
const FULL: usize = 4 << 20;

fn message(content: &[u8]) -> Message {
    Message {
        generation: 1,
        content: content.into(),
    }
}

fn full() -> Message {
    Message {
        generation: 1,
        content: vec![0; FULL].into(),
    }
}

/// Send, and wait until there is room, as a module does that is called again.
fn send(mailboxes: &Mailboxes, content: &[u8]) {
    block_on(poll_fn(|cx| {
        match mailboxes.send(0, message(content), cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
}

/// Returns the messages that are there, and the generations that have ended, once there is either.
fn receive(mailboxes: &Mailboxes) -> (Vec<Message>, Vec<u32>) {
    block_on(poll_fn(|cx: &mut Context<'_>| {
        let (messages, ended) = mailboxes.receive(0, 1, usize::MAX, cx);
        match messages.is_empty() && ended.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready((messages, ended)),
        }
    }))
}

pub(crate) fn messages_come_in_order_and_then_the_end_once() {
    let mailboxes = Arc::<Mailboxes>::default();
    assert!(mailboxes.open(0));
    let sender = {
        let mailboxes = mailboxes.clone();
        thread::spawn(move || {
            send(&mailboxes, b"1");
            send(&mailboxes, b"2");
            mailboxes.end(1);
        })
    };
    let (mut got, mut ends) = (Vec::new(), Vec::new());
    while ends.is_empty() {
        let (messages, ended) = receive(&mailboxes);
        for message in messages {
            got.extend_from_slice(&message.content);
        }
        ends.extend(ended);
    }
    assert_eq!(
        (got.as_slice(), ends.as_slice()),
        (b"12".as_slice(), [1].as_slice())
    );
    sender.join().expect("it does not panic");
    let rest = mailboxes.receive(0, 10, 100, &mut Context::from_waker(Waker::noop()));
    assert!(rest.0.is_empty() && rest.1.is_empty(), "the end comes once");
}

fn full_mailbox() -> Arc<Mailboxes> {
    let mailboxes = Arc::<Mailboxes>::default();
    assert!(mailboxes.open(0));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(mailboxes.send(0, full(), cx));
    mailboxes
}

pub(crate) fn who_waits_for_room_is_woken() {
    let mailboxes = full_mailbox();
    let sender = {
        let mailboxes = mailboxes.clone();
        thread::spawn(move || send(&mailboxes, b"more"))
    };
    let mut count = 0;
    while count < 2 {
        count += receive(&mailboxes).0.len();
    }
    sender.join().expect("it does not panic");
}

/// A message to an ended generation counts as sent.
pub(crate) fn who_waits_for_room_is_woken_by_the_end() {
    let mailboxes = full_mailbox();
    let sender = {
        let mailboxes = mailboxes.clone();
        thread::spawn(move || send(&mailboxes, b"more"))
    };
    mailboxes.end(0);
    sender.join().expect("it does not panic");
}

/// Another instance opens the mailbox again: it has no message to the previous one, and each later
/// message once.
pub(crate) fn a_letter_is_delivered_or_goes_with_the_mailbox() {
    let mailboxes = Arc::<Mailboxes>::default();
    assert!(mailboxes.open(0));
    let sender = {
        let mailboxes = mailboxes.clone();
        thread::spawn(move || {
            send(&mailboxes, b"1");
            send(&mailboxes, b"2");
        })
    };
    let cx = &mut Context::from_waker(Waker::noop());
    let (before, _) = mailboxes.receive(0, 10, 100, cx);
    mailboxes.close(0);
    assert!(mailboxes.receive(0, 10, 100, cx).0.is_empty());
    assert!(mailboxes.open(0));
    sender.join().expect("it does not panic");
    let (after, _) = mailboxes.receive(0, 10, 100, cx);
    let got: Vec<u8> = before
        .iter()
        .chain(&after)
        .flat_map(|message| message.content.to_vec())
        .collect();
    assert!(
        [b"".as_slice(), b"1", b"2", b"12"].contains(&got.as_slice()),
        "{got:?}"
    );
}
