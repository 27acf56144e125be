//! The time for which a server's thread keeps a core that another thread waits for. Each server's
//! thread calls [`begin`] first, and the hosts call [`look`] while a module works on it.
//!
//! Linux from 6.12 on takes such a time from each thread (EEVDF, sched_setattr(2)): a thread that
//! wakes up gets the core at once if its own time is shorter, and all threads keep their share of it.
//! So a thread that mostly waits asks for a short time, and answers soon. A thread that works for
//! milliseconds at a time asks for a long one, and yields to each thread that wakes up. Otherwise that
//! one waits until the next tick of the kernel, which is up to 4 ms away.
//!
//! It asks for a short time again once it has not worked so for a while: a module that is held to a
//! share of a core works and rests in turns.
//!
//! Earlier versions accept the request and ignore it. A thread of a policy other than SCHED_OTHER
//! keeps what its user chose. Nothing happens on other systems.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use linux::{begin, look};

/// Does nothing here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn begin() {}

/// Does nothing here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn look(_: std::time::Instant) {}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    use cpu_time::ThreadTime;

    /// The slice of a thread that waits, in nanoseconds: the shortest that Linux gives.
    const SHORT: u64 = 100_000;

    /// The slice of a thread that works for long, in nanoseconds: several times that of other
    /// programs, which is 0.7 to 2.8 ms.
    const LONG: u64 = 20_000_000;

    /// The time over which a thread's work is measured.
    const WINDOW: Duration = Duration::from_millis(2);

    /// The share of a window, in percent, from which a thread works for long.
    const BUSY: u128 = 80;

    /// The time for which it has a long slice after such a window.
    const MEMORY: Duration = Duration::from_millis(100);

    thread_local! {
        /// The work of this thread; `None` if its user chose its slice.
        static WORK: Cell<Option<Work>> = const { Cell::new(None) };
    }

    /// The work of a thread since the begin of a window.
    #[derive(Clone, Copy)]
    struct Work {
        since: Instant,
        /// The thread's clock then.
        used: Duration,
        /// The end of the last window that was busy.
        busy: Option<Instant>,
    }

    /// Begins to choose the slices of this thread.
    pub fn begin() {
        if request(SHORT) {
            WORK.set(Some(Work {
                since: Instant::now(),
                used: thread_time(),
                busy: None,
            }));
        }
    }

    /// Chooses the slice of this thread by its work since the last window. Within a window, and on a
    /// thread that has not begun, it only compares.
    pub fn look(now: Instant) {
        let Some(before) = WORK.get() else {
            return;
        };
        let passed = now.saturating_duration_since(before.since);
        if passed < WINDOW {
            return;
        }
        let work = before.after(passed, thread_time());
        let long = work.works_for_long();
        if long != before.works_for_long() {
            request(if long { LONG } else { SHORT });
        }
        WORK.set(Some(work));
    }

    impl Work {
        /// Returns the begin of the next window, after this one has taken `passed`.
        fn after(self, passed: Duration, used: Duration) -> Work {
            let share = used.saturating_sub(self.used).as_nanos() * 100 / passed.as_nanos().max(1);
            let since = self.since + passed;
            let busy = if share >= BUSY {
                Some(since)
            } else {
                self.busy
            };
            Work { since, used, busy }
        }

        /// Returns true if a window was busy lately.
        fn works_for_long(self) -> bool {
            self.busy.is_some_and(|busy| self.since < busy + MEMORY)
        }
    }

    fn thread_time() -> Duration {
        ThreadTime::now().as_duration()
    }

    /// Asks for a slice of this thread, in nanoseconds. Returns false if the thread's policy has none, or
    /// the system forbids it.
    fn request(slice: u64) -> bool {
        let Some(attributes) = attributes() else {
            return false;
        };
        if attributes.policy != libc::SCHED_OTHER as u32 {
            return false;
        }
        let wanted = SchedAttr {
            runtime: slice,
            ..attributes
        };
        // SAFETY: the structure is as long as it says, and the kernel only reads it.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) == 0 }
    }

    fn attributes() -> Option<SchedAttr> {
        // SAFETY: these are integers.
        let mut attributes: SchedAttr = unsafe { std::mem::zeroed() };
        let size = size_of::<SchedAttr>() as libc::c_uint;
        // SAFETY: the kernel writes no more than `size` bytes.
        let got =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        (got == 0).then_some(attributes)
    }

    /// The first version of the kernel's `struct sched_attr`, which every kernel takes
    /// (sched_setattr(2)).
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        /// The slice of SCHED_OTHER, in nanoseconds.
        runtime: u64,
        deadline: u64,
        period: u64,
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Looks after a window in which this thread worked for so long, and returns its slice.
        fn slice_after(worked: Duration, window: Duration, busy: Option<Instant>) -> u64 {
            while thread_time() < worked {}
            let now = Instant::now();
            WORK.set(Some(Work {
                since: now - window,
                used: thread_time() - worked,
                busy,
            }));
            look(now);
            attributes().expect("a thread").runtime
        }

        #[test]
        fn a_thread_that_works_for_long_has_a_long_slice() {
            let slices = std::thread::spawn(|| {
                begin();
                let begun = attributes().expect("a thread").runtime;
                let busy = slice_after(WINDOW, WINDOW, None);
                let ago = Instant::now();
                (
                    begun,
                    busy,
                    slice_after(Duration::ZERO, MEMORY, ago.checked_sub(MEMORY)),
                )
            });
            // Kernels before 6.12 have no slices, and say 0.
            match slices.join().unwrap() {
                (0, 0, 0) => {}
                found => assert_eq!(found, (SHORT, LONG, SHORT)),
            }
        }

        #[test]
        fn a_thread_that_has_not_begun_is_left_alone() {
            let slices = std::thread::spawn(|| {
                let before = attributes().expect("a thread").runtime;
                look(Instant::now() + 2 * WINDOW);
                (before, attributes().expect("a thread").runtime)
            });
            let (before, after) = slices.join().unwrap();
            assert_eq!(before, after);
        }

        #[test]
        fn the_share_of_a_window_decides() {
            let work = Work {
                since: Instant::now(),
                used: Duration::from_secs(1),
                busy: None,
            };
            for (percent, then) in [(79, false), (80, true)] {
                let used = work.used + Duration::from_millis(percent);
                let after = work.after(Duration::from_millis(100), used);
                assert_eq!(after.works_for_long(), then, "{percent}");
                assert_eq!(after.used, used);
            }
        }

        #[test]
        fn work_is_remembered_while_a_thread_rests_in_between() {
            let busy = Work {
                since: Instant::now(),
                used: Duration::ZERO,
                busy: Some(Instant::now()),
            };
            let rested = busy.after(MEMORY / 2, Duration::ZERO);
            assert!(rested.works_for_long());
            let rested = rested.after(MEMORY, Duration::ZERO);
            assert!(!rested.works_for_long());
        }
    }
}
