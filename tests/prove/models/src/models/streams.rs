//! Stream flows: a module at one end, on its thread, and an application at the other.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::Network;
use crate::account::Account;
use crate::flow::{GuestStream, StreamFlow, charge, stream_pair};
use crate::quota::Quota;
use crate::ready::{ReadyList, Token, WakeBatch};
use crate::{ErrorCode, FlowInfo, Limits};

pub(super) const LIMITS: Limits = Limits {
    flow_bytes: 0,
    stream_buffer_bytes: 4,
    write_high_water: 2,
    write_low_water: 1,
    datagram_queue: 1,
    datagram_queue_bytes: 100,
};

pub(super) fn info() -> FlowInfo {
    let address = ([10, 0, 0, 1], 80).into();
    FlowInfo {
        source: address,
        destination: watm_types::Destination::Address(address),
        peer: None,
        underlay: None,
        attributes: Vec::new(),
    }
}

/// The surroundings of a flow, with checks for its end.
pub(super) struct World {
    pub(super) account: Arc<Account>,
    pub(super) count: Quota,
    pub(super) list: Arc<ReadyList>,
}

impl World {
    pub(super) fn new() -> World {
        let account = Arc::<Account>::default();
        account.instance_begins(1 << 20);
        World {
            account,
            count: Quota::new(1),
            list: Arc::default(),
        }
    }

    fn pair(&self) -> (GuestStream, StreamFlow) {
        let charge = charge(Network::Tcp, &info(), &LIMITS, &self.account).expect("there is room");
        let permit = self.count.permit().expect("there is room");
        stream_pair(info(), Token::new(1, &self.list), &LIMITS, permit, charge)
    }

    /// Both ends are gone, and all that was kept for them, once.
    pub(super) fn check_gone(&self) {
        assert_eq!(self.count.open(), 0);
        assert_eq!(self.account.kept(), 0);
    }
}

/// Wait for a token, as the module's thread does between two calls.
pub(super) fn wait(list: &ReadyList) {
    block_on(poll_fn(|cx| list.poll_ready(cx)));
    list.take(&mut Vec::new());
}

/// Returns all bytes that the module reads until the end, or the error that ends them.
fn read_all(guest: &GuestStream, list: &ReadyList) -> Result<Vec<u8>, ErrorCode> {
    let mut got = Vec::new();
    loop {
        let mut wakers = WakeBatch::default();
        let read = guest.read(2, &mut wakers);
        wakers.fire();
        let Some(data) = read? else { return Ok(got) };
        // A read that is short is followed by a token.
        let short = data.len() < 2;
        got.extend_from_slice(&data);
        if short {
            wait(list);
        }
    }
}

pub(crate) fn the_module_reads_all_and_then_the_end() {
    let world = World::new();
    let (guest, flow) = world.pair();
    let application = thread::spawn(move || {
        flow.queue_write(b"one").expect("it is open");
        flow.queue_write(b"2").expect("it is open");
        flow.close();
    });
    assert_eq!(
        read_all(&guest, &world.list).as_deref(),
        Ok(b"one2".as_slice())
    );
    application.join().expect("it does not panic");
    drop(guest);
    world.check_gone();
}

pub(crate) fn the_application_reads_all_and_then_the_end() {
    let world = World::new();
    let (guest, flow) = world.pair();
    let application = thread::spawn(move || {
        let mut got = Vec::new();
        loop {
            let data = block_on(poll_fn(|cx| flow.poll_read_some(cx, 2))).expect("no error");
            if data.is_empty() {
                break;
            }
            got.extend_from_slice(&data);
        }
        assert_eq!(got, b"sixsix");
        let again = flow.poll_read_some(&mut Context::from_waker(Waker::noop()), 1);
        assert_eq!(again, Poll::Ready(Ok(Vec::new())));
    });
    // The queue takes four.
    let mut rest = b"sixsix".to_vec();
    while !rest.is_empty() {
        let mut wakers = WakeBatch::default();
        let written = guest.write(rest.clone(), &mut wakers).expect("it is open");
        wakers.fire();
        rest.drain(..written);
        if !rest.is_empty() {
            wait(&world.list);
        }
    }
    let mut wakers = WakeBatch::default();
    guest.shutdown(false, true, &mut wakers);
    wakers.fire();
    application.join().expect("it does not panic");
    drop(guest);
    world.check_gone();
}

/// An application that wrote above the mark waits until the module has read, or is gone.
pub(crate) fn the_application_is_told_of_room() {
    let world = World::new();
    let (guest, flow) = world.pair();
    let application = thread::spawn(move || {
        if flow.queue_write(b"above").is_ok() {
            let drained = block_on(poll_fn(|cx| flow.poll_drained(cx)));
            assert!(matches!(drained, Ok(()) | Err(ErrorCode::ConnectionReset)));
        }
        let dead = block_on(poll_fn(|cx| flow.poll_flushed(cx)));
        assert_eq!(dead, Err(ErrorCode::ConnectionReset));
    });
    let mut wakers = WakeBatch::default();
    let _ = guest.read(4, &mut wakers);
    wakers.fire();
    drop(guest);
    application.join().expect("it does not panic");
    world.check_gone();
}

/// Both ends break off at once: each sees one end and no more, and what was kept goes back once.
pub(crate) fn an_abort_meets_the_end_of_the_module() {
    let world = World::new();
    let (guest, flow) = world.pair();
    flow.queue_write(b"ab").expect("it is open");
    let application = thread::spawn(move || {
        flow.abort(ErrorCode::Timeout);
        let read = block_on(poll_fn(|cx| flow.poll_read_some(cx, 2)));
        assert!(matches!(
            read,
            Err(ErrorCode::Timeout | ErrorCode::ConnectionReset)
        ));
        // Closing it would wake the module too.
        flow
    });
    let read = read_all(&guest, &world.list);
    assert_eq!(read, Err(ErrorCode::Timeout));
    let mut wakers = WakeBatch::default();
    assert_eq!(guest.write(vec![1], &mut wakers), Err(ErrorCode::Timeout));
    drop(guest);
    drop(application.join().expect("it does not panic"));
    world.check_gone();
}

/// A watcher learns that the application has let go of the flow, and the application's bytes can
/// still be read.
pub(crate) fn who_watches_a_flow_sees_it_go() {
    let world = World::new();
    let (guest, flow) = world.pair();
    let watch = guest.watch();
    let application = thread::spawn(move || {
        flow.queue_write(b"bye").expect("it is open");
        drop(flow);
    });
    let module = {
        let list = world.list.clone();
        thread::spawn(move || {
            let mut buffer = [0; 8];
            let mut count = 0;
            loop {
                match guest.read_into(&mut buffer[count..]).expect("no error") {
                    None => wait(&list),
                    Some(0) => break,
                    Some(more) => count += more,
                }
            }
            assert_eq!(&buffer[..count], b"bye");
        })
    };
    block_on(poll_fn(|cx| watch.poll_closed(cx)));
    block_on(poll_fn(|cx| watch.poll_drained(cx)));
    drop(watch);
    application.join().expect("it does not panic");
    module.join().expect("it does not panic");
    world.check_gone();
}

pub(crate) fn no_more_flows_than_allowed() {
    let count = Quota::new(1);
    let open = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (count, open) = (count.clone(), open.clone());
            thread::spawn(move || {
                if let Some(permit) = count.permit() {
                    assert_eq!(open.fetch_add(1, Ordering::SeqCst), 0, "one too many");
                    open.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it does not panic");
    }
    assert_eq!(count.open(), 0);
}
