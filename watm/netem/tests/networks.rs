//! Networks that follow their settings: the numbers of many packets against the closed forms of the
//! distributions.

use watm_netem::{Arrived, Direction, Netem, Uploader, parse};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const NAME: &str = "peer";

/// A UDP packet over IPv4, with this number in its payload of `length` bytes.
fn packet(number: u32, length: usize) -> Vec<u8> {
    let mut packet = vec![0; 28 + length.max(4)];
    packet[0] = 0x45;
    packet[9] = 17;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
    packet[20..24].copy_from_slice(&[0x30, 0x39, 0x01, 0xbb]);
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[28..32].try_into().unwrap())
}

fn network(words: &str) -> Netem {
    let mut netem = Netem::new(7);
    netem.set_rules(&parse(words, Uploader::Peer).unwrap());
    netem
}

/// Sends `count` packets, one each `gap`, and returns the arrivals with their times.
fn sent(netem: &mut Netem, count: u32, gap: u64, length: usize) -> Vec<(u64, Arrived)> {
    let mut arrivals = Vec::new();
    for index in 0..count {
        let now = u64::from(index) * gap;
        collect(netem, now, &mut arrivals);
        let packet = packet(index, length);
        if !netem.take(Direction::FromPeer, (1, NAME), &packet, now) {
            let arrived = Arrived {
                peer: 1,
                direction: Direction::FromPeer,
                packet: packet.into(),
            };
            arrivals.push((now, arrived));
        }
    }
    collect(netem, u64::MAX, &mut arrivals);
    arrivals
}

/// Runs the network up to this time.
fn collect(netem: &mut Netem, now: u64, arrivals: &mut Vec<(u64, Arrived)>) {
    while let Some(due) = netem.deadline().filter(|due| *due <= now) {
        arrivals.extend(netem.arrived(due).into_iter().map(|arrived| (due, arrived)));
    }
}

