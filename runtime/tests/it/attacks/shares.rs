//! 23, CPU quotas: a module waits when it has used up the quota in its seal.

use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use watm_runtime::seal::{Capabilities, Manifest, ModuleRole};
use watm_runtime::{Limits, Server};

use super::{Maker, approved, folder, held_to, needs};
use watm_test_support::water::Guest;
use watm_test_support::{Client, LOCALHOST, assert_serves, counter, run, serve, wait_until};

/// The CPU time that a quota of a hundredth may use in two seconds: its burst, its quota, two turns
/// on the way to a rest, and the time that a busy machine adds in the middle of one.
const FEW: Duration = Duration::from_millis(250);

fn used(server: &Server) -> Duration {
    Duration::from_nanos(counter(server, "host.guest_time_ns"))
}

#[test]
fn a_module_has_no_more_than_its_share_of_a_core() {
    let hundredth = Capabilities {
        cpu_permille: 10,
        ..needs()
    };
    let (held, free) = (
        super::start(&held_to("share", hundredth)),
        serve("without a share"),
    );
    let use_up = |server: &Server| {
        let client = Client::new(server);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            // One after the other, so that each call of the module is short.
            client.ask("!crypto");
        }
        used(server)
    };
    let (held_used, free_used) = (use_up(&held), use_up(&free));
    println!("{held_used:?} with a share of a hundredth, {free_used:?} without");
    assert!(held_used < FEW, "{held_used:?}");
    assert!(free_used > held_used, "{free_used:?}");
    // It waits, and continues.
    assert_serves(&held);
}

/// Tests a quota so small that nobody would wait for a long call's CPU time: the call is stopped.
#[test]
fn no_call_takes_more_than_a_minutes_share() {
    let thousandth = Capabilities {
        cpu_permille: 1,
        ..needs()
    };
    let name = "a thousandth";
    watm_test_support::records(name);
    let server = Server::builder(&held_to("thousandth", thousandth))
        .name(name)
        .udp("listen", LOCALHOST)
        .start()
        .expect("starts");
    Client::new(&server).send(b"!spin");
    // At the default limit it would have had a second. It starts again when it has time.
    wait_until("it is stopped", || {
        watm_test_support::records(name)
            .iter()
            .any(|record| record.text.contains("60ms of CPU time"))
    });
    let used = used(&server);
    println!("{used:?}");
    assert!(used < Duration::from_millis(500), "{used:?}");
}

/// Starts a server of a sealed WATER guest with this quota.
fn water_server(name: &str, permille: u32, guest: &Guest) -> Server {
    let maker = Maker::new();
    let capabilities = Capabilities {
        sockets: ["tcp listen".parse().expect("a socket")].into(),
        cpu_permille: permille,
        instances: 100,
        ..needs()
    };
    let manifest = Manifest {
        world: "water-v1".parse().expect("a world"),
        roles: ModuleRole::ALL.into(),
        ..maker.manifest(1, capabilities)
    };
    let bytes = wat::parse_str(guest.text()).expect("valid text");
    let host = maker.host(&folder(name));
    let module = host.load_with("guest", &maker.sign(&bytes, manifest), &approved());
    Server::builder(&module.expect("loads"))
        .tcp("listen", LOCALHOST)
        .limits(Limits {
            // No limit on a single call stops an instance here.
            cpu_per_call: Duration::from_secs(3600),
            ..Limits::for_connections()
        })
        .start()
        .expect("starts")
}

/// Tests that all connections of a WATER module share their quota, whatever else they do.
#[test]
fn instances_have_their_modules_share_together() {
    for (name, code) in [
        ("spins", "(loop $for_ever (br $for_ever)) (i32.const 0)"),
        (
            "prints",
            "(loop $for_ever
                (drop (call $write (i32.const 1) (i32.const 1024) (i32.const 1)))
                (br $for_ever))
            (i32.const 0)",
        ),
    ] {
        let guest = Guest::v1().ends(code);
        let (held, free) = (
            water_server(&format!("water held {name}"), 10, &guest),
            water_server(&format!("water free {name}"), 1000, &guest),
        );
        run(async {
            let mut connections = Vec::new();
            for server in [&held, &free] {
                let address = server.local_addr("listen").expect("granted");
                for _ in 0..10 {
                    connections.push(TcpStream::connect(address).await.expect("connects"));
                }
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        });
        let (held_used, free_used) = (used(&held), used(&free));
        println!("{name}: {held_used:?} with a share of a hundredth, {free_used:?} with a core");
        assert!(held_used < FEW, "{name}: {held_used:?}");
        assert!(free_used > 2 * held_used, "{name}: {free_used:?}");
    }
}

