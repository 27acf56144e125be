//! The question whether this process may make memory executable, which each system answers in its
//! own way. `Execution::choose` asks it.

/// Returns false if the system forbids machine code that is made at run time. It does so on Linux
/// under `MemoryDenyWriteExecute=` of systemd, `PR_SET_MDWE` and SELinux's `execmem`, and on macOS
/// under a hardened runtime without an entitlement. Not known on Windows, where only a process that
/// asks for it is restricted.
pub fn is_allowed() -> bool {
    system::is_allowed()
}

#[cfg(all(unix, not(target_os = "macos")))]
mod system {
    use std::ptr;

    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    /// Tries it with a page, as wasmtime does with code.
    pub(super) fn is_allowed() -> bool {
        let bytes = rustix::param::page_size();
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses the place, so that nothing else is there.
        let Ok(page) =
            (unsafe { mmap_anonymous(ptr::null_mut(), bytes, writable, MapFlags::PRIVATE) })
        else {
            return true;
        };
        let executable = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: the page was mapped above, and nothing refers to it.
        unsafe {
            let made = mprotect(page, bytes, executable);
            let _ = munmap(page, bytes);
            made.is_ok()
        }
    }
}

#[cfg(target_os = "macos")]
mod system {
    use std::ffi::c_void;

    unsafe extern "C" {
        /// Asks about the code signature of a process: libSystem, `sys/codesign.h` of XNU.
        fn csops(pid: i32, operation: u32, answer: *mut c_void, bytes: usize) -> i32;
    }

    const STATUS: u32 = 0;
    const ENTITLEMENTS: u32 = 7;
    /// `CS_RUNTIME`, a bit of the status.
    const HARDENED: u32 = 0x1_0000;
    /// Entitlements that allow the memory of wasmtime, which has no `MAP_JIT`.
    const ENOUGH: [&[u8]; 2] = [
        b"com.apple.security.cs.allow-unsigned-executable-memory",
        b"com.apple.security.cs.disable-executable-page-protection",
    ];
    /// More than the entitlements of any program have.
    const MOST_BYTES: usize = 1 << 16;

    /// Reads the signature. An attempt would end the process on macOS 26.
    pub(super) fn is_allowed() -> bool {
        let mut status = [0; 4];
        let hardened = ask(STATUS, &mut status) && u32::from_ne_bytes(status) & HARDENED != 0;
        if !hardened {
            return true;
        }
        let mut entitlements = vec![0; MOST_BYTES];
        ask(ENTITLEMENTS, &mut entitlements)
            && ENOUGH.iter().any(|name| {
                let mut places = entitlements.windows(name.len());
                places.any(|found| found == *name)
            })
    }

    fn ask(operation: u32, answer: &mut [u8]) -> bool {
        let this = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: the kernel writes at most `answer.len()` bytes.
        unsafe { csops(this, operation, answer.as_mut_ptr().cast(), answer.len()) == 0 }
    }
}

#[cfg(not(unix))]
mod system {
    pub(super) fn is_allowed() -> bool {
        true
    }
}
