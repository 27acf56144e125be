//! Connections that the application closes: guests that do not end when they are told to, and those
//! that still have data to pass on.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{FixedDialer, Limits, Listener, Reach, Relay};

use crate::water::both;
use watm_test_support::water::{Guest, Scene};
use watm_test_support::{LOCALHOST, engine, repository, run};

const GRACE: Duration = Duration::from_millis(100);

/// Code that a guest runs in place of ending. Its limit of CPU time is longer than the tests.
const STUBBORN: [&str; 6] = [
    "(loop $for_ever (br $for_ever)) (i32.const 0)",
    "(loop $for_ever (drop (call $sched_yield)) (br $for_ever)) (i32.const 0)",
    "(loop $for_ever (drop (call $now (i32.const 1))) (br $for_ever)) (i32.const 0)",
    // It waits for a byte that never comes.
    "(call $read (global.get $net) (i32.const 1024) (i32.const 1))",
    "(call $pause (i32.const 100000000)) (i32.const 0)",
    // It is told, and asks again.
    "(loop $for_ever
        (drop (call $read (global.get $control) (i32.const 1024) (i32.const 1)))
        (br $for_ever)) (i32.const 0)",
];

fn stubborn(code: &str) -> Guest {
    Guest::v1().ends(code).limits(Limits {
        close_grace: GRACE,
        cpu_per_call: Duration::from_secs(60),
        ..Limits::for_connections()
    })
}

/// Checks that its remains use no CPU time.
async fn assert_idle() {
    let before = ThreadTime::now();
    tokio::time::sleep(Duration::from_millis(60)).await;
    let used = before.elapsed();
    assert!(used < Duration::from_millis(30), "{used:?}");
}

#[test]
fn closing_is_bounded_in_time_and_frees_the_cpu() {
    run(async {
        for code in STUBBORN {
            let Scene { app, mut peer } = stubborn(code).dial().await;
            let begin = Instant::now();
            app.close().await;
            // Three times the grace, on a busy machine.
            assert!(begin.elapsed() < 20 * GRACE, "{code}");
            assert_eq!(peer.read(&mut [0; 1]).await.expect("the end"), 0);
            assert_idle().await;
        }
    });
}

#[test]
fn dropping_a_connection_ends_it_too() {
    run(async {
        for code in STUBBORN {
            let Scene { app, mut peer } = stubborn(code).dial().await;
            drop(app);
            assert_eq!(peer.read(&mut [0; 1]).await.expect("the end"), 0);
            assert_idle().await;
        }
    });
}

#[test]
fn a_reset_ends_an_instance_that_does_not_look() {
    run(async {
        // The others wait, and cost nothing.
        for code in &STUBBORN[..3] {
            // Its handshake is over once it sends a byte to the application.
            let code = format!(
                "(drop (call $write (global.get $caller) (i32.const 1024) (i32.const 1))) {code}"
            );
            let guest = stubborn(&code);
            let listener = guest.options(Listener::builder(&guest.module()));
            let listener = listener.bind(LOCALHOST).expect("listens");
            let client = TcpStream::connect(listener.local_addr());
            let (client, served) = both(client, listener.accept()).await;
            let client = client.expect("connects");
            let mut served = served.expect("accepts");
            served.read_exact(&mut [0; 1]).await.expect("a byte");
            let linger = Some(Duration::ZERO);
            SockRef::from(&client).set_linger(linger).expect("set");
            drop(client);
            let error = served.read(&mut [0; 1]).await.expect_err("reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{code}");
            assert_idle().await;
        }
    });
}

#[test]
fn a_relay_is_closed_in_time_with_all_that_it_holds() {
    run(async {
        let upstream = TcpListener::bind(LOCALHOST).await.expect("a port");
        let target = upstream.local_addr().expect("bound").to_string();
        for code in STUBBORN {
            let guest = stubborn(code);
            let relay = guest.options(Relay::builder(&guest.module()));
            let relay = relay.bind(LOCALHOST, &target).expect("listens");
            let address = relay.local_addr();
            let mut ends = Vec::new();
            for _ in 0..3 {
                let client = TcpStream::connect(address).await.expect("connects");
                ends.push((client, upstream.accept().await.expect("accepts").0));
            }
            let begin = Instant::now();
            relay.close().await;
            assert!(begin.elapsed() < 20 * GRACE, "{code}");
            for (mut client, mut far) in ends {
                assert_eq!(client.read(&mut [0; 1]).await.expect("the end"), 0);
                assert_eq!(far.read(&mut [0; 1]).await.expect("the end"), 0);
            }
            assert!(TcpStream::connect(address).await.is_err());
            assert_idle().await;
        }
    });
}

