//! What only one kind of operating system can do, or each does differently.

#[cfg(unix)]
pub(crate) use unix::{
    LocalStream, Signals, close_output, effective_capabilities, end_requested, kernel_setting,
    lacks_descriptors, most_descriptors, raise_descriptors,
};

#[cfg(not(unix))]
pub(crate) use elsewhere::{
    LocalStream, Signals, close_output, effective_capabilities, end_requested, kernel_setting,
    lacks_descriptors, most_descriptors, raise_descriptors,
};

/// What somebody wants of a program that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// To end.
    End,
    /// To read its configuration again.
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

    /// SIGINT, SIGTERM and SIGHUP, from when this was made.
    pub(crate) struct Signals([(unix::Signal, Signal); 3]);

    impl Signals {
        pub(crate) fn new() -> Result<Signals, Failure> {
            let caught = |kind| {
                signal(kind)
                    .map_err(|error| Failure::failed(format!("no signal can be caught: {error}")))
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

    /// Have as many descriptors as the system lets this program take.
    pub(crate) fn raise_descriptors() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        // Those that there are have to do.
        let _ = setrlimit(Resource::Nofile, raised);
    }

    /// How many that is; `None`: there is no limit.
    pub(crate) fn most_descriptors() -> Option<u64> {
        getrlimit(Resource::Nofile).maximum
    }

    /// Whether this error says that the process, or the system, has no descriptors left.
    pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        matches!(errno, Some(Errno::MFILE | Errno::NFILE))
    }

    /// The bits of what this process may do beyond a user's (capabilities(7)), where the system
    /// has such.
    pub(crate) fn effective_capabilities() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mut lines = status.lines();
        let bits = lines.find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(bits.trim(), 16).ok()
    }

    /// A setting of the kernel's by its name, such as `net/ipv4/tcp_fwmark_accept`, where it has
    /// such.
    pub(crate) fn kernel_setting(name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        text.trim().parse().ok()
    }

    /// Tell whoever reads standard output that no more comes, while the program goes on.
    pub(crate) fn close_output() -> io::Result<()> {
        const OUTPUT: i32 = 1;
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        // SAFETY: the descriptor is not closed by this value, and stays open: another file
        // takes its place.
        let mut output = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(OUTPUT) });
        Ok(rustix::io::dup2(nowhere, &mut output)?)
    }

    /// Wait for SIGINT or SIGTERM, which are caught from this call on.
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

    /// The reader is told at the end of the program.
    pub(crate) fn close_output() -> io::Result<()> {
        Ok(())
    }

    /// Wait for Ctrl-C; for ever if it cannot be caught.
    pub(crate) fn end_requested() -> io::Result<impl Future<Output = ()>> {
        Ok(async {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending().await
            }
        })
    }

    /// Ctrl-C, from when this is waited for.
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

    /// There is no such limit.
    pub(crate) fn raise_descriptors() {}

    pub(crate) fn most_descriptors() -> Option<u64> {
        None
    }

    /// WSAEMFILE.
    pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
        error.raw_os_error() == Some(10024)
    }

    pub(crate) fn effective_capabilities() -> Option<u64> {
        None
    }

    pub(crate) fn kernel_setting(_: &str) -> Option<u64> {
        None
    }

    /// A stream to a socket with a path, which tokio does not have here.
    pub(crate) enum LocalStream {}

    impl LocalStream {
        pub(crate) async fn connect(_: &Path) -> io::Result<LocalStream> {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "sockets with paths are not supported on this system",
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
