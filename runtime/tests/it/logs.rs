//! Log records of modules, and their levels.

use watm_runtime::Limits;

use watm_test_support::{Client, assert_serves, builder, counter, records, wait_restarted};

#[test]
fn a_flood_of_records_is_limited_cut_and_counted() {
    records("log flood");
    let limits = Limits {
        log_records_per_second: 5,
        ..Limits::default()
    };
    let server = builder("log flood").limits(limits).start().expect("starts");
    assert_eq!(Client::new(&server).ask("!log"), "logged");
    let records = records("log flood");
    assert!(records.len() >= 50, "{}", records.len());
    assert!(records.len() < 1000, "{}", records.len());
    assert!(records.iter().all(|record| record.text.len() < 5000));
    assert!(records[0].text.contains("part=flood"), "{:?}", records[0]);
    assert_eq!(records[0].level, tracing::Level::ERROR);
    let dropped = counter(&server, "host.dropped.log_records");
    assert!(dropped > 99_000, "{dropped}");
    assert_serves(&server);
}

#[test]
fn records_below_the_level_are_not_passed_on() {
    records("quiet");
    // OFF does not exist for a module, which logs at ERROR here.
    let server = builder("quiet")
        .log_level(tracing::Level::ERROR)
        .start()
        .expect("starts");
    assert_eq!(Client::new(&server).ask("!log"), "logged");
    assert!(
        records("quiet")
            .iter()
            .all(|record| record.level <= tracing::Level::WARN)
    );
}

#[test]
fn an_instance_that_starts_again_gets_no_new_burst() {
    let name = "log restarts";
    records(name);
    let limits = Limits {
        log_records_per_second: 5,
        ..Limits::default()
    };
    let server = builder(name).limits(limits).start().expect("starts");
    let client = Client::new(&server);
    for restarts in 1..=3 {
        assert_eq!(client.ask("!log"), "logged");
        client.send(b"!trap");
        wait_restarted(&server, restarts);
    }
    let records = records(name);
    let flood = records
        .iter()
        .filter(|record| record.text.contains("part=flood"));
    // The burst, and what comes in some seconds.
    let count = flood.count();
    assert!(count < 100, "{count}");
}
