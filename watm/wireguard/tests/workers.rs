//! Several workers of one server, and peers that come to any of them.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::inner::DatagramEnd;
use support::line::{INITIATION, RESPONSE, udp};
use support::{Client, Line, peer_config, public_text, server_config};
use watm_core::Transport;

const COUNT: u32 = 3;
/// The number of peers. Each worker has some.
const PEERS: u8 = 6;

/// The workers, the clients, and the kernel between them.
struct Workers {
    lines: Vec<Line>,
    clients: Vec<Client>,
    /// The initiations that came to another worker than that of their peer.
    passed: usize,
}

fn config(rest: &str) -> String {
    let peer = |number| peer_config(number, &format!("AllowedIPs = 10.0.0.{number}/32"));
    server_config(&(rest.to_owned() + &(1..=PEERS).map(peer).collect::<String>()))
}

/// The worker to which the kernel gives the datagrams of an address that name none.
fn worker_of(address: SocketAddr) -> u32 {
    u32::from(address.port()) % COUNT
}

/// The responses that a client has received.
fn responses(client: &Client) -> Vec<&Vec<u8>> {
    let came = client.came.iter();
    came.filter(|datagram| datagram[0] == RESPONSE).collect()
}

/// The worker that has this client's peer: by its session.
fn home(client: &Client) -> u32 {
    // The sender's index, which the client puts into its packets.
    u32::from(responses(client)[0][7]) % COUNT
}

impl Workers {
    /// Workers with a client for each peer, number `n` at `clients[n - 1]`.
    fn new(config: &str) -> Workers {
        let lines = (0..COUNT).map(|number| Line::on_worker(config, (number, COUNT)));
        Workers {
            lines: lines.collect(),
            clients: (1..=PEERS).map(Client::new).collect(),
            passed: 0,
        }
    }

    /// The same, with a datagram from each client.
    fn connected() -> Workers {
        let mut workers = Workers::new(&config(""));
        for number in 1..=PEERS {
            workers.send(number, b"first");
        }
        workers.run_for(Duration::from_secs(1));
        workers
    }

    /// Sends a datagram within the tunnel.
    fn send(&mut self, number: u8, data: &[u8]) {
        let now = self.lines[0].now();
        self.clients[usize::from(number) - 1].send(&udp(number, 7, data), now);
    }

    /// Begins a handshake. Returns the initiation.
    fn handshake(&mut self, number: u8) -> Vec<u8> {
        let now = self.lines[0].now();
        self.clients[usize::from(number) - 1].handshake(now)
    }

    /// Moves a client to an address that leads to this worker.
    fn move_to(&mut self, number: u8, worker: u32) {
        let client = &mut self.clients[usize::from(number) - 1];
        let port = client.address.port() + 10;
        let port = (port..).find(|port| u32::from(*port) % COUNT == worker);
        client.address.set_port(port.expect("a port"));
    }

    /// The kernel: gives a datagram to a worker.
    fn arrive(&mut self, from: SocketAddr, datagram: &[u8]) {
        let worker = match datagram[0] {
            2 => u32::from(datagram[11]) % COUNT,
            3 | 4 => u32::from(datagram[7]) % COUNT,
            _ => worker_of(from),
        };
        self.lines[worker as usize].inject(from, datagram);
    }

    fn round(&mut self) -> bool {
        let now = self.lines[0].now();
        let mut sent = Vec::new();
        for client in &mut self.clients {
            let address = client.address;
            sent.extend(
                client
                    .up
                    .due(now)
                    .into_iter()
                    .map(|datagram| (address, datagram)),
            );
        }
        let mut busy = !sent.is_empty();
        for (from, datagram) in sent {
            self.arrive(from, &datagram);
        }
        for number in 0..self.lines.len() {
            busy |= self.lines[number].round();
            for (to, datagram) in std::mem::take(&mut self.lines[number].stray) {
                let mut clients = self.clients.iter_mut();
                if let Some(client) = clients.find(|client| client.address == to) {
                    client.down.send(now, datagram);
                }
            }
            for (to, batch) in self.lines[number].newest().host.take_passes() {
                self.passed += 1;
                busy = true;
                self.lines[to as usize].newest().host.pass(batch);
            }
        }
        for client in &mut self.clients {
            for datagram in client.down.due(now) {
                busy = true;
                client.receive(&datagram, now);
            }
        }
        busy
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.lines[0].now() + time;
        loop {
            while self.round() {}
            let now = self.lines[0].now();
            if now >= end {
                return;
            }
            let wakes = self.lines.iter_mut().map(Line::next_event);
            let next = wakes
                .fold(end, Ord::min)
                .max(now + Duration::from_millis(100))
                .min(end);
            for line in &mut self.lines {
                line.set_now(next);
            }
            for client in &mut self.clients {
                client.tick(next);
            }
        }
    }

    fn counter(&mut self, worker: u32, name: &str) -> u64 {
        let line = &mut self.lines[worker as usize];
        let serving = line.serving;
        line.counter(serving, name)
    }

