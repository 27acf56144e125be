//! Functions that differ by operating system: signals, descriptors, and kernel settings. Used
//! throughout the crate.

#[cfg(unix)]
pub(crate) use unix::{
    Forwarded, LocalStream, Signals, close_output, effective_capabilities, end_requested,
    kernel_setting, lacks_descriptors, most_descriptors, raise_descriptors,
};

#[cfg(not(unix))]
pub(crate) use elsewhere::{
    Forwarded, LocalStream, Signals, close_output, effective_capabilities, end_requested,
    kernel_setting, lacks_descriptors, most_descriptors, raise_descriptors,
};

/// The allocator, which returns memory that modules made the host use. glibc's allocator holds two
/// to five times as much, in pieces of all sizes: see `tests/hostile/README.md`.
#[cfg(target_os = "linux")]
pub type Allocator = mimalloc::MiMalloc;

/// The system's allocator. On macOS, mimalloc needs a header of Apple's SDK. On Windows, it learns of
/// a thread's end by a section that only Microsoft's linker makes.
#[cfg(not(target_os = "linux"))]
pub type Allocator = std::alloc::System;

/// The program's allocator.
#[cfg(target_os = "linux")]
pub const ALLOCATOR: Allocator = mimalloc::MiMalloc;

/// The program's allocator.
#[cfg(not(target_os = "linux"))]
pub const ALLOCATOR: Allocator = std::alloc::System;

/// True if the system can connect from addresses of other machines, as transparent upstreams do.
pub(crate) const HAS_TRANSPARENT_CONNECTIONS: bool = cfg!(target_os = "linux");

/// The meaning of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The program must end.
    End,
    /// The program must reload its configuration.
    Reload,
}

#[cfg(unix)]
mod unix {
    use std::fs::OpenOptions;
    use std::future::poll_fn;
    use std::io;
    use std::mem::ManuallyDrop;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::task::Poll;

    use rustix::io::Errno;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    pub(crate) use tokio::net::UnixStream as LocalStream;
    use tokio::signal::unix::{self, SignalKind, signal};

    use super::Signal;
    use crate::failure::Failure;

    /// SIGINT, SIGTERM and SIGHUP, caught since this was made.
    pub(crate) struct Signals([(unix::Signal, Signal); 3]);

