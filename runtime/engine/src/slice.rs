//! The time for which a server's thread keeps a core that another thread waits for. Each server's
//! thread calls [`begin`] first, and the hosts call [`look`] while a module works on it.
//!
//! Linux from 6.12 on takes such a time from each thread (EEVDF, sched_setattr(2)): a thread that
//! wakes up gets the core at once if its own time is shorter, and all threads keep their share of it.
//! So a thread that mostly waits asks for a short time, and answers soon. A thread that is always at
//! work asks for a long one, and yields to each thread that wakes up. Otherwise that one waits until
//! the next tick of the kernel, which is up to 4 ms away.
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

    /// The slice of a thread that is always at work, in nanoseconds: several times that of other
    /// programs, which is 0.7 to 2.8 ms.
    const LONG: u64 = 20_000_000;

    /// The time over which a thread's work is measured.
    const WINDOW: Duration = Duration::from_millis(10);

    /// The shares of a window, in percent, beyond which a thread is always at work, and below which
    /// it waits again.
    const ALWAYS: u128 = 80;
    const SELDOM: u128 = 50;

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
        always: bool,
    }

    /// Begins to choose the slices of this thread.
    pub fn begin() {
        if request(SHORT) {
            WORK.set(Some(Work {
                since: Instant::now(),
                used: thread_time(),
                always: false,
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
        if work.always != before.always {
            request(if work.always { LONG } else { SHORT });
        }
        WORK.set(Some(work));
    }

    impl Work {
        /// Returns the begin of the next window, after this one has taken `passed`.
        fn after(self, passed: Duration, used: Duration) -> Work {
            let share = used.saturating_sub(self.used).as_nanos() * 100 / passed.as_nanos().max(1);
            Work {
                since: self.since + passed,
                used,
                always: match self.always {
                    true => share >= SELDOM,
                    false => share >= ALWAYS,
                },
            }
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
        fn slice_after(worked: Duration, always: bool) -> u64 {
            while thread_time() < worked {}
            let now = Instant::now();
            WORK.set(Some(Work {
                since: now - WINDOW,
                used: thread_time() - worked,
                always,
            }));
            look(now);
            attributes().expect("a thread").runtime
        }

        #[test]
        fn a_thread_that_is_always_at_work_has_a_long_slice() {
            let slices = std::thread::spawn(|| {
                begin();
                let begun = attributes().expect("a thread").runtime;
                let busy = slice_after(WINDOW, false);
                (begun, busy, slice_after(Duration::ZERO, true))
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
            let work = |always| Work {
                since: Instant::now(),
                used: Duration::from_secs(1),
                always,
            };
            for (always, percent, then) in [
                (false, 79, false),
                (false, 80, true),
                (true, 50, true),
                (true, 49, false),
            ] {
                let used = Duration::from_secs(1) + Duration::from_millis(percent);
                let after = work(always).after(Duration::from_millis(100), used);
                assert_eq!(after.always, then, "{always} {percent}");
                assert_eq!(after.used, used);
            }
        }
    }
}