    /// The peers that each worker shows.
    fn shown(&mut self) -> Vec<Vec<String>> {
        let of = |line: &mut Line| {
            line.status()
                .peers
                .into_iter()
                .map(|peer| peer.name)
                .collect()
        };
        self.lines.iter_mut().map(of).collect()
    }

    /// The only flow of a peer on its worker.
    fn flow(&mut self, number: u8) -> DatagramEnd {
        let home = home(&self.clients[usize::from(number) - 1]);
        let flows = self.lines[home as usize]
            .generation(0)
            .host
            .app
            .flows()
            .to_vec();
        let mut own = flows
            .into_iter()
            .filter(|flow| flow.info().peer == Some(public_text(number)));
        let flow = own.next().expect("a flow");
        assert!(own.next().is_none(), "one flow");
        flow
    }

    /// Sends one datagram each way.
    fn exchange(&mut self, number: u8, flow: &DatagramEnd) {
        let place = usize::from(number) - 1;
        flow.read();
        let before = self.clients[place].received.len();
        self.send(number, b"up");
        self.run_for(Duration::from_millis(200));
        assert_eq!(flow.read(), [b"up"]);
        flow.write(b"down");
        self.run_for(Duration::from_millis(200));
        assert_eq!(self.clients[place].received.len(), before + 1);
    }
}

#[test]
fn each_peer_is_on_one_worker_whatever_its_address() {
    let mut workers = Workers::connected();
    let shown = workers.shown();
    let mut all = shown.concat();
    all.sort();
    let mut expected: Vec<String> = (1..=PEERS).map(public_text).collect();
    expected.sort();
    assert_eq!(all, expected);
    assert!(shown.iter().all(|peers| !peers.is_empty()), "{shown:?}");
    let mut elsewhere = 0;
    for number in 1..=PEERS {
        let client = &workers.clients[usize::from(number) - 1];
        let home = home(client);
        elsewhere += usize::from(worker_of(client.address) != home);
        assert!(shown[home as usize].contains(&public_text(number)));
        let flow = workers.flow(number);
        workers.exchange(number, &flow);
    }
    assert!(elsewhere > 0);
    assert_eq!(workers.passed, elsewhere);
    let passed = (0..COUNT).map(|k| workers.counter(k, "wireguard.initiations_passed"));
    assert_eq!(passed.sum::<u64>(), elsewhere as u64);
}

#[test]
fn a_peer_that_moves_keeps_its_session_and_its_flow_also_through_a_new_handshake() {
    let mut workers = Workers::connected();
    let flow = workers.flow(1);
    let home = home(&workers.clients[0]);
    for worker in [0, 1, 2, 1, 0] {
        workers.move_to(1, worker);
        let before = responses(&workers.clients[0]).len();
        workers.exchange(1, &flow);
        assert_eq!(responses(&workers.clients[0]).len(), before);
        workers.handshake(1);
        workers.run_for(Duration::from_secs(1));
        workers.exchange(1, &flow);
        let responses = responses(&workers.clients[0]);
        assert_eq!(responses.len(), before + 1);
        assert!(responses.iter().all(|it| u32::from(it[7]) % COUNT == home));
    }
    assert!(!flow.gone());
}

#[test]
fn an_initiation_that_a_stranger_repeats_elsewhere_is_refused() {
    let mut workers = Workers::connected();
    let flow = workers.flow(1);
    let home = home(&workers.clients[0]);
    let initiation = workers.handshake(1);
    assert_eq!(initiation[0], INITIATION);
    workers.run_for(Duration::from_secs(1));
    let replayed = workers.counter(home, "wireguard.dropped.replay");
    let endpoint = |workers: &mut Workers| {
        let peers = workers.lines[home as usize].status().peers;
        peers
            .into_iter()
            .find(|peer| peer.name == public_text(1))
            .unwrap()
            .endpoint
    };
    let before = endpoint(&mut workers);
    for port in 0..COUNT as u16 {
        let stranger = SocketAddr::new([203, 0, 113, 1].into(), 6000 + port);
        workers.arrive(stranger, &initiation);
        workers.run_for(Duration::from_secs(1));
    }
    assert_eq!(
        workers.counter(home, "wireguard.dropped.replay"),
        replayed + u64::from(COUNT)
    );
    assert_eq!(endpoint(&mut workers), before);
    workers.exchange(1, &flow);
}

