//! Output of guests.

use tracing::Level;
use watm_runtime::{Dialer, Limits};

use crate::water::echo;
use watm_test_support::water::{Guest, numbers};
use watm_test_support::{Record, records, run};

/// Returns the records of a guest's output under this server, which reports `expected`.
fn printed(server: &str, guest: &Guest, expected: &[i32]) -> Vec<Record> {
    records(server);
    run(async {
        let echo = echo().await.to_string();
        let limits = Limits {
            log_records_per_second: 5,
            ..Limits::for_connections()
        };
        let dialer = Dialer::builder(&guest.module()).name(server).limits(limits);
        let dialed = dialer.build().expect("a dialer").dial(&echo).await;
        let mut told = Vec::new();
        let mut connection = dialed.expect("connects");
        tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut told)
            .await
            .expect("the end");
        assert_eq!(numbers(&told), expected);
        connection.close().await;
    });
    // Records of the host have no part.
    let mut records = records(server);
    records.retain(|record| record.text.contains("part="));
    records
}

#[test]
fn what_a_guest_prints_is_a_record_a_line_for_debugging() {
    let guest = Guest::v1()
        .with(r#"(data (i32.const 1024) "one\r\ntwo\n\nthree\1b[31mfour")"#)
        .work(
            "(call $tell (call $write (i32.const 1) (i32.const 1024) (i32.const 7)))
            (call $tell (call $write (i32.const 1) (i32.const 1031) (i32.const 3)))
            (call $tell (call $write (i32.const 2) (i32.const 1034) (i32.const 14)))",
        );
    let printed = printed("prints", &guest, &[7, 3, 14]);
    let expected = [
        ("stdout", "one"),
        ("stdout", "two"),
        ("stderr", "three\u{fffd}[31mfour"),
    ];
    assert_eq!(printed.len(), expected.len(), "{printed:?}");
    for (record, (part, message)) in printed.iter().zip(expected) {
        let fields: Vec<&str> = record.text.split(' ').collect();
        assert!(
            fields.contains(&format!("part={part}").as_str()),
            "{record:?}"
        );
        assert!(
            fields.contains(&format!("message={message}").as_str()),
            "{record:?}"
        );
    }
    assert!(printed.iter().all(|record| record.level == Level::DEBUG));
}

#[test]
fn a_flood_is_limited_and_does_not_hold_up_the_guest() {
    let guest = Guest::v1()
        .with(r#"(data (i32.const 1024) "a line of a flood\n")"#)
        .work(
            "(loop $again
                (drop (call $write (i32.const 1) (i32.const 1024) (i32.const 18)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $again (i32.lt_u (local.get $i) (i32.const 100000))))
            (call $tell (local.get $i))",
        );
    let printed = printed("floods", &guest, &[100_000]);
    // A burst of ten seconds' worth, and the records during the test.
    assert!((50..500).contains(&printed.len()), "{}", printed.len());
}

#[test]
fn lines_without_end_are_cut() {
    let guest = Guest::v1().work(
        "(memory.fill (i32.const 8192) (i32.const 65) (i32.const 10000))
        (call $tell (call $write (i32.const 1) (i32.const 8192) (i32.const 10000)))
        (call $tell (call $write (i32.const 1) (i32.const 8192) (i32.const 10000)))",
    );
    let printed = printed("long", &guest, &[10_000, 10_000]);
    let lengths = printed
        .iter()
        .map(|record| record.text.matches('A').count());
    assert_eq!(lengths.clone().sum::<usize>(), 20_000);
    assert!(lengths.max() <= Some(4096));
}
