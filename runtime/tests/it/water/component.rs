//! Components in the roles of WATER modules.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use watm_runtime::{DialOptions, Dialer, Error, ErrorCode, FixedDialer, Limits, Reach};

use super::{component, echo, exchange, pattern};
use watm_test_support::{LOCALHOST, run};

#[test]
fn a_component_dials_as_a_water_module_does() {
    run(async {
        let echo = echo().await;
        let dialer = Dialer::builder(&component()).build().expect("a dialer");
        let connection = dialer.dial(&echo.to_string()).await.expect("connects");
        assert_eq!(connection.peer_addr().expect("known"), echo);
        assert!(connection.local_addr().expect("known").port() > 0);
        // Connections outlive their dialer.
        drop(dialer);
        exchange(connection, &pattern(300_000)).await;

        // A component that requires a socket cannot dial either.
        let error = Dialer::builder(&watm_test_support::guest()).build();
        assert!(matches!(error, Err(Error::Config { .. })), "{error:?}");
    });
}

/// Returns a configuration with this destination.
fn remote(address: impl std::fmt::Display) -> String {
    format!("remote = \"{address}\"")
}

fn everywhere() -> Reach {
    Reach::none().allow("*").expect("a pattern")
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

#[test]
fn a_dial_that_leads_nowhere_names_the_address() {
    run(async {
        let dialer = Dialer::builder(&component()).build().expect("a dialer");
        let error = dialer.dial("nowhere.invalid:9").await.expect_err("no name");
        assert!(matches!(error, Error::Connect { .. }), "{error:?}");
        assert!(
            error.to_string().ends_with(" (nowhere.invalid:9)"),
            "{error}"
        );

        let limits = Limits {
            connect_timeout: Duration::from_millis(50),
            ..Limits::default()
        };
        let connector = |_| std::future::pending();
        let dialer = Dialer::builder(&component())
            .limits(limits)
            .connector(connector);
        let dialer = dialer.build().expect("a dialer");
        let error = dialer.dial("192.0.2.1:9").await.expect_err("too late");
        assert_eq!(error.to_string(), "plain: timeout (192.0.2.1:9)");
        // Failed dials leave nothing behind.
        let dialer = Dialer::builder(&component()).build().expect("a dialer");
        let nobody = listen().await.1;
        dialer.dial(&nobody).await.expect_err("refused");
        let echo = echo().await.to_string();
        exchange(dialer.dial(&echo).await.expect("connects"), b"hello").await;
    });
}

#[test]
fn what_its_reach_does_not_admit_is_named_with_what_would() {
    run(async {
        let port = echo().await.port();
        for (address, pattern) in [
            (format!("127.0.0.1:{port}"), None),
            (format!("127.0.0.1:{port}"), Some("127.0.0.1:1")),
            // Known only when it is resolved.
            (format!("localhost:{port}"), Some("192.0.2.0/24")),
        ] {
            let dialer = |reach: Reach| {
                let builder = FixedDialer::builder(&component()).config(remote(&address));
                builder.reach(reach).build().expect("a dialer")
            };
            let reach = pattern.map_or(Ok(Reach::none()), |pattern| Reach::none().allow(pattern));
            let denied = dialer(reach.expect("a pattern")).dial().await;
            let error = denied.expect_err("denied");
            assert!(matches!(error, Error::Denied { .. }), "{error:?}");
            assert_eq!(
                error.to_string(),
                format!(
                    "plain: not allowed to reach {address}; the pattern \"{address}\" would \
                     allow it"
                )
            );
            let reach = Reach::none().allow(&address).expect("a pattern");
            let connection = dialer(reach).dial().await.expect("connects");
            exchange(connection, b"hello").await;
        }
    });
}

#[test]
fn a_module_that_lets_go_of_its_connection_makes_the_dial_fail() {
    run(async {
        for config in ["dial and drop", "dial and trap"] {
            let dialer = Dialer::builder(&watm_test_support::guest()).config(config);
            let dialer = dialer.build().expect("a dialer");
            let error = dialer.dial("127.0.0.1:9").await.expect_err("given up");
            assert_eq!(
                error.to_string(),
                "guest: closed the connection before it was established"
            );
        }
    });
}

#[test]
fn a_module_that_never_looks_at_its_connection_has_its_time() {
    run(async {
        let limits = Limits {
            handshake_timeout: Duration::from_millis(50),
            ..Limits::default()
        };
        let guest = watm_test_support::guest();
        let dialer = Dialer::builder(&guest).config("dial").limits(limits);
        let dialer = dialer.build().expect("a dialer");
        let error = dialer.dial("127.0.0.1:9").await.expect_err("too late");
        assert_eq!(error.to_string(), "guest: no answer within 0.05 s");
    });
}

#[test]
fn a_dial_may_have_a_configuration_of_its_own() {
    run(async {
        let (first, usual) = listen().await;
        let (second, other) = listen().await;
        let dialer = FixedDialer::builder(&component())
            .config(remote(&usual))
            .reach(everywhere())
            .build()
            .expect("a dialer");
        let own = |config: String| dialer.dial_with(DialOptions::new().config(config));
        let mut connections = vec![dialer.dial().await.expect("connects")];
        for _ in 0..5 {
            connections.push(own(remote(&other)).await.expect("connects"));
        }
        connections.push(dialer.dial().await.expect("connects"));
        // Connections outlive their dialer.
        drop(dialer);
        for (number, connection) in connections.iter_mut().enumerate() {
            let listener = match number {
                0 | 6 => &first,
                _ => &second,
            };
            let (mut far, _) = listener.accept().await.expect("accepts");
            assert_eq!(
                connection.peer_addr().expect("known"),
                listener.local_addr().expect("bound")
            );
            far.write_all(b"hello").await.expect("written");
            let mut heard = [0; 5];
            connection.read_exact(&mut heard).await.expect("read");
            assert_eq!(&heard, b"hello");
        }
    });
}

#[test]
fn a_configuration_of_a_dial_is_refused_as_any_other() {
    run(async {
        let echo = echo().await;
        let dialer = FixedDialer::builder(&component())
            .config(remote(echo))
            .build()
            .expect("a dialer");
        let own = |config: String| dialer.dial_with(DialOptions::new().config(config));
        let error = own("remot = \"x:1\"".to_owned())
            .await
            .expect_err("refused");
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "plain: configuration refused: remot: unknown field; expected one of remote"
        );
        // An empty configuration counts, too.
        let error = own(String::new()).await.expect_err("no address");
        assert!(
            error.to_string().contains("the configuration has none"),
            "{error}"
        );
        // It has the same reach as the dialer.
        let error = own(remote(echo)).await.expect_err("denied");
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    });
}