/// The worker that an address leads to gives the cookies, whoever has the peer.
#[test]
fn a_peer_that_has_proven_its_address_is_answered_by_a_busy_home() {
    let mut workers = Workers::new(&config("[Watm]\nHandshakesPerSecond = 1\n"));
    workers.send(1, b"first");
    workers.run_for(Duration::from_secs(1));
    let home = home(&workers.clients[0]);
    let other = (home + 1) % COUNT;
    workers.move_to(1, other);
    // Both workers are busy with others from now on.
    let busy = |workers: &mut Workers| {
        for number in 2..=PEERS {
            for worker in [home, other] {
                workers.move_to(number, worker);
                workers.handshake(number);
                workers.run_for(Duration::ZERO);
            }
        }
    };
    busy(&mut workers);
    workers.handshake(1);
    workers.run_for(Duration::from_millis(50));
    let cookies = |client: &Client| client.came_of_type(3);
    assert_eq!(
        (
            cookies(&workers.clients[0]),
            responses(&workers.clients[0]).len()
        ),
        (1, 1)
    );
    workers.clients[0].alive = false;
    workers.run_for(Duration::from_secs(6));
    workers.clients[0].alive = true;
    busy(&mut workers);
    workers.handshake(1);
    workers.run_for(Duration::from_millis(50));
    assert_eq!(cookies(&workers.clients[0]), 1);
    assert_eq!(responses(&workers.clients[0]).len(), 2);
}

#[test]
fn a_reload_adds_and_removes_peers_on_their_workers_alone() {
    let mut workers = Workers::connected();
    let before = workers.shown();
    let flows: Vec<DatagramEnd> = (1..=PEERS).map(|number| workers.flow(number)).collect();
    let peer = |number: u8| peer_config(number, &format!("AllowedIPs = 10.0.0.{number}/32"));
    // All but the first, and a new one before them.
    let config = server_config(
        &(PEERS + 1..PEERS + 2)
            .chain(2..=PEERS)
            .map(peer)
            .collect::<String>(),
    );
    for line in &mut workers.lines {
        let generation = line.newest();
        let config = config.as_bytes();
        generation
            .server
            .reconfigure(config, &mut generation.host)
            .unwrap();
    }
    workers.clients.push(Client::new(PEERS + 1));
    workers.send(PEERS + 1, b"first");
    workers.run_for(Duration::from_secs(1));
    let mut after = workers.shown();
    let new = home(&workers.clients[usize::from(PEERS)]);
    assert_eq!(after[new as usize].remove(0), public_text(PEERS + 1));
    let kept = |peers: &Vec<String>| {
        let known = peers.iter().filter(|peer| **peer != public_text(1));
        known.cloned().collect()
    };
    assert_eq!(after, before.iter().map(kept).collect::<Vec<Vec<_>>>());
    assert!(flows[0].gone());
    for number in 2..=PEERS {
        workers.exchange(number, &flows[usize::from(number) - 1]);
    }
    // The one that is gone is unknown wherever it comes from.
    for worker in 0..COUNT {
        workers.move_to(1, worker);
        workers.handshake(1);
        workers.run_for(Duration::from_secs(1));
        assert_eq!(workers.counter(worker, "wireguard.dropped.unknown_peer"), 1);
    }
}

#[test]
fn sessions_and_flows_go_on_through_swaps_of_all_workers() {
    let mut workers = Workers::connected();
    let flow = workers.flow(1);
    let home = home(&workers.clients[0]);
    for swap in 1..=6 {
        for line in &mut workers.lines {
            assert_eq!(line.swap(&config("")), Ok(swap));
        }
        // At first the session is that of the generation before.
        workers.move_to(1, swap % COUNT);
        workers.exchange(1, &flow);
        workers.handshake(1);
        workers.run_for(Duration::from_secs(30));
        workers.exchange(1, &flow);
        for response in responses(&workers.clients[0]) {
            assert_eq!(u32::from(response[7]) % COUNT, home);
        }
    }
    assert!(!flow.gone());
}

#[test]
fn a_peer_may_not_use_the_addresses_of_one_on_another_worker() {
    let any = |number| peer_config(number, "AllowedIPs = 0.0.0.0/0");
    for owner in 2..=PEERS {
        let own = peer_config(owner, &format!("AllowedIPs = 10.0.0.{owner}/32"));
        let mut workers = Workers::new(&server_config(&(any(1) + &own)));
        let now = workers.lines[0].now();
        workers.clients[0].send(&udp(owner, 7, b"forged"), now);
        workers.clients[0].send(&udp(1, 7, b"own"), now);
        workers.run_for(Duration::from_secs(1));
        let home = home(&workers.clients[0]);
        assert_eq!(
            workers.counter(home, "wireguard.dropped.source_not_allowed"),
            1
        );
        assert_eq!(workers.flow(1).read(), [b"own"]);
    }
}

#[test]
fn one_worker_alone_calls_a_peer_with_an_endpoint() {
    let client = Client::new(1);
    let endpoint = format!("AllowedIPs = 10.0.0.1/32\nEndpoint = {}", client.address);
    let mut workers = Workers::new(&server_config(&peer_config(1, &endpoint)));
    workers.run_for(Duration::from_secs(3));
    assert_eq!(workers.clients[0].came_of_type(INITIATION), 1);
    let sent = (0..COUNT).map(|worker| workers.counter(worker, "wireguard.initiations_sent"));
    assert_eq!(sent.sum::<u64>(), 1);
    let handshakes = (0..COUNT).map(|worker| workers.counter(worker, "wireguard.handshakes"));
    assert_eq!(handshakes.sum::<u64>(), 1);
}