/// Tests that a module waits once its quota is used up, and then continues without loss.
#[test]
fn a_connection_that_rests_goes_on() {
    // Computes for some milliseconds for each piece that it passes on.
    let guest = Guest::v1().ends(
        "(loop $again
            (local.set $n (call $read (global.get $net) (i32.const 1024) (i32.const 1)))
            (local.set $i (i32.const 3000000))
            (loop $work (br_if $work (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
            (drop (call $write (global.get $net) (i32.const 1024) (local.get $n)))
            (br_if $again (i32.gt_s (local.get $n) (i32.const 0))))
        (i32.const 0)",
    );
    let server = water_server("water rests", 20, &guest);
    run(async {
        let address = server.local_addr("listen").expect("granted");
        let mut client = TcpStream::connect(address).await.expect("connects");
        let begin = Instant::now();
        let mut rounds = 0;
        // Until it has rested, and some more.
        while used(&server) < Duration::from_millis(135) {
            client.write_all(&[7]).await.expect("written");
            let mut answer = [0];
            client.read_exact(&mut answer).await.expect("read");
            assert_eq!(answer, [7]);
            rounds += 1;
        }
        let took = begin.elapsed();
        println!("{rounds} rounds in {took:?}");
        // The burst at once, and the rest at a fiftieth of the speed.
        assert!(took > Duration::from_millis(500), "{took:?}");
    });
}

/// Tests that a module that fails repeatedly gets no more than others.
#[test]
fn a_restart_is_no_new_share() {
    let hundredth = Capabilities {
        cpu_permille: 10,
        ..needs()
    };
    let server = super::start(&held_to("restarted", hundredth));
    let client = Client::new(&server);
    for failures in 1..=3 {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(700) {
            client.ask("!crypto");
        }
        client.send(b"!trap");
        wait_until("it runs again", || {
            // Each question costs the module a part of its quota.
            thread::sleep(Duration::from_millis(100));
            counter(&server, "host.restarts") == failures
        });
    }
    // Three bursts would be more.
    let used = used(&server);
    println!("{used:?}");
    assert!(used < FEW, "{used:?}");
}

/// Tests that a module that answers slowly is not asked while it rests, whoever asks and how often.
#[test]
fn answers_take_from_the_share() {
    let few = Capabilities {
        cpu_permille: 2,
        ..needs()
    };
    let server = super::start(&held_to("answers", few));
    server.reconfigure("slow").expect("accepted");
    let before = used(&server);
    for _ in 0..50 {
        // While it rests, the host answers.
        server.status().expect("answered");
    }
    // Dials wait for the module, and the end of the server for nobody.
    let dialled =
        run(async { tokio::time::timeout(Duration::from_millis(100), server.dial(None)).await });
    assert!(dialled.is_err(), "answered");
    let used = used(&server).saturating_sub(before);
    println!("{used:?}");
    assert!(used < FEW, "{used:?}");
    let begin = Instant::now();
    server.close();
    run(server.wait_closed());
    assert!(begin.elapsed() < Duration::from_secs(1));
}

/// Tests that a module that uses its quota up whenever it starts waits for more, however often it
/// fails.
#[test]
fn starts_take_from_the_share() {
    let few = Capabilities {
        cpu_permille: 2,
        ..needs()
    };
    let name = "starts";
    watm_test_support::records(name);
    let server = Server::builder(&held_to(name, few))
        .name(name)
        .udp("listen", LOCALHOST)
        .start()
        .expect("starts");
    server.reconfigure("spin at start").expect("accepted");
    Client::new(&server).send(b"!trap");
    // In that time it would start four times.
    thread::sleep(Duration::from_secs(2));
    let records = watm_test_support::records(name);
    let failed = |record: &&_| format!("{record:?}").contains("cannot restart");
    assert_eq!(records.iter().filter(failed).count(), 1, "{records:?}");
}
