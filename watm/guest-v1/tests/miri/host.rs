//! A WATER host, as the functions that the guest imports: with the answers that a test has planned,
//! or with random ones.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::ptr::with_exposed_provenance;

use wasip1::{Ciovec, Errno, Event, EventFdReadwrite, Fd, Iovec, Prestat, PrestatDir, PrestatU};
use wasip1::{EVENTTYPE_CLOCK, EVENTTYPE_FD_READ, Subscription};

/// The events of one descriptor.
#[derive(Default)]
pub struct Stream {
    /// The result of each read. After the last there is nothing for now.
    pub reads: VecDeque<Result<Vec<u8>, Errno>>,
    /// The most bytes that each write takes; after the last all of them.
    pub takes: VecDeque<Result<usize, Errno>>,
    pub written: Vec<u8>,
    pub shut: u8,
}

/// The host of this thread's guest.
pub struct World {
    /// The streams, with their planned [`reads`](Stream::reads) and `takes`, and their counts.
    pub streams: BTreeMap<Fd, Stream>,
    /// The paths of the folders from 3 on.
    pub folders: Vec<&'static [u8]>,
    pub config: Option<VecDeque<Result<Vec<u8>, Errno>>>,
    /// The descriptors that the guest gets for a dialled and for an accepted connection.
    pub dialled: i32,
    pub accepted: i32,
    /// The address that the guest has connected to.
    pub address: String,
    /// The descriptor on which the host cancels.
    pub cancelled: Option<Fd>,
    /// The calls of `poll_oneoff` before that, unless nothing else can happen.
    pub patience: usize,
    /// The addition to counts of events and of bytes written, for a host that miscounts. All
    /// awaited events then happen at once.
    pub lie: u32,
    /// The seed of random answers, if any.
    pub seed: Option<u64>,
    pub now: u64,
    pub polls: usize,
}

