//! What only one kind of operating system can do, or each does differently.

#[cfg(unix)]
pub(crate) use unix::{close_output, end_requested};

#[cfg(not(unix))]
pub(crate) use elsewhere::{close_output, end_requested};

#[cfg(unix)]
mod unix {
    use std::fs::OpenOptions;
    use std::io;
    use std::mem::ManuallyDrop;
    use std::os::fd::{FromRawFd, OwnedFd};

    use tokio::signal::unix::{SignalKind, signal};

    /// Tell whoever reads standard output that no more comes, while the program goes on.
    pub(crate) fn close_output() -> io::Result<()> {
        const OUTPUT: i32 = 1;
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        // SAFETY: the descriptor is not closed by this value, and stays open: another file
        // takes its place.
        let mut output = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(OUTPUT) });
        Ok(rustix::io::dup2(nowhere, &mut output)?)
    }

    /// Wait for SIGINT or SIGTERM.
    pub(crate) async fn end_requested() -> io::Result<()> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::io;

    /// The reader is told at the end of the program.
    pub(crate) fn close_output() -> io::Result<()> {
        Ok(())
    }

    /// Wait for Ctrl-C.
    pub(crate) async fn end_requested() -> io::Result<()> {
        tokio::signal::ctrl_c().await
    }
}
