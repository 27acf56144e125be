//! The hostile WATER guest, and its kinds of calls.

use watm_test_random::Random;

use crate::imports::*;

/// The number of kinds of calls.
const KINDS: u64 = 12;

/// The memory that the host reads and writes: lists of parts, subscriptions, events, results,
/// texts, and data. Offsets are in bytes from its start.
const PLACE: usize = 1 << 20;
const LIST: u32 = 0;
const SUBSCRIPTIONS: u32 = 16 << 10;
const EVENTS: u32 = 80 << 10;
const RESULT: u32 = 120 << 10;
const TEXT: u32 = 124 << 10;
const DATA: u32 = 128 << 10;

/// Sizes at which behaviour changes.
const SIZES: [u32; 10] = [
    0,
    1,
    255,
    4096,
    16_384,
    65_527,
    65_536,
    256 << 10,
    896 << 10,
    2 << 20,
];
/// Counts of parts and subscriptions: the host accepts 1024, and 16 of them in one write.
const COUNTS: [u32; 8] = [0, 1, 2, 16, 17, 1024, 1025, u32::MAX];

/// The most bytes of the configuration that are read.
const LONGEST: u32 = 16 << 10;

/// The size of a `subscription`, and its kinds.
const SUBSCRIPTION: u32 = 48;
const CLOCK: u8 = 0;

/// The flag of a descriptor that answers in place of waiting.
const NONBLOCKING: u32 = 4;

/// The directory of the configuration, and the file in it.
const DIRECTORY: i32 = 3;
const CONFIG: &[u8] = b"watm.cfg";

/// The state of the module.
pub struct Guest {
    random: Random,
    place: u32,
    grown: usize,
}

impl Guest {
    /// Reads its choices from its file. Fails without one.
    pub fn new() -> Result<Guest, i32> {
        // It lives as long as the instance.
        let place = Box::leak(vec![7_u8; PLACE].into_boxed_slice()).as_mut_ptr() as u32;
        let mut guest = Guest {
            random: Random::new(0),
            place,
            grown: 0,
        };
        guest.random = guest.read_choices()?;
        Ok(guest)
    }

    fn read_choices(&mut self) -> Result<Random, i32> {
        const INVALID: i32 = -28;
        self.write(TEXT, CONFIG);
        let (text, out) = (self.at(TEXT), self.at(RESULT));
        match path_open(DIRECTORY, 0, text, CONFIG.len() as u32, 0, 2, 0, 0, out) {
            0 => {}
            errno => return Err(-errno),
        }
        let file = self.read_u32(RESULT) as i32;
        self.set_part(0, self.at(DATA), LONGEST);
        match fd_read(file, self.at(LIST), 1, out) {
            0 => {}
            errno => return Err(-errno),
        }
        let count = self.read_u32(RESULT).min(LONGEST);
        let bytes: Vec<u8> = (0..count).map(|index| self.read_u8(DATA + index)).collect();
        Random::parse(bytes.leak()).ok_or(INVALID)
    }

    /// Reads the first byte of a client, which chooses among the seed's choices: connections
    /// differ, and each can be repeated.
    pub fn hear(&mut self, net: i32) {
        if self.random.is_of_bytes() {
            return;
        }
        let (list, out) = (self.at(LIST), self.at(RESULT));
        self.set_part(0, self.at(DATA), 1);
        if fd_read(net, list, 1, out) == 0 {
            let number = self.read_u8(DATA);
            for _ in 0..number {
                self.random.number();
            }
        }
    }

    /// Makes calls without end, unless one of them ends it.
    pub fn work(&mut self) -> i32 {
        // The descriptors that block are chosen at random.
        for fd in 4..16 {
            if !self.random.one_in(4) {
                fd_fdstat_set_flags(fd, NONBLOCKING);
            }
        }
        while !self.random.is_over() {
            let kind = self.random.kind(KINDS);
            if let Some(result) = self.act(kind) {
                return result;
            }
        }
        0
    }

    /// Makes a call. Returns the module's result, if it ends.
    fn act(&mut self, kind: u64) -> Option<i32> {
        match kind {
            0 => self.read_parts(),
            1 => self.write_parts(),
            2 => self.poll(),
            3 => self.print(),
            4 => self.call_with_anything(),
            5 => self.change_descriptors(),
            6 => self.use_files(),
            7 => self.want_randomness(),
            8 => self.grow(),
            9 => self.spin(),
            10 => self.connect(),
            _ => return self.fail(),
        }
        None
    }

