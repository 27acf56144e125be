//! Runs the program below an init process, and forwards signals and the exit status. `helper` calls
//! it.

use std::ffi::c_int;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;

use super::BY_SIGNAL;
use super::helper::complain;
use super::sys::{Errno, check, fork, kill, mount};
use crate::Plan;

/// The signals that the program gets from whoever sends them to its parent.
const FORWARDED: [c_int; 8] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGALRM,
];

/// The exit statuses of shells for a program that cannot be run, and for one that does not exist.
const NOT_RUNNABLE: c_int = 126;
const NOT_FOUND: c_int = 127;

/// Blocks the signals that are read from a descriptor.
pub fn block_signals() {
    mask(libc::SIG_BLOCK);
}

/// Changes whether the handled signals are blocked. It fails for an unknown way alone.
fn mask(way: c_int) {
    let set = handled();
    // SAFETY: the set lives until the call returns, and the old one is not asked for.
    unsafe { libc::pthread_sigmask(way, &set, null_mut()) };
}

fn handled() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call makes the set, and the others change it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in FORWARDED.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Runs the program, and returns its exit status. If the parent closes `control`, everything is
/// killed.
pub fn run(plan: &Plan, control: UnixStream) -> io::Result<c_int> {
    if let Some(child) = fork()? {
        return follow(child, Some(&control));
    }
    // SAFETY: the call takes no pointers.
    let bound = check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) });
    // The helper may have ended before this.
    if bound.is_err() || is_closed(&control) {
        exit(NOT_RUNNABLE);
    }
    drop(control);
    exit(init(plan).unwrap_or_else(|error| {
        complain("the program", &error);
        NOT_RUNNABLE
    }))
}

/// The first process of its namespace: with it the kernel ends all others.
fn init(plan: &Plan) -> io::Result<c_int> {
    // Programs such as `ps` show the processes of this namespace. Some containers do not permit it,
    // and their programs see all processes.
    let safe = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let _ = mount("proc", Path::new("/proc"), "proc", safe, "");
    match fork()? {
        Some(child) => follow(child, None),
        None => exit(become_program(plan)),
    }
}

/// Runs the program in place of this process. Returns the exit status if that fails.
fn become_program(plan: &Plan) -> c_int {
    // Interpreters ignore them, which a program would inherit.
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: it installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    mask(libc::SIG_UNBLOCK);
    let [program, arguments @ ..] = &*plan.program else {
        return NOT_FOUND;
    };
    let mut command = Command::new(program);
    let environment = plan.environment.iter().map(|(name, value)| (name, value));
    let error = command.args(arguments).envs(environment).exec();
    complain(&program.to_string_lossy(), &Errno::of(&error));
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUNNABLE,
    }
}

/// Waits for a child, and forwards signals to it. Reaps others.
fn follow(child: libc::pid_t, control: Option<&UnixStream>) -> io::Result<c_int> {
    let set = handled();
    // SAFETY: the set lives until the call returns.
    let made = check(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC) })?;
    // SAFETY: the system has just made the descriptor.
    let signals = unsafe { OwnedFd::from_raw_fd(made) };
    // A negative number is ignored.
    let control = control.map_or(-1, AsRawFd::as_raw_fd);
    loop {
        let [signalled, closed] = wait_for([signals.as_raw_fd(), control], -1)?;
        if signalled {
            let signal = read_signal(&signals)?;
            if signal.ssi_signo == libc::SIGCHLD as u32 {
                if let Some(status) = reap(child)? {
                    return Ok(status);
                }
            } else if signal.ssi_code != libc::SI_KERNEL {
                // The program gets signals of the terminal itself.
                let _ = kill(child, signal.ssi_signo as c_int);
            }
        } else if closed {
            // The parent says nothing more: it has ended.
            let _ = kill(child, libc::SIGKILL);
            // SAFETY: the status is not asked for.
            unsafe { libc::waitpid(child, null_mut(), 0) };
            return Ok(NOT_RUNNABLE);
        }
    }
}

/// Waits until one of these can be read, or was closed, at most for so many milliseconds.
fn wait_for<const N: usize>(descriptors: [c_int; N], time: c_int) -> Result<[bool; N], Errno> {
    let mut sources = descriptors.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the sources live until the call returns.
    let done = unsafe { libc::poll(sources.as_mut_ptr(), N as libc::nfds_t, time) };
    match check(done) {
        Ok(_) | Err(Errno(libc::EINTR)) => Ok(sources.map(|source| source.revents != 0)),
        Err(error) => Err(error),
    }
}

fn read_signal(signals: &OwnedFd) -> io::Result<libc::signalfd_siginfo> {
    // SAFETY: one of zeros is valid.
    let mut signal: libc::signalfd_siginfo = unsafe { zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: there is room for all of it.
    let read = unsafe { libc::read(signals.as_raw_fd(), (&raw mut signal).cast(), size) };
    match read {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(signal),
    }
}

/// Reaps the children that have ended. Returns the exit status of this one.
fn reap(child: libc::pid_t) -> Result<Option<c_int>, Errno> {
    let mut found = None;
    loop {
        let mut status = 0;
        // SAFETY: the status lives until the call returns.
        match check(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) }) {
            Ok(0) | Err(Errno(libc::ECHILD)) => return Ok(found),
            Ok(ended) if ended == child && libc::WIFEXITED(status) => {
                found = Some(libc::WEXITSTATUS(status));
            }
            Ok(ended) if ended == child && libc::WIFSIGNALED(status) => {
                found = Some(BY_SIGNAL + libc::WTERMSIG(status));
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns true if the other end was closed, of which a signal would have told too late.
fn is_closed(control: &UnixStream) -> bool {
    wait_for([control.as_raw_fd()], 0).is_ok_and(|[closed]| closed)
}

/// Ends a forked process without the exit handlers of its parent.
fn exit(code: c_int) -> ! {
    // SAFETY: it does not return, and runs no code of this process.
    unsafe { libc::_exit(code) }
}
