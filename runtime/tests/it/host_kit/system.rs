//! A network namespace with a device for packets, which ends with the test. `stage` makes it, and starts
//! servers in it.

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};
    use std::thread;

    use watm_runtime::PacketDevice;

    /// The name of the device, which is the only one of its namespace.
    const DEVICE: &str = "watm-kit";

    /// A thread in a namespace of its own.
    pub struct System {
        device: Mutex<Option<PacketDevice>>,
        namespace: File,
        commands: Sender<String>,
        answers: Receiver<Result<(), String>>,
    }

    impl System {
        /// Makes the namespace and the device. Returns `None` without root.
        pub fn new() -> Option<System> {
            let (commands, asked) = channel::<String>();
            let (answer, answers) = channel();
            let (made, device) = channel();
            thread::spawn(move || {
                // SAFETY: the call affects this thread alone, and takes no pointers.
                if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                    return;
                }
                let namespace = File::open("/proc/thread-self/ns/net").expect("it has one");
                let device = PacketDevice::open(DEVICE).expect("root may make a device");
                made.send((namespace, device)).expect("it is waited for");
                for command in asked {
                    if answer.send(run(&command)).is_err() {
                        return;
                    }
                }
            });
            let (namespace, device) = device.recv().ok()?;
            Some(System {
                device: Mutex::new(Some(device)),
                namespace,
                commands,
                answers,
            })
        }

        /// Returns the device, once.
        pub fn device(&self) -> PacketDevice {
            let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
            device.take().expect("a case has one device")
        }

        /// Calls `act` in the namespace, where the threads stay that it starts.
        pub fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
            let namespace = self.namespace.as_raw_fd();
            let entered = || {
                // SAFETY: the call affects this thread alone, and takes an open descriptor.
                let code = unsafe { libc::setns(namespace, libc::CLONE_NEWNET) };
                assert_eq!(code, 0, "root may enter a namespace");
                act()
            };
            thread::scope(|scope| scope.spawn(entered).join().expect("no panic"))
        }

        /// Runs a command in the namespace, with the name of the device for `{tun}`.
        pub fn run(&self, command: &str) -> Result<(), String> {
            let command = command.replace("{tun}", DEVICE);
            self.commands.send(command).expect("the thread waits");
            self.answers.recv().expect("the thread answers")
        }
    }

    fn run(command: &str) -> Result<(), String> {
        let mut words = command.split(' ');
        let program = words.next().unwrap_or_default();
        let output = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

#[cfg(target_os = "linux")]
pub use linux::System;

/// A namespace, of which this system has none.
#[cfg(not(target_os = "linux"))]
pub enum System {}

#[cfg(not(target_os = "linux"))]
impl System {
    pub fn new() -> Option<System> {
        None
    }

    pub fn device(&self) -> watm_runtime::PacketDevice {
        match *self {}
    }

    pub fn within<T>(&self, _: impl FnOnce() -> T) -> T {
        match *self {}
    }

    pub fn run(&self, _: &str) -> Result<(), String> {
        match *self {}
    }
}