impl Default for World {
    fn default() -> World {
        World {
            streams: BTreeMap::new(),
            folders: Vec::new(),
            config: None,
            dialled: -1,
            accepted: -1,
            address: String::new(),
            cancelled: None,
            patience: usize::MAX,
            lie: 0,
            seed: None,
            now: 1,
            polls: 0,
        }
    }
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// Reads or changes the world of this thread.
pub fn world<T>(work: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(work)
}

impl World {
    /// A number in `0..end`.
    fn any(&mut self, end: u64) -> u64 {
        let state = self.seed.get_or_insert(1);
        // The generator of splitmix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// An occasional errno, if answers are random.
    fn whim(&mut self) -> Option<Errno> {
        self.seed?;
        const SOME: [Errno; 7] = [
            wasip1::ERRNO_AGAIN,
            wasip1::ERRNO_INTR,
            wasip1::ERRNO_INTR,
            wasip1::ERRNO_PIPE,
            wasip1::ERRNO_CONNRESET,
            wasip1::ERRNO_NOTCONN,
            wasip1::ERRNO_BADF,
        ];
        (self.any(12) == 0).then(|| SOME[self.any(7) as usize])
    }

    fn read(&mut self, fd: Fd, into: &Iovec) -> Result<u32, Errno> {
        if let Some(errno) = self.whim() {
            return Err(errno);
        }
        let next = match self.streams.get_mut(&fd) {
            Some(stream) => stream.reads.pop_front(),
            None => self
                .config
                .as_mut()
                .map(|config| config.pop_front().unwrap_or(Ok(vec![]))),
        };
        let data = match (next, self.seed) {
            (Some(next), _) => next?,
            (None, None) => return Err(wasip1::ERRNO_AGAIN),
            (None, Some(_)) => {
                let length = self.any(into.buf_len.min(3000) as u64 + 1);
                vec![b'x'; length as usize]
            }
        };
        let count = data.len().min(into.buf_len);
        // The whole buffer is written, so that Miri checks it, but the bytes behind the data are
        // uninitialized.
        let nothing = Vec::<u8>::with_capacity(into.buf_len);
        // SAFETY: the guest has this much room there, which is what Miri checks.
        unsafe {
            let room = into.buf.cast::<MaybeUninit<u8>>();
            room.copy_from_nonoverlapping(nothing.as_ptr().cast(), into.buf_len);
            into.buf.copy_from_nonoverlapping(data.as_ptr(), count);
        }
        if count < data.len()
            && let Some(stream) = self.streams.get_mut(&fd)
        {
            stream.reads.push_front(Ok(data[count..].to_vec()));
        }
        Ok(count as u32)
    }

    fn write(&mut self, fd: Fd, from: &Ciovec) -> Result<u32, Errno> {
        if let Some(errno) = self.whim() {
            return Err(errno);
        }
        let some = self
            .seed
            .map(|_| self.any(from.buf_len as u64 + 1) as usize);
        let stream = self.streams.entry(fd).or_default();
        let most = stream.takes.pop_front().unwrap_or(Ok(usize::MAX))?;
        let count = from.buf_len.min(most).min(some.unwrap_or(usize::MAX));
        // SAFETY: the guest has this much there, all of it initialized.
        let data = unsafe { std::slice::from_raw_parts(from.buf, from.buf_len) };
        stream.written.extend_from_slice(&data[..count]);
        Ok(count as u32 + self.lie)
    }

    /// The events of subscriptions: those other than the clock's if there are any, and the control
    /// pipe's in the end.
    fn poll(&mut self, wanted: &[Subscription]) -> Vec<Event> {
        self.polls += 1;
        if self.lie > 0 {
            let all = wanted.iter();
            return all
                .map(|wanted| event(wanted, wasip1::ERRNO_SUCCESS))
                .collect();
        }
        let cancelled = self.polls > self.patience;
        let mut ready = Vec::new();
        for subscription in wanted {
            let tag = subscription.u.tag;
            if tag == EVENTTYPE_CLOCK.raw() {
                continue;
            }
            // SAFETY: the tag says which one it is, and both have the same shape.
            let fd = unsafe { subscription.u.u.fd_read.file_descriptor };
            let control = self.cancelled == Some(fd);
            let quiet = tag == EVENTTYPE_FD_READ.raw()
                && self.seed.is_none()
                && self
                    .streams
                    .get(&fd)
                    .is_some_and(|stream| stream.reads.is_empty());
            if control && !cancelled || !control && quiet {
                continue;
            }
            let skipped = self.seed.is_some() && !control && self.any(3) == 0;
            if !skipped {
                let error = match control {
                    true => wasip1::ERRNO_SUCCESS,
                    false => self.whim().unwrap_or(wasip1::ERRNO_SUCCESS),
                };
                ready.push(event(subscription, error));
            }
        }
        if ready.is_empty() {
            // Only time passes now, and then the host's patience ends.
            for subscription in wanted {
                if subscription.u.tag == EVENTTYPE_CLOCK.raw() {
                    // SAFETY: the tag says so.
                    let timeout = unsafe { subscription.u.u.clock.timeout };
                    self.now = self.now.saturating_add(timeout.max(1));
                    ready.push(event(subscription, wasip1::ERRNO_SUCCESS));
                }
            }
        }
        self.now = self.now.saturating_add(1_000_000);
        if ready.is_empty() && !cancelled && self.cancelled.is_some() {
            self.patience = 0;
            return self.poll(wanted);
        }
        ready
    }
}

fn event(subscription: &Subscription, error: Errno) -> Event {
    const TYPES: [wasip1::Eventtype; 3] = [
        EVENTTYPE_CLOCK,
        EVENTTYPE_FD_READ,
        wasip1::EVENTTYPE_FD_WRITE,
    ];
    Event {
        userdata: subscription.userdata,
        error,
        type_: TYPES[usize::from(subscription.u.tag)],
        fd_readwrite: EventFdReadwrite {
            nbytes: 1,
            flags: 0,
        },
    }
}

/// A pointer to a value in the guest's memory.
fn at<T>(address: i32) -> *mut T {
    with_exposed_provenance::<T>(address as u32 as usize).cast_mut()
}

/// Writes a result to the guest's memory, and returns its errno.
fn answer<T>(result: Result<T, Errno>, place: i32) -> i32 {
    match result {
        Ok(value) => {
            // SAFETY: the guest has room for one there, which is what Miri checks.
            unsafe { at::<T>(place).write(value) };
            0
        }
        Err(errno) => i32::from(errno.raw()),
    }
}

#[unsafe(no_mangle)]
extern "C" fn fd_read(fd: i32, slices: i32, count: i32, place: i32) -> i32 {
    assert_eq!(count, 1);
    // SAFETY: the guest has one there.
    let slice = unsafe { at::<Iovec>(slices).read() };
    answer(world(|world| world.read(fd as Fd, &slice)), place)
}

#[unsafe(no_mangle)]
extern "C" fn fd_write(fd: i32, slices: i32, count: i32, place: i32) -> i32 {
    assert_eq!(count, 1);
    // SAFETY: the guest has one there.
    let slice = unsafe { at::<Ciovec>(slices).read() };
    answer(world(|world| world.write(fd as Fd, &slice)), place)
}

#[unsafe(no_mangle)]
extern "C" fn fd_close(_fd: i32) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn fd_fdstat_set_flags(fd: i32, flags: i32) -> i32 {
    assert_eq!(flags, i32::from(wasip1::FDFLAGS_NONBLOCK));
    world(|world| {
        world.streams.entry(fd as Fd).or_default();
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn sock_shutdown(fd: i32, how: i32) -> i32 {
    world(|world| {
        if let Some(errno) = world.whim() {
            return i32::from(errno.raw());
        }
        world.streams.entry(fd as Fd).or_default().shut |= how as u8;
        0
    })
}

#[unsafe(no_mangle)]
extern "C" fn clock_time_get(_id: i32, _precision: i64, place: i32) -> i32 {
    answer(Ok(world(|world| world.now)), place)
}

#[unsafe(no_mangle)]
extern "C" fn fd_prestat_get(fd: i32, place: i32) -> i32 {
    let folder = world(|world| world.folders.get(fd as usize - 3).copied());
    let prestat = folder.ok_or(wasip1::ERRNO_BADF).map(|folder| Prestat {
        tag: 0,
        u: PrestatU {
            dir: PrestatDir {
                pr_name_len: folder.len(),
            },
        },
    });
    answer(prestat, place)
}

#[unsafe(no_mangle)]
extern "C" fn fd_prestat_dir_name(fd: i32, place: i32, length: i32) -> i32 {
    let folder = world(|world| world.folders[fd as usize - 3]);
    assert_eq!(folder.len(), length as usize);
    // SAFETY: the guest has this much room there.
    unsafe { at::<u8>(place).copy_from_nonoverlapping(folder.as_ptr(), folder.len()) };
    0
}

#[unsafe(no_mangle)]
#[expect(clippy::too_many_arguments, reason = "as WASI has it")]
extern "C" fn path_open(
    _folder: i32,
    _lookup: i32,
    path: i32,
    length: i32,
    _flags: i32,
    _rights: i64,
    _inherited: i64,
    _descriptor: i32,
    place: i32,
) -> i32 {
    // SAFETY: the guest has this much there.
    let path = unsafe { std::slice::from_raw_parts(at::<u8>(path), length as usize) };
    assert!(path.ends_with(b"watm.cfg"));
    let there = world(|world| world.config.is_some());
    answer(there.then_some(99u32).ok_or(wasip1::ERRNO_NOENT), place)
}

#[unsafe(no_mangle)]
extern "C" fn poll_oneoff(wanted: i32, events: i32, count: i32, place: i32) -> i32 {
    let errno = world(|world| (world.any_errno()).then_some(wasip1::ERRNO_INTR));
    if let Some(errno) = errno {
        return i32::from(errno.raw());
    }
    // SAFETY: the guest has this many there, all of them initialized.
    let wanted = unsafe { std::slice::from_raw_parts(at::<Subscription>(wanted), count as usize) };
    let happened = world(|world| world.poll(wanted));
    assert!(!happened.is_empty(), "the guest waits for ever");
    for (index, event) in happened.iter().enumerate() {
        // SAFETY: the guest has room for as many as it wants.
        unsafe { at::<Event>(events).add(index).write(*event) };
    }
    answer(Ok(happened.len() as u32 + world(|world| world.lie)), place)
}

impl World {
    /// Returns true if a call is interrupted, which only random answers do.
    fn any_errno(&mut self) -> bool {
        self.seed.is_some() && self.any(10) == 0
    }
}

#[unsafe(no_mangle)]
extern "C" fn water_dial_fixed() -> i32 {
    world(|world| world.dialled)
}

#[unsafe(no_mangle)]
extern "C" fn water_accept() -> i32 {
    world(|world| world.accepted)
}

#[unsafe(no_mangle)]
extern "C" fn water_dial(
    network: *const Ciovec,
    networks: usize,
    address: *const Ciovec,
    addresses: usize,
) -> i32 {
    assert_eq!((networks, addresses), (1, 1));
    let text = |slice: *const Ciovec| {
        // SAFETY: the guest has one slice there, of a text.
        let bytes = unsafe { std::slice::from_raw_parts((*slice).buf, (*slice).buf_len) };
        String::from_utf8(bytes.to_vec()).expect("text")
    };
    assert_eq!(text(network), "tcp");
    world(|world| {
        world.address = text(address);
        world.dialled
    })
}