#[test]
fn a_guest_that_still_passes_on_data_has_more_than_the_grace() {
    run(async {
        // It has ten more bytes, which take a second.
        let grace = Duration::from_millis(300);
        let guest = Guest::v1().ends(
            "(loop $more
                (call $pause (i32.const 100))
                (drop (call $write (global.get $net) (i32.const 1024) (i32.const 1)))
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $n) (i32.const 10))))
            (i32.const 0)",
        );
        let limits = Limits {
            close_grace: grace,
            ..Limits::for_connections()
        };
        let Scene { app, mut peer } = guest.limits(limits).dial().await;
        app.close().await;
        let mut sent = Vec::new();
        peer.read_to_end(&mut sent).await.expect("a regular end");
        assert_eq!(sent.len(), 10);
    });
}

#[test]
fn a_guest_that_always_has_more_data_is_stopped() {
    run(async {
        let guest = stubborn(
            "(loop $for_ever
                (call $pause (i32.const 20))
                (drop (call $write (global.get $net) (i32.const 1024) (i32.const 1)))
                (br $for_ever)) (i32.const 0)",
        );
        let Scene { app, mut peer } = guest.dial().await;
        let begin = Instant::now();
        app.close().await;
        // Twice five times the grace and once more, on a busy machine.
        assert!(begin.elapsed() < 40 * GRACE);
        peer.read_to_end(&mut Vec::new()).await.expect("the end");
        assert_idle().await;
    });
}

/// Configurations of two ends of a tunnel in a stream. A round trip takes 400 ms inside.
const SLOW_SERVER: &str = "[Interface]
PrivateKey = MC3+ggb3YqLTFk/iwiVsupzuWEvwpl7wqe0JedXKW0E=
[Peer]
PublicKey = AWJWZXXKMsPLN3wbkbv3gE80V+oc1BNHESWrRm0blE8=
AllowedIPs = 10.0.0.2/32
[Watm]
Network = delay=200ms
";
const CLIENT: &str = "[Interface]
PrivateKey = AEjCBJUkocgm6zzHZtzJvVNPKd2pxBG59orfTqVNv0w=
Address = 10.0.0.2/32
[Peer]
PublicKey = rIsDMtj+XOKipDXROYD4WXqVU2qwzipCLPJmMMFKcBo=
AllowedIPs = 0.0.0.0/0
Endpoint = SERVER
[Watm]
Target = 10.9.8.7:80
";

#[test]
fn a_tunnel_in_a_stream_delivers_what_was_written_before_the_close() {
    run(async {
        let path = repository().join("watm/target/modules/wireguard.watm1.wasm");
        let module = engine().load_file(path);
        let module = module.expect("`make modules` has built it");
        let listener = Listener::builder(&module).config(SLOW_SERVER.as_bytes().to_vec());
        let listener = listener.bind(LOCALHOST).expect("listens");
        let address = listener.local_addr().to_string();
        let reach = Reach::none().allow(&address).expect("a pattern");
        let dialer = FixedDialer::builder(&module)
            .config(CLIENT.replace("SERVER", &address).into_bytes())
            .reach(reach)
            .build()
            .expect("a dialer");
        let (dialled, accepted) = both(
            async {
                let mut dialled = dialer.dial().await.expect("connects");
                dialled.write_all(b"question").await.expect("written");
                dialled
            },
            listener.accept(),
        )
        .await;
        let (mut dialled, mut accepted) = (dialled, accepted.expect("accepts"));
        // The congestion window takes several round trips to grow to this size.
        let answer = vec![7; 200_000];
        let (received, ()) = both(
            async {
                let mut received = Vec::new();
                let ended = dialled.read_to_end(&mut received).await;
                ended.map(|_| received).expect("a regular end")
            },
            async {
                accepted.read_exact(&mut [0; 8]).await.expect("read");
                accepted.write_all(&answer).await.expect("written");
                accepted.close().await;
            },
        )
        .await;
        assert!(received == answer, "{} bytes arrived", received.len());
    });
}
