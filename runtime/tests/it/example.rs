//! The example `serve`, as a program.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use watm_test_support::{PATIENCE, directory, guest_bytes};

/// A running program, which ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_example_program_serves() {
    let directory = directory("example");
    let module = directory.join("guest.wasm");
    fs::write(&module, guest_bytes()).expect("written");
    let config = directory.join("guest.conf");
    fs::write(&config, "any").expect("written");
    // Beside the directory of the test program, where cargo puts examples.
    let program = std::env::current_exe().expect("a path");
    let built = program.ancestors().nth(2).expect("target/release");
    let child = Command::new(built.join("examples/serve"))
        .arg("--unsealed")
        .args([&module, &config])
        .arg("127.0.0.1:0")
        .env("XDG_CACHE_HOME", &directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example is built with the tests");
    let mut running = Running(child);
    let mut lines = BufReader::new(running.0.stdout.take().expect("piped")).lines();
    let address = lines
        .find_map(|line| {
            line.expect("text")
                .strip_prefix("serving on ")
                .map(str::to_owned)
        })
        .expect("it says where it serves");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.connect(address).expect("connects");
    client.send(b"hello").expect("sent");
    let mut buffer = [0; 16];
    let len = client.recv(&mut buffer).expect("an echo");
    assert_eq!(&buffer[..len], b"hello");
}