    /// Returns a descriptor, mostly one that exists.
    fn fd(&mut self) -> i32 {
        match self.random.one_in(10) {
            true => self.random.number() as i32,
            false => self.random.below(9) as i32,
        }
    }

    /// Returns a pointer, mostly within the place, or else near the end of the memory, or beyond.
    fn pointer(&mut self, usual: u32) -> u32 {
        match self.random.below(20) {
            0 => u32::MAX - self.random.below(16) as u32,
            1 => self.place + (PLACE as u32) * 64,
            2 => self.at(usual) + 1,
            _ => self.at(usual),
        }
    }

    /// Writes a list of parts at its place. Returns their number.
    fn parts(&mut self) -> u32 {
        let count = self.random.of(COUNTS);
        let (length, same) = (self.random.of(SIZES), self.random.one_in(2));
        for index in 0..count.min(1025) {
            let pointer = match self.random.one_in(500) {
                true => self.random.number() as u32,
                false => self.at(DATA),
            };
            let length = match same {
                true => length,
                false => self.random.of(SIZES),
            };
            // A part must not overlap the rest of the guest, which would end it soon.
            let within = length.min(PLACE as u32 - DATA);
            let length = match self.random.one_in(50) {
                true => u32::MAX,
                false => within,
            };
            self.set_part(index, pointer, length);
        }
        count
    }

    fn read_parts(&mut self) {
        let (fd, count) = (self.fd(), self.parts());
        let (list, out) = (self.pointer(LIST), self.pointer(RESULT));
        match self.random.one_in(3) {
            true => sock_recv(
                fd,
                list,
                count,
                self.random.below(3) as u32,
                out,
                self.at(RESULT) + 8,
            ),
            false => fd_read(fd, list, count, out),
        };
    }

    fn write_parts(&mut self) {
        let (fd, count) = (self.fd(), self.parts());
        let (list, out) = (self.pointer(LIST), self.pointer(RESULT));
        match self.random.one_in(3) {
            true => sock_send(fd, list, count, self.random.below(3) as u32, out),
            false => fd_write(fd, list, count, out),
        };
    }

    /// Polls, mostly for events that are ready at once.
    fn poll(&mut self) {
        let count = self.random.of(COUNTS);
        for index in 0..count.min(1024) {
            let at = SUBSCRIPTIONS + index * SUBSCRIPTION;
            let kind = match self.random.one_in(100) {
                true => self.random.number() as u8,
                false => self.random.below(3) as u8,
            };
            self.write(at, &[0; SUBSCRIPTION as usize]);
            let userdata = self.random.number();
            self.write(at, &userdata.to_le_bytes());
            self.write(at + 8, &[kind]);
            let what = match kind {
                CLOCK => self.random.below(3) as u32,
                _ => self.fd() as u32,
            };
            self.write(at + 16, &what.to_le_bytes());
            let timeout = self.random.of([0, 0, 0, 1, 1_000_000, u64::MAX]);
            self.write(at + 24, &timeout.to_le_bytes());
            let flags = self.random.below(3) as u8;
            self.write(at + 40, &[flags]);
        }
        let (subscriptions, events) = (self.pointer(SUBSCRIPTIONS), self.pointer(EVENTS));
        poll_oneoff(subscriptions, events, count, self.pointer(RESULT));
    }

    /// Prints lines of any length, and parts of lines.
    fn print(&mut self) {
        for at in 0..64 {
            if self.random.one_in(4) {
                self.write(DATA + at * 1000, b"\n");
            }
        }
        let (fd, count) = (1 + self.random.below(2) as i32, self.parts());
        fd_write(fd, self.at(LIST), count, self.at(RESULT));
    }

    fn call_with_anything(&mut self) {
        let fd = self.fd();
        let [a, b] = [self.pointer(DATA), self.pointer(RESULT)];
        let (number, long) = (self.random.of(SIZES), self.random.number());
        match self.random.below(16) {
            0 => args_get(a, b),
            1 => environ_sizes_get(a, b),
            2 => clock_res_get(number, b),
            3 => clock_time_get(number & 3, long, b),
            4 => fd_advise(fd, long, long, number),
            5 => fd_allocate(fd, long, long),
            6 => fd_fdstat_get(fd, b),
            7 => fd_filestat_get(fd, b),
            8 => fd_prestat_get(fd, b),
            9 => fd_prestat_dir_name(fd, a, number.min(1000)),
            10 => fd_readdir(fd, a, number, long, b),
            11 => fd_tell(fd, b),
            12 => fd_seek(fd, long.cast_signed(), number & 3, b),
            13 => path_filestat_get(fd, number, a, number, b),
            14 => water_dial(a, number, b, number),
            _ => sched_yield(),
        };
    }

