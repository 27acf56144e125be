//! Flows of datagrams.

use std::future::poll_fn;
use std::sync::Arc;

use loom::future::block_on;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::streams::{LIMITS, World, info, wait};
use crate::Network;
use crate::counters::Counters;
use crate::flow::{DatagramFlow, GuestDatagrams, charge, datagram_pair};
use crate::ready::{Token, WakeBatch};

fn pair(world: &World) -> (GuestDatagrams, DatagramFlow) {
    let charge = charge(Network::Udp, &info(), &LIMITS, &world.account).expect("there is room");
    let permit = world.count.permit().expect("there is room");
    let counters = Arc::<Counters>::default();
    let failed = Arc::new(AtomicBool::new(false));
    let token = Token::new(1, &world.list);
    datagram_pair(info(), token, &LIMITS, permit, counters, failed, charge)
}

/// The queue has room for one, so the second may be refused; then the application waits.
pub(crate) fn the_module_receives_all_and_then_the_end() {
    let world = World::new();
    let (guest, flow) = pair(&world);
    let application = thread::spawn(move || {
        for datagram in [b"1", b"2"] {
            while !flow.send(datagram).expect("it is open") {
                block_on(poll_fn(|cx| flow.poll_writable(cx))).expect("it is open");
            }
        }
        flow.close();
    });
    let mut got = Vec::new();
    loop {
        let mut wakers = WakeBatch::default();
        let received = guest.receive(2, 100, &mut wakers);
        wakers.fire();
        let Some((payload, _)) = received else { break };
        let none = payload.is_empty();
        got.extend(payload);
        if none {
            wait(&world.list);
        }
    }
    assert_eq!(got, b"12");
    application.join().expect("it does not panic");
    drop(guest);
    world.check_gone();
}

pub(crate) fn the_application_receives_all_and_then_the_end() {
    let world = World::new();
    let (guest, flow) = pair(&world);
    let application = thread::spawn(move || {
        let mut got = Vec::new();
        while let Some(datagram) = block_on(poll_fn(|cx| flow.poll_receive(cx))).expect("no error")
        {
            got.extend(datagram);
        }
        assert_eq!(got, b"12");
    });
    let mut rest: &[u8] = b"12";
    while !rest.is_empty() {
        let mut wakers = WakeBatch::default();
        let lengths = vec![1; rest.len()];
        let count = guest.send(rest, &lengths, &mut wakers).expect("it is open");
        wakers.fire();
        rest = &rest[count..];
        if !rest.is_empty() {
            wait(&world.list);
        }
    }
    drop(guest);
    application.join().expect("it does not panic");
    world.check_gone();
}