#[test]
fn an_instance_for_one_connection_ends_with_it() {
    run(async {
        let (listener, address) = listen().await;
        let limits = Limits {
            flows: 1,
            ..Limits::default()
        };
        let dialer = Dialer::builder(&component()).limits(limits).build();
        let dialer = dialer.expect("a dialer");
        let own = || dialer.dial_with(&address, DialOptions::new().config(""));
        let mut kept = Vec::new();
        for round in 0..6 {
            let mut connection = loop {
                match own().await {
                    Ok(connection) => break connection,
                    // The previous connection delivers its written bytes first, which takes some
                    // time.
                    Err(Error::Refused { code, .. }) if round > 0 => {
                        assert_eq!(code, ErrorCode::LimitReached);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            let error = own().await.expect_err("one too many");
            assert_eq!(error.to_string(), "plain: limit reached");
            let (mut far, _) = listener.accept().await.expect("accepts");
            connection
                .write_all(&pattern(60_000))
                .await
                .expect("written");
            match round {
                0 => drop(connection),
                1 => connection.close().await,
                // The stream alone suffices, and need not even be dropped.
                2 => drop(connection.into_flow()),
                3 | 5 => {
                    let flow = connection.into_flow();
                    flow.close();
                    kept.push(flow);
                }
                _ => {
                    let flow = connection.into_flow();
                    flow.abort(ErrorCode::ConnectionReset);
                    kept.push(flow);
                    far.read_to_end(&mut Vec::new()).await.expect_err("a reset");
                    continue;
                }
            }
            let mut heard = Vec::new();
            far.read_to_end(&mut heard).await.expect("the end");
            assert!(heard == pattern(60_000), "{}", heard.len());
        }
    });
}

#[test]
fn a_peer_that_never_ends_holds_up_no_instance() {
    run(async {
        let (listener, address) = listen().await;
        let dialer = Dialer::builder(&component()).build().expect("a dialer");
        let options = DialOptions::new().config("");
        let connection = dialer.dial_with(&address, options).await.expect("connects");
        let (mut far, _) = listener.accept().await.expect("accepts");
        drop(connection);
        // The end, and as nothing follows, the end of the whole connection.
        assert_eq!(far.read(&mut [0; 1]).await.expect("the end"), 0);
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let Err(error) = far.write_all(b"still here").await {
                let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(gone.contains(&error.kind()), "{error}");
                break;
            }
        }
    });
}