    impl Signals {
        pub(crate) fn new() -> Result<Signals, Failure> {
            let caught = |kind| {
                signal(kind)
                    .map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))
            };
            Ok(Signals([
                (caught(SignalKind::interrupt())?, Signal::End),
                (caught(SignalKind::terminate())?, Signal::End),
                (caught(SignalKind::hangup())?, Signal::Reload),
            ]))
        }

        pub(crate) async fn next(&mut self) -> Signal {
            poll_fn(|cx| {
                let mut signals = self.0.iter_mut();
                let came = signals
                    .find_map(|(signal, means)| signal.poll_recv(cx).is_ready().then_some(*means));
                came.map_or(Poll::Pending, Poll::Ready)
            })
            .await
        }
    }

    /// The signals that the program of `tunnel --exec` gets from whoever sends them to this process.
    pub(crate) struct Forwarded([(unix::Signal, SignalKind); 6]);

    impl Forwarded {
        /// Catches them from now on.
        pub(crate) fn new() -> Result<Forwarded, Failure> {
            let caught = |kind| {
                signal(kind)
                    .map(|caught| (caught, kind))
                    .map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))
            };
            Ok(Forwarded([
                caught(SignalKind::terminate())?,
                caught(SignalKind::hangup())?,
                caught(SignalKind::user_defined1())?,
                caught(SignalKind::user_defined2())?,
                caught(SignalKind::interrupt())?,
                caught(SignalKind::quit())?,
            ]))
        }

        /// Returns the number of the next one. A terminal sends its own to the program too.
        pub(crate) async fn next(&mut self) -> i32 {
            loop {
                let kind = poll_fn(|cx| {
                    let mut signals = self.0.iter_mut();
                    let came = signals.find_map(|(signal, kind)| {
                        signal.poll_recv(cx).is_ready().then_some(*kind)
                    });
                    came.map_or(Poll::Pending, Poll::Ready)
                })
                .await;
                let of_terminal = [SignalKind::interrupt(), SignalKind::quit()].contains(&kind);
                if !of_terminal || !watm_launch::has_terminal() {
                    return kind.as_raw_value();
                }
            }
        }
    }

    /// Raises the limit on descriptors as far as the system allows.
    pub(crate) fn raise_descriptors() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        // An error leaves the limit as it is.
        let _ = setrlimit(Resource::Nofile, raised);
    }

    /// Returns the limit on descriptors; `None` means unlimited.
    pub(crate) fn most_descriptors() -> Option<u64> {
        getrlimit(Resource::Nofile).maximum
    }

    /// Returns true if this error means that the process, or the system, has no descriptors left.
    pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        matches!(errno, Some(Errno::MFILE | Errno::NFILE))
    }

    /// Returns the bits of this process's effective capabilities(7), where the system has such.
    pub(crate) fn effective_capabilities() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mut lines = status.lines();
        let bits = lines.find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(bits.trim(), 16).ok()
    }

    /// Returns a kernel setting by its name, such as `net/ipv4/tcp_fwmark_accept`, where the system
    /// has such.
    pub(crate) fn kernel_setting(name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        text.trim().parse().ok()
    }

    /// Closes standard output for its reader, while the program continues.
    pub(crate) fn close_output() -> io::Result<()> {
        const OUTPUT: i32 = 1;
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        // SAFETY: this value does not close the descriptor, which stays open: another file takes
        // its place.
        let mut output = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(OUTPUT) });
        Ok(rustix::io::dup2(nowhere, &mut output)?)
    }

    /// Returns a future of the next SIGINT or SIGTERM, both caught from this call on.
    pub(crate) fn end_requested() -> io::Result<impl Future<Output = ()>> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::io;
    use std::path::Path;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::Signal;
    use crate::failure::Failure;

    /// Does nothing: the reader notices the end of the program.
    pub(crate) fn close_output() -> io::Result<()> {
        Ok(())
    }

    /// Waits for Ctrl-C; forever if it cannot be caught.
    pub(crate) fn end_requested() -> io::Result<impl Future<Output = ()>> {
        Ok(async {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending().await
            }
        })
    }

    /// Ctrl-C, caught while this is awaited.
    pub(crate) struct Signals(());

    impl Signals {
        pub(crate) fn new() -> Result<Signals, Failure> {
            Ok(Signals(()))
        }

        pub(crate) async fn next(&mut self) -> Signal {
            match end_requested() {
                Ok(requested) => requested.await,
                Err(_) => std::future::pending().await,
            }
            Signal::End
        }
    }

    /// The signals of a program of `tunnel --exec`, which this system does not run.
    pub(crate) struct Forwarded(());

    impl Forwarded {
        pub(crate) fn new() -> Result<Forwarded, Failure> {
            Ok(Forwarded(()))
        }

        pub(crate) async fn next(&mut self) -> i32 {
            std::future::pending().await
        }
    }

    /// Does nothing: the system has no such limit.
    pub(crate) fn raise_descriptors() {}

    pub(crate) fn most_descriptors() -> Option<u64> {
        None
    }

    /// Compares with WSAEMFILE.
    pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
        error.raw_os_error() == Some(10024)
    }

    pub(crate) fn effective_capabilities() -> Option<u64> {
        None
    }

    pub(crate) fn kernel_setting(_: &str) -> Option<u64> {
        None
    }

    /// A stream to a socket with a path, which tokio does not support here.
    pub(crate) enum LocalStream {}

    impl LocalStream {
        pub(crate) async fn connect(_: &Path) -> io::Result<LocalStream> {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "Unix sockets are not supported on this system",
            ))
        }
    }

    impl watm_runtime::UpstreamStream for LocalStream {
        fn reset(&self) {
            match *self {}
        }
    }

    impl AsyncRead for LocalStream {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl AsyncWrite for LocalStream {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            match *self {}
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }
}
