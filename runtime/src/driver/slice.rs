//! The time for which a server's thread keeps a core that another thread waits for. Each server's
//! thread calls this as it begins.

/// Asks the operating system to run this thread in short slices. When the threads of two modules need
/// one core, a module that is always at work then delays the other one by a slice, and not by the 3 ms
/// that are usual.
///
/// Linux does so from 6.12 on; earlier versions accept the request and ignore it. A thread of a policy
/// other than SCHED_OTHER keeps what its user chose. Does nothing on other systems.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn shorten() {
    // SAFETY: these are integers.
    let mut attributes: SchedAttr = unsafe { std::mem::zeroed() };
    let size = size_of::<SchedAttr>() as libc::c_uint;
    // SAFETY: the kernel writes no more than `size` bytes.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 || attributes.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.runtime = SLICE;
    // SAFETY: the structure is as long as it says, and the kernel only reads it. A system that
    // forbids the call leaves the slice as it is.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn shorten() {}

/// The slice in nanoseconds: the shortest that Linux gives.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SLICE: u64 = 100_000;

/// The first version of the kernel's `struct sched_attr`, which every kernel takes (sched_setattr(2)).
#[cfg(any(target_os = "linux", target_os = "android"))]
#[repr(C)]
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    /// The kernel says what it took, as the last field of a line of `/proc/thread-self/sched` does too.
    #[test]
    fn the_kernel_takes_the_slice() {
        let thread = std::thread::spawn(|| {
            super::shorten();
            // SAFETY: as in `shorten`.
            let mut attributes: super::SchedAttr = unsafe { std::mem::zeroed() };
            let size = size_of::<super::SchedAttr>() as libc::c_uint;
            // SAFETY: as in `shorten`.
            let got =
                unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
            (got, attributes.runtime)
        });
        let (got, runtime) = thread.join().unwrap();
        assert_eq!(got, 0);
        // Kernels before 6.12 have no slices, and say 0.
        assert!(runtime == super::SLICE || runtime == 0, "{runtime}");
    }
}
