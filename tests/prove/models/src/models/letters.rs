//! The post between generations.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::thread;

use crate::post::{Letter, Post};

/// The size of a letter that fills a mailbox, in bytes: the next letter has to wait.
const FULL: usize = 4 << 20;

fn letter(content: &[u8]) -> Letter {
    Letter {
        generation: 1,
        content: content.into(),
    }
}

fn full() -> Letter {
    Letter {
        generation: 1,
        content: vec![0; FULL].into(),
    }
}

/// Send, and wait until there is room, as a module does that is called again.
fn send(post: &Post, content: &[u8]) {
    block_on(poll_fn(|cx| match post.send(0, letter(content), cx) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    }));
}

/// Returns the letters that are there, and the generations that have ended, once there is either.
fn receive(post: &Post) -> (Vec<Letter>, Vec<u32>) {
    block_on(poll_fn(|cx: &mut Context<'_>| {
        let (letters, ended) = post.receive(0, 1, usize::MAX, cx);
        match letters.is_empty() && ended.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready((letters, ended)),
        }
    }))
}

pub(crate) fn letters_come_in_order_and_then_the_end_once() {
    let post = Arc::<Post>::default();
    assert!(post.open(0));
    let sender = {
        let post = post.clone();
        thread::spawn(move || {
            send(&post, b"1");
            send(&post, b"2");
            post.end(1);
        })
    };
    let (mut got, mut ends) = (Vec::new(), Vec::new());
    while ends.is_empty() {
        let (letters, ended) = receive(&post);
        for letter in letters {
            got.extend_from_slice(&letter.content);
        }
        ends.extend(ended);
    }
    assert_eq!(
        (got.as_slice(), ends.as_slice()),
        (b"12".as_slice(), [1].as_slice())
    );
    sender.join().expect("it does not panic");
    let rest = post.receive(0, 10, 100, &mut Context::from_waker(Waker::noop()));
    assert!(rest.0.is_empty() && rest.1.is_empty(), "the end comes once");
}

fn full_mailbox() -> Arc<Post> {
    let post = Arc::<Post>::default();
    assert!(post.open(0));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(post.send(0, full(), cx));
    post
}

pub(crate) fn who_waits_for_room_is_woken() {
    let post = full_mailbox();
    let sender = {
        let post = post.clone();
        thread::spawn(move || send(&post, b"more"))
    };
    let mut count = 0;
    while count < 2 {
        count += receive(&post).0.len();
    }
    sender.join().expect("it does not panic");
}

/// A letter to an ended generation counts as sent.
pub(crate) fn who_waits_for_room_is_woken_by_the_end() {
    let post = full_mailbox();
    let sender = {
        let post = post.clone();
        thread::spawn(move || send(&post, b"more"))
    };
    post.end(0);
    sender.join().expect("it does not panic");
}

/// Another opens the mailbox again: nothing of what was sent to the one before is in it, and what
/// comes later is there once.
pub(crate) fn a_letter_is_delivered_or_goes_with_the_mailbox() {
    let post = Arc::<Post>::default();
    assert!(post.open(0));
    let sender = {
        let post = post.clone();
        thread::spawn(move || {
            send(&post, b"1");
            send(&post, b"2");
        })
    };
    let cx = &mut Context::from_waker(Waker::noop());
    let (before, _) = post.receive(0, 10, 100, cx);
    post.close(0);
    assert!(post.receive(0, 10, 100, cx).0.is_empty());
    assert!(post.open(0));
    sender.join().expect("it does not panic");
    let (after, _) = post.receive(0, 10, 100, cx);
    let got: Vec<u8> = before
        .iter()
        .chain(&after)
        .flat_map(|letter| letter.content.to_vec())
        .collect();
    assert!(
        [b"".as_slice(), b"1", b"2", b"12"].contains(&got.as_slice()),
        "{got:?}"
    );
}