    fn change_descriptors(&mut self) {
        let (fd, other) = (self.fd(), self.fd());
        match self.random.below(200) {
            0 => fd_close(fd),
            1 => fd_renumber(fd, other),
            2 => sock_shutdown(fd, self.random.below(5) as u32),
            3..20 => fd_fdstat_set_flags(fd, self.random.of([0, NONBLOCKING, u32::MAX])),
            // Descriptors of its own.
            _ => fd_close(9 + self.random.below(60) as i32),
        };
    }

    /// Opens files until there is no room.
    fn use_files(&mut self) {
        self.write(TEXT, CONFIG);
        let len = match self.random.one_in(10) {
            true => self.random.of(SIZES),
            false => CONFIG.len() as u32,
        };
        let (text, out) = (self.pointer(TEXT), self.pointer(RESULT));
        let flags = self.random.below(4) as u32;
        path_open(
            DIRECTORY,
            flags,
            text,
            len,
            flags,
            self.random.number(),
            0,
            0,
            out,
        );
        let (fd, count) = (self.random.below(64) as i32, self.parts());
        fd_pread(
            fd,
            self.at(LIST),
            count,
            self.random.number() >> self.random.below(64),
            out,
        );
        if self.random.one_in(50) {
            for fd in 9..64 {
                fd_close(fd);
            }
        }
    }

    fn want_randomness(&mut self) {
        let size = self.random.of(SIZES).min(PLACE as u32 - DATA);
        random_get(self.pointer(DATA), size);
    }

    /// Grows its memory up to the limit.
    fn grow(&mut self) {
        let size = self.random.of(SIZES) as usize;
        let mut more = Vec::<u8>::new();
        if more.try_reserve_exact(size).is_ok() {
            more.resize(size, 1);
            self.grown += more.len();
            // It stays until the instance ends.
            std::mem::forget(more);
        }
        self.write_parts();
    }

    /// Computes, with or without calls in between that cost the host something.
    fn spin(&mut self) {
        for round in 0..10_000 {
            if round % 100 == 0 && self.random.one_in(2) {
                clock_time_get(1, 0, self.at(RESULT));
            }
            std::hint::black_box(round);
        }
    }

    fn connect(&mut self) {
        self.write(TEXT, b"udp127.0.0.1:9");
        match self.random.below(3) {
            0 => water_accept(),
            1 => water_dial_fixed(),
            _ => {
                self.set_part(0, self.at(TEXT), 3);
                self.set_part(1, self.at(TEXT) + 3, 11);
                water_dial(self.at(LIST), 1, self.at(LIST) + 8, 1)
            }
        };
    }

    /// Ends the instance now and then.
    fn fail(&mut self) -> Option<i32> {
        match self.random.below(4000) {
            0 => panic!("told to by the seed"),
            1 => proc_exit(self.random.below(3) as u32),
            2 => return Some(self.random.number() as i32),
            3 => return Some(0),
            4 => self.recurse(0),
            _ => self.spin(),
        }
        None
    }

    /// Recurses until the stack is exhausted.
    #[expect(unconditional_recursion, reason = "the host is to bound it")]
    fn recurse(&mut self, depth: u64) {
        std::hint::black_box([depth; 100]);
        self.recurse(depth + 1);
    }

    fn at(&self, offset: u32) -> u32 {
        self.place + offset
    }

    fn set_part(&self, index: u32, pointer: u32, length: u32) {
        self.write(LIST + index * 8, &pointer.to_le_bytes());
        self.write(LIST + index * 8 + 4, &length.to_le_bytes());
    }

    fn write(&self, offset: u32, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: all offsets here are within the place, which only the host uses.
            unsafe {
                (self.at(offset) as *mut u8)
                    .add(index)
                    .write_volatile(*byte)
            }
        }
    }

    fn read_u8(&self, offset: u32) -> u8 {
        // SAFETY: as above.
        unsafe { (self.at(offset) as *const u8).read_volatile() }
    }

    fn read_u32(&self, offset: u32) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|index| self.read_u8(offset + index)))
    }
}
