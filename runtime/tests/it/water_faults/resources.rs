//! Resources of the process for each connection. Runs in a process of its own, since other tests
//! have threads and descriptors too.

use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{Connection, Dialer, Limits};

use super::{our_plain, run_on_threads};
use watm_test_support::LOCALHOST;

const CONNECTIONS: usize = 200;
const ALONE: &str = "WATM_TEST_ALONE";

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).expect("of Linux").count()
}

fn threads() -> usize {
    count("/proc/self/task")
}

fn descriptors() -> usize {
    count("/proc/self/fd")
}

#[test]
fn a_connection_costs_no_thread_and_one_descriptor() {
    if std::env::var_os(ALONE).is_some() {
        return run_on_threads(measure());
    }
    let this = "water_faults::resources::a_connection_costs_no_thread_and_one_descriptor";
    let program = std::env::current_exe().expect("a path");
    let output = Command::new(program)
        .args(["--exact", this, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("1 passed"), "{said}");
}

async fn say_hello(connection: &mut Connection, far: &mut TcpStream) {
    connection.write_all(b"hello").await.expect("written");
    far.read_exact(&mut [0; 5]).await.expect("read");
    far.write_all(b"hello").await.expect("written");
    connection.read_exact(&mut [0; 5]).await.expect("read");
}

async fn measure() {
    let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let limits = Limits::for_connections();
    let dialer = Dialer::builder(&our_plain()).limits(limits).build();
    let dialer = dialer.expect("a dialer");
    let mut ends = Vec::new();
    let mut before = (0, 0);
    for number in 0..=CONNECTIONS {
        let mut near = dialer.dial(&address).await.expect("connects");
        let (mut far, _) = listener.accept().await.expect("accepts");
        say_hello(&mut near, &mut far).await;
        ends.push((near, far));
        if number == 0 {
            // Includes everything that exists once.
            before = (threads(), descriptors());
        }
    }
    assert_eq!(threads(), before.0);
    // The far end belongs to this process, too.
    assert_eq!(descriptors(), before.1 + 2 * CONNECTIONS);
    for (near, far) in ends {
        drop(far);
        near.close().await;
    }
    assert_eq!(threads(), before.0);
    assert_eq!(descriptors(), before.1 - 2);
}