/// The delays of packets that are sent so rarely that none waits for another, in milliseconds.
fn delays(words: &str) -> Vec<f64> {
    let gap = SECOND;
    let arrivals = sent(&mut network(words), 20_000, gap, 100);
    assert_eq!(arrivals.len(), 20_000);
    let delay = |(at, arrived): &(u64, Arrived)| at - u64::from(number(&arrived.packet)) * gap;
    arrivals
        .iter()
        .map(|arrival| delay(arrival) as f64 / MS as f64)
        .collect()
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// The mean of the products of deviations, `lag` numbers apart.
fn covariance(numbers: &[f64], lag: usize) -> f64 {
    let mean = mean(numbers);
    let pairs = numbers.iter().zip(&numbers[lag..]);
    pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / (numbers.len() - lag) as f64
}

fn assert_near(measured: f64, expected: f64, tolerance: f64) {
    assert!(
        (measured - expected).abs() <= tolerance,
        "{measured}, expected {expected}"
    );
}

/// The share of 20,000 packets, with four standard deviations of a binomial distribution.
fn assert_share(count: usize, share: f64) {
    let total = 20_000.0;
    let deviation = (share * (1.0 - share) / total).sqrt();
    assert_near(count as f64 / total, share, 4.0 * deviation);
}

#[test]
fn a_network_without_rules_touches_nothing() {
    let mut netem = network("off");
    assert!(netem.is_idle());
    assert!(!netem.take(Direction::ToPeer, (1, NAME), &packet(0, 9), 5));
    assert_eq!(netem.deadline(), None);
}

#[test]
fn a_delay_is_exact() {
    assert!(delays("delay=40ms").iter().all(|delay| *delay == 40.0));
}

#[test]
fn uniform_jitter_has_its_mean_and_variance() {
    let delays = delays("delay=50ms jitter=30ms");
    assert!(delays.iter().all(|delay| (20.0..=80.0).contains(delay)));
    assert_near(mean(&delays), 50.0, 0.5);
    assert_near(covariance(&delays, 0), 30.0 * 30.0 / 3.0, 8.0);
    assert_near(covariance(&delays, 1), 0.0, 9.0);
}

#[test]
fn normal_jitter_has_its_mean_deviation_and_correlation() {
    let delays = delays("delay=100ms jitter=10ms distribution=normal correlation=50%");
    assert_near(mean(&delays), 100.0, 0.5);
    let variance = covariance(&delays, 0);
    assert_near(variance.sqrt(), 10.0, 0.3);
    assert_near(covariance(&delays, 1) / variance, 0.5, 0.03);
    assert_near(covariance(&delays, 2) / variance, 0.25, 0.03);
    let within = delays
        .iter()
        .filter(|delay| (90.0..=110.0).contains(*delay));
    assert_near(within.count() as f64 / 20_000.0, 0.6827, 0.02);
}

#[test]
fn a_delay_is_never_negative_and_packets_keep_their_order() {
    let arrivals = sent(&mut network("delay=5ms jitter=20ms"), 20_000, MS, 100);
    let numbers: Vec<u32> = arrivals
        .iter()
        .map(|(_, arrived)| number(&arrived.packet))
        .collect();
    assert!(numbers.is_sorted());
    assert!(
        arrivals
            .iter()
            .all(|(at, arrived)| *at >= u64::from(number(&arrived.packet)) * MS)
    );
}

#[test]
fn losses_have_their_share() {
    let mut netem = network("loss=3%");
    let arrived = sent(&mut netem, 20_000, MS, 100).len();
    assert_share(20_000 - arrived, 0.03);
    assert_eq!(netem.counts().lost as usize, 20_000 - arrived);
}

#[test]
fn bursts_have_their_share_and_length() {
    let words = "loss=1% burst_enter=2% burst_leave=20% burst_loss=80%";
    let arrivals = sent(&mut network(words), 20_000, MS, 100);
    // The share of bad times is enter / (enter + leave): section 2 of Hasslinger and Hohlfeld, 2008.
    let bad = 0.02 / 0.22;
    let share = bad * 0.8 + (1.0 - bad) * 0.01;
    assert_near(1.0 - arrivals.len() as f64 / 20_000.0, share, 0.015);

    let arrivals = sent(
        &mut network("burst_enter=1% burst_leave=10%"),
        20_000,
        MS,
        100,
    );
    let numbers: Vec<u32> = arrivals
        .iter()
        .map(|(_, arrived)| number(&arrived.packet))
        .collect();
    let gaps = numbers.windows(2).map(|pair| pair[1] - pair[0] - 1);
    let bursts: Vec<f64> = gaps.filter(|lost| *lost > 0).map(f64::from).collect();
    assert_near(mean(&bursts), 10.0, 2.5);
}

#[test]
fn some_packets_overtake_arrive_twice_or_change() {
    let arrivals = sent(&mut network("delay=50ms reorder=5%"), 20_000, SECOND, 100);
    let early =
        |(at, arrived): &&(u64, Arrived)| *at == u64::from(number(&arrived.packet)) * SECOND;
    assert_share(arrivals.iter().filter(early).count(), 0.05);

    let mut netem = network("duplicate=5%");
    assert_share(sent(&mut netem, 20_000, MS, 100).len() - 20_000, 0.05);
    assert_share(netem.counts().duplicated as usize, 0.05);

    let mut netem = network("corrupt=5%");
    let arrivals = sent(&mut netem, 20_000, MS, 100);
    assert_eq!(arrivals.len(), 20_000);
    let mut changed = 0;
    for (index, (_, arrived)) in (0..).zip(&arrivals) {
        let sent = packet(index, 100);
        let bits = |(a, b): (&u8, &u8)| (a ^ b).count_ones();
        let flipped: u32 = sent.iter().zip(&*arrived.packet).map(bits).sum();
        assert!(flipped <= 1);
        assert_eq!(arrived.packet[..20], sent[..20], "an address changed");
        changed += flipped as usize;
    }
    assert_share(changed, 0.05);
}

#[test]
fn a_link_sends_at_its_rate_and_a_full_queue_drops() {
    let mut netem = network("rate=1mbit queue=10");
    // 125 bytes take a millisecond. 50 arrive at once: one is sent, ten wait.
    let arrivals = sent(&mut netem, 50, 0, 97);
    let times: Vec<u64> = arrivals.iter().map(|(at, _)| at / MS).collect();
    assert_eq!(times, (1..=11).collect::<Vec<_>>());
    assert_eq!(netem.counts().dropped, 39);
}

#[test]
fn codel_keeps_the_queue_short() {
    // 12 Mbit/s for a link of 10 Mbit/s: 1,250 bytes each millisecond, with 1,500 offered.
    let longest = |words: &str| {
        let arrivals = sent(&mut network(words), 20_000, MS, 1472);
        let waited = |(at, arrived): &(u64, Arrived)| at - u64::from(number(&arrived.packet)) * MS;
        arrivals.iter().skip(15_000).map(waited).max().unwrap() / MS
    };
    let (full, short) = (
        longest("rate=10mbit queue=500"),
        longest("rate=10mbit queue=500 aqm=codel"),
    );
    assert!((580..=605).contains(&full), "{full} ms");
    assert!(short < full / 4, "{short} ms");
}

#[test]
fn new_rules_let_waiting_packets_arrive_at_once_and_in_order() {
    let mut netem = network("delay=1s rate=1mbit");
    for index in 0..20 {
        netem.take(Direction::ToPeer, (1, NAME), &packet(index, 97), 0);
    }
    netem.arrived(5 * MS);
    netem.set_rules(&[]);
    assert_eq!(netem.deadline(), Some(0));
    let arrived = netem.arrived(6 * MS);
    let numbers: Vec<u32> = arrived
        .iter()
        .map(|arrived| number(&arrived.packet))
        .collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert!(netem.is_idle());
}

#[test]
fn rules_concern_their_peer_host_and_direction() {
    let touched = |words: &str, direction, name, packet: &[u8]| {
        network(words).take(direction, (1, name), packet, 0)
    };
    let (up, down) = (Direction::FromPeer, Direction::ToPeer);
    let packet = packet(0, 9);
    assert!(touched("loss=100% direction=to-peer", down, NAME, &packet));
    assert!(!touched("loss=100% direction=to-peer", up, NAME, &packet));
    assert!(touched("loss=100% peer=peer", up, NAME, &packet));
    assert!(!touched("loss=100% peer=peer", up, "other", &packet));
    assert!(touched("loss=100% host=192.0.2.0/24", up, NAME, &packet));
    assert!(touched("loss=100% host=192.0.2.1:443", up, NAME, &packet));
    assert!(!touched("loss=100% host=192.0.2.1:80", up, NAME, &packet));
    // The first rule that concerns a packet decides.
    assert!(!touched(
        "host=192.0.2.1 loss=0%, loss=100%",
        up,
        NAME,
        &packet
    ));
    // Packets of any length are looked at.
    for length in 0..packet.len() {
        touched("loss=100% host=192.0.2.1:80", up, NAME, &packet[..length]);
        touched("corrupt=100%", up, NAME, &packet[..length]);
    }
}

#[test]
fn packets_beyond_the_budget_are_dropped_and_a_removed_peer_frees_it() {
    let mut netem = network("delay=60s");
    for index in 0..1000 {
        netem.take(Direction::ToPeer, (1, NAME), &packet(index, 60_000), 0);
    }
    let dropped = netem.counts().dropped;
    assert!((850..900).contains(&dropped), "{dropped}");
    netem.forget(1);
    assert_eq!(netem.deadline(), None);
    netem.take(Direction::ToPeer, (2, NAME), &packet(0, 60_000), 0);
    assert_eq!(netem.counts().dropped, dropped);
}

#[test]
fn a_seed_repeats_a_run() {
    let run = |seed| {
        let mut netem = Netem::new(seed);
        netem.set_rules(&parse("delay=50ms jitter=20ms loss=10%", Uploader::Peer).unwrap());
        sent(&mut netem, 1000, MS, 100)
    };
    assert!(run(1) == run(1));
    assert!(run(1) != run(2));
}
