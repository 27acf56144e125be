//! The statements of a script.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_core::Instant;
use watm_netstack::Algorithm;

use super::connection::{Connection, pattern};
use super::fields::{compare, describe, make};
use super::receiver::{Answer, Measures, Path, Piece, Receiver};
use super::runner::{PEER, Packet, Runner};
use super::segment::{ACK, CWR, Damage, ECE, FIN, SYN, Segment};
use super::values::{Names, duration, durations, number, range, whole, words};
use crate::support::packets;

/// The statements that come before the first packet.
const SETTINGS: [&str; 6] = ["ip", "mtu", "isn", "wrap", "budget", "congestion"];
/// The statements that do not end a run.
const QUIET: [&str; 6] = ["run", "expect", "set", "app", "mark", "end"];

type Outcome = Result<(), String>;

impl Runner {
    /// Runs lines, of which the first has number `first`.
    pub fn run(&mut self, lines: &[&str], first: usize) -> Outcome {
        let mut index = 0;
        while index < lines.len() {
            self.line = first + index + 1;
            let words = words(lines[index])?;
            index += 1;
            match words.first().map(String::as_str) {
                None => {}
                Some("repeat") => {
                    let length = block(&lines[index..])?;
                    self.repeat(&words[1..], &lines[index..index + length], first + index)?;
                    index += length + 1;
                }
                Some(_) => self.timed(&words)?,
            }
        }
        Ok(())
    }

    fn repeat(&mut self, words: &[String], lines: &[&str], first: usize) -> Outcome {
        let [count] = words else {
            return Err("repeat needs a count".into());
        };
        let name = ["$i", "$j", "$k"]
            .get(self.depth)
            .ok_or("too many nested blocks")?;
        let count = whole(count, &self.values())?;
        self.depth += 1;
        for index in 0..count {
            self.names.insert((*name).into(), index as f64);
            self.run(lines, first)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Runs a statement with its time.
    fn timed(&mut self, words: &[String]) -> Outcome {
        match words[0].strip_prefix('+') {
            Some(time) => {
                let (least, most) = durations(time)?;
                self.statement(&words[1..], Some((least, most)))
            }
            None => self.statement(words, None),
        }
    }

    fn statement(&mut self, words: &[String], time: Option<(Duration, Duration)>) -> Outcome {
        let Some((verb, rest)) = words.split_first() else {
            return Err("a time without a statement".into());
        };
        if SETTINGS.contains(&verb.as_str()) {
            return self.configure(verb, rest);
        }
        self.begin()?;
        if !QUIET.contains(&verb.as_str()) {
            self.receiver = None;
        }
        if verb.starts_with('>') {
            return self.expect_packet(verb, rest, time);
        }
        if let Some((least, most)) = time {
            if least != most {
                return Err("only expected segments have a range of times".into());
            }
            let until = self.now() + least;
            self.advance(until, false)?;
        }
        if !matches!(
            verb.as_str(),
            "skip" | "run" | "ignore" | "set" | "expect" | "app" | "use" | "mark"
        ) {
            self.settle()?;
            self.nothing_left()?;
        }
        match verb.as_str() {
            "<" => self.inject(rest, true),
            "<&" => self.inject(rest, false),
            "accept" => self.accept(rest),
            "dial" => self.dial(rest),
            "app" => self.application(rest),
            "expect" => self.expect(rest),
            "quiet" => self.quiet(rest),
            "skip" => self.skip(rest),
            "ignore" => self.ignore(rest),
            "run" => self.run_path(rest),
            "use" => self.use_connection(rest),
            "set" => self.set(rest),
            "mark" => {
                self.mark = self.now();
                Ok(())
            }
            "path-mtu" => self.path_mtu(rest),
            other => Err(format!("{other:?} is no statement")),
        }
    }

    fn configure(&mut self, verb: &str, words: &[String]) -> Outcome {
        let [value] = words else {
            return Err(format!("{verb} needs one value"));
        };
        if self.begun {
            return Err(format!("{verb} comes before the first packet"));
        }
        if verb == "congestion" {
            self.setup.config.congestion = algorithm(value)?;
            return Ok(());
        }
        let value = whole(value, &Names::new())?;
        match verb {
            "ip" => self.setup.is_ipv6 = value == 6,
            "mtu" => self.setup.config.mtu = value as usize,
            "isn" => self.setup.their_first = value as u32,
            "wrap" => self.setup.wrap = Some(value as u32),
            _ => self.setup.config.buffer_budget = value as usize,
        }
        Ok(())
    }

    /// The names that expressions may use.
    fn values(&self) -> Names {
        let mut names = self.names.clone();
        let Some(one) = self.connections.get(self.current) else {
            return names;
        };
        let headers = if self.setup.is_ipv6 { 60 } else { 40 };
        let most = (self.mtu() - headers) as i64;
        let options = if one.timestamps { 12 } else { 0 };
        let mut put = |name: &str, value: f64| names.insert(name.into(), value);
        put("mss", (most.min(one.their_mss) - options) as f64);
        put("nxt", one.nxt as f64);
        put("una", one.ack as f64);
        put("rcv", one.rcv as f64);
        put("edge", one.edge as f64);
        put("win", (one.edge - one.rcv) as f64);
        put("seq", one.seq as f64);
        put("tsval", f64::from(one.our_clock));
        put("rtt", self.rtt.as_secs_f64());
        put("since", (self.now() - self.mark).as_secs_f64());
        put("flows", self.bench.stack.flows() as f64);
        put("held", self.bench.stack.held_bytes() as f64);
        put("idle", f64::from(u8::from(self.bench.stack.is_idle())));
        if let Some(stream) = one.stream(&self.bench.app) {
            put("unread", stream.waiting() as f64);
            put("unsent", stream.unsent() as f64);
        }
        names
    }

    fn inject(&mut self, words: &[String], last: bool) -> Outcome {
        if words.first().is_some_and(|word| word == "icmp") {
            return self.inject_icmp(&words[1..]);
        }
        let names = self.values();
        let now = self.now();
        let one = &self.connections[self.current];
        let clock = one
            .their_clock
            .map(|(value, since)| value.wrapping_add((now - since).as_millis() as u32));
        let made = make(words, one, clock, &names)?;
        let packet = made.segment.packet(one.theirs, one.ours, made.damage);
        self.note(&format!("< {}", words.join(" ")));
        let one = self.connection();
        let options = &made.segment.options;
        if made.segment.has(SYN) && !made.damage.checksum && one.seq == 0 {
            one.their_scale = options.scale;
            one.their_mss = options.mss.map_or(536, i64::from);
            one.their_clock = options.timestamps.map(|(value, _)| (value, now));
            one.timestamps &= one.their_clock.is_some();
        }
        if !made.damage.checksum && made.damage.offset.is_none() {
            if made.start <= one.seq && made.end > one.seq {
                one.seq = made.end;
            }
            if let Some(ack) = made.ack.filter(|ack| *ack <= one.nxt) {
                one.ack = one.ack.max(ack);
                one.their_edge = one.their_edge.max(ack + made.win);
            }
            if made.segment.has(SYN) {
                one.their_edge = one.their_edge.max(1 + made.win);
            }
            if made.segment.has(FIN) {
                one.their_end = Some(made.end);
            }
            one.win = made.win;
        }
        self.batch.push(packet);
        match last {
            true => {
                let batch = std::mem::take(&mut self.batch);
                self.deliver(&batch)
            }
            false => Ok(()),
        }
    }

    /// An ICMP error about a segment of the stack: its kind, its MTU, and the segment's number.
    fn inject_icmp(&mut self, words: &[String]) -> Outcome {
        let (kind, mtu, number) = match words {
            [kind, mtu, seq, number] if kind == "too-big" && seq == "seq" => {
                (kind, Some(mtu), number)
            }
            [kind, seq, number] if seq == "seq" => (kind, None, number),
            _ => return Err("write: icmp too-big MTU seq N, or icmp KIND seq N".into()),
        };
        let names = self.values();
        let mtu = mtu.map_or(Ok(0), |mtu| whole(mtu, &names))? as u32;
        let number = whole(number, &names)?;
        let one = &self.connections[self.current];
        let is_ipv6 = one.ours.is_ipv6();
        let (kind, code) = match (kind.as_str(), is_ipv6) {
            ("too-big", false) => (3, 4),
            ("too-big", true) => (2, 0),
            ("net", false) => (3, 0),
            ("host", false) => (3, 1),
            ("port", false) => (3, 3),
            ("prohibited", false) => (3, 13),
            ("quench", false) => (4, 0),
            ("net", true) => (1, 0),
            ("prohibited", true) => (1, 1),
            ("host", true) => (1, 3),
            ("port", true) => (1, 4),
            (other, _) => return Err(format!("{other:?} is no ICMP error")),
        };
        let mut message = vec![kind, code, 0, 0];
        message.extend(mtu.to_be_bytes());
        let segment = Segment {
            flags: ACK,
            sequence: one.absolute_ours(number),
            ..Segment::default()
        };
        message.extend(segment.packet(one.ours, one.theirs, Damage::default()));
        let router: IpAddr = match is_ipv6 {
            true => "fd00::9".parse().expect("a constant"),
            false => "10.0.0.9".parse().expect("a constant"),
        };
        let packet = packets::icmp(router, one.ours.ip(), &message);
        self.note("< icmp");
        self.deliver(&[packet])
    }

    /// A handshake of the peer, with its options.
    fn accept(&mut self, words: &[String]) -> Outcome {
        let offer = self.offer(words)?;
        self.lines(&[
            format!("< SYN seq 0 win {} {}", offer.win.min(65535), offer.options),
            format!("> SYN+ACK seq 0 ack 1 {}", offer.expected),
            format!(
                "+{}us < ACK seq 1 ack 1 win {}",
                offer.rtt.as_micros(),
                offer.win
            ),
        ])
    }

    /// A handshake of the stack, with the peer's options.
    fn dial(&mut self, words: &[String]) -> Outcome {
        let offer = self.offer(words)?;
        self.lines(&[
            "app connect".into(),
            "> SYN seq 0".into(),
            format!(
                "+{}us < SYN+ACK seq 0 ack 1 win {} {}",
                offer.rtt.as_micros(),
                offer.win.min(65535),
                offer.options
            ),
            "+0..5ms > ACK seq 1:1 ack 1".into(),
        ])?;
        // The window of a SYN is not scaled.
        let one = self.connection();
        one.win = offer.win;
        Ok(())
    }

    fn lines(&mut self, lines: &[String]) -> Outcome {
        for line in lines {
            self.timed(&words(line)?)?;
        }
        Ok(())
    }

    fn offer(&mut self, words: &[String]) -> Result<Offer, String> {
        let names = self.values();
        let (mut mss, mut scale, mut sack) = ("1380", "7", true);
        let (mut options, mut expected) = (String::new(), String::new());
        let mut win = None;
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "mss" => mss = value()?,
                "scale" => scale = value()?,
                "win" => win = Some(whole(value()?, &names)?),
                "rtt" => self.rtt = duration(value()?)?,
                "ts" => {
                    options += &format!(" ts {}", value()?);
                    expected += " withts";
                }
                "nomss" => mss = "",
                "noscale" => scale = "",
                "nosack" => sack = false,
                other => return Err(format!("a handshake knows no {other:?}")),
            }
        }
        if !mss.is_empty() {
            options += &format!(" mss {mss}");
        }
        if !scale.is_empty() {
            options += &format!(" scale {scale}");
        }
        if sack {
            options += " sackok";
        }
        let shift = whole(if scale.is_empty() { "0" } else { scale }, &names)?.min(14);
        Ok(Offer {
            win: win.unwrap_or(65535 << shift),
            rtt: self.rtt,
            options,
            expected,
        })
    }

    fn expect_packet(
        &mut self,
        verb: &str,
        words: &[String],
        time: Option<(Duration, Duration)>,
    ) -> Outcome {
        if words.first().is_some_and(|word| word == "data") {
            return self.expect_data(&words[1..], time);
        }
        let names = self.values();
        let (least, most) = time.unwrap_or_default();
        let (earliest, latest) = (self.now() + least, self.now() + most);
        let mut matched = 0;
        loop {
            if self.sent.is_empty() {
                let until = if matched == 0 || verb == ">" {
                    latest
                } else {
                    self.now()
                };
                self.advance(until, true)?;
            }
            let Some(packet) = self.sent.front() else {
                return match verb {
                    ">" => Err(format!("expected {}, got nothing", words.join(" "))),
                    ">+" if matched == 0 => {
                        Err(format!("expected {}, got nothing", words.join(" ")))
                    }
                    _ => Ok(()),
                };
            };
            let got = self.describe(packet);
            let one = &self.connections[packet.connection];
            let differs = match packet.connection == self.current {
                true => compare(words, &packet.segment, one, &names)?,
                false => Some("connection".into()),
            };
            let at = packet.at;
            match (differs, verb) {
                (Some(differs), ">") => {
                    let expected = words.join(" ");
                    return Err(format!("expected {expected}, got {got} (other: {differs})"));
                }
                (Some(differs), ">+") if matched == 0 => {
                    let expected = words.join(" ");
                    return Err(format!("expected {expected}, got {got} (other: {differs})"));
                }
                (Some(_), _) => return Ok(()),
                (None, _) => {}
            }
            if at < earliest {
                let early = earliest - at;
                return Err(format!("{early:?} too early: {got}"));
            }
            self.sent.pop_front();
            matched += 1;
            if matches!(verb, ">" | ">?") {
                return Ok(());
            }
            if !matches!(verb, ">*" | ">+") {
                return Err(format!("{verb:?} is no statement"));
            }
        }
    }

    fn describe(&self, packet: &Packet) -> String {
        let label = &self.labels[packet.connection];
        let text = describe(&packet.segment, &self.connections[packet.connection]);
        match packet.connection == self.current {
            true => text,
            false => format!("{text} of connection {label}"),
        }
    }

    /// Bytes in any number of segments, each as long as the MSS if `full` follows, but for the last.
    fn expect_data(&mut self, words: &[String], time: Option<(Duration, Duration)>) -> Outcome {
        let names = self.values();
        let [bytes, rest @ ..] = words else {
            return Err("data needs bytes, such as 1:1001".into());
        };
        let (from, to) = bytes
            .split_once(':')
            .ok_or("data needs bytes, such as 1:1001")?;
        let (mut from, to) = (whole(from, &names)?, whole(to, &names)?);
        let full = rest.iter().any(|word| word == "full");
        let fin = rest.iter().any(|word| word == "fin");
        if rest
            .iter()
            .any(|word| !matches!(word.as_str(), "full" | "fin"))
        {
            return Err("after data come only full and fin".into());
        }
        // A stack that paces takes a part of the round trip.
        let (least, most) =
            time.unwrap_or((Duration::ZERO, self.rtt / 2 + Duration::from_millis(1)));
        let (earliest, latest) = (self.now() + least, self.now() + most);
        let mss = names["mss"] as i64;
        while from < to {
            self.advance_to_packet(latest)?;
            let Some(packet) = self.sent.pop_front() else {
                return Err(format!("expected bytes from {from} to {to}, got nothing"));
            };
            let got = self.describe(&packet);
            let one = &self.connections[packet.connection];
            let start = one.our_number(packet.segment.sequence);
            let length = packet.segment.payload.len() as i64;
            let last = from + length == to;
            if packet.connection != self.current
                || start != from
                || length == 0
                || from + length > to
            {
                return Err(format!("expected bytes from {from} to {to}, got {got}"));
            }
            if packet.at < earliest {
                return Err(format!("{:?} too early: {got}", earliest - packet.at));
            }
            if full && !last && length != mss {
                return Err(format!("expected a full segment, got {got}"));
            }
            if packet.segment.has(FIN) {
                if !fin || !last {
                    return Err(format!("expected no FIN, got {got}"));
                }
                return Ok(());
            }
            from += length;
        }
        match fin {
            // It has its own segment.
            true => {
                let words = ["FIN+ACK".into(), "seq".into(), format!("{to}:{to}")];
                self.expect_packet(">", &words, Some((Duration::ZERO, latest - self.now())))
            }
            false => Ok(()),
        }
    }

    fn advance_to_packet(&mut self, latest: Instant) -> Outcome {
        match self.sent.is_empty() {
            true => self.advance(latest, true),
            false => Ok(()),
        }
    }

    fn quiet(&mut self, words: &[String]) -> Outcome {
        let [time] = words else {
            return Err("quiet needs a time".into());
        };
        let until = self.now() + duration(time)?;
        self.advance(until, true)?;
        let early = until - self.now();
        self.nothing_left()
            .map_err(|reason| format!("{reason}, {early:?} before the end of the silence"))
    }

    fn skip(&mut self, words: &[String]) -> Outcome {
        if let [time] = words {
            let until = self.now() + duration(time)?;
            self.advance(until, false)?;
        }
        self.settle()?;
        self.sent.clear();
        Ok(())
    }

    fn ignore(&mut self, words: &[String]) -> Outcome {
        self.ignores_acks = match words {
            [what] if what == "acks" => true,
            [what] if what == "nothing" => false,
            _ => return Err("write: ignore acks, or ignore nothing".into()),
        };
        Ok(())
    }

    fn path_mtu(&mut self, words: &[String]) -> Outcome {
        let [mtu] = words else {
            return Err("path-mtu needs a value".into());
        };
        let mtu = whole(mtu, &self.values())? as usize;
        self.bench.stack.set_path_mtu(PEER, Some(mtu));
        self.settle()
    }

    /// Changes to a connection by its name; one with a new name begins.
    fn use_connection(&mut self, words: &[String]) -> Outcome {
        let (name, port) = match words {
            [name] => (name, None),
            [name, word, port] if word == "port" => (name, Some(port)),
            _ => return Err("write: use NAME, or use NAME port N".into()),
        };
        if let Some(index) = self.labels.iter().rposition(|label| label == name) {
            self.current = index;
            return Ok(());
        }
        let port = port.map_or(Ok(40000), |port| whole(port, &self.values()))? as u16;
        let (theirs, ours) = self.ends(port);
        let streams = self.bench.app.streams().len();
        let first = self.setup.their_first.wrapping_add(10_000_000);
        self.connections
            .push(Connection::new(theirs, ours, first, streams));
        self.labels.push(name.clone());
        self.current = self.connections.len() - 1;
        Ok(())
    }

    fn set(&mut self, words: &[String]) -> Outcome {
        let [name, value] = words else {
            return Err("set needs a name and a value".into());
        };
        let value = self.value(value)?;
        self.names.insert(name.clone(), value);
        Ok(())
    }

    /// The value of an expression, a counter, or a difference of initial numbers.
    fn value(&self, text: &str) -> Result<f64, String> {
        if let Some(name) = text.strip_prefix("counter:") {
            let full = format!("netstack.{name}");
            let counter = self
                .bench
                .stack
                .counters()
                .find(|(known, _)| *known == full);
            return match counter {
                Some((_, count)) => Ok(count as f64),
                None => Err(format!("there is no counter {name}")),
            };
        }
        if let Some((from, to)) = text
            .strip_prefix("isn:")
            .and_then(|both| both.split_once(':'))
        {
            let first = |name: &str| {
                let index = self.labels.iter().rposition(|label| label == name);
                index.and_then(|index| self.connections[index].our_first)
            };
            let (from, to) = first(from)
                .zip(first(to))
                .ok_or("a connection has no number")?;
            return Ok(f64::from(to.wrapping_sub(from)));
        }
        number(text, &self.values())
    }

    fn expect(&mut self, words: &[String]) -> Outcome {
        let [what, bounds] = words else {
            return Err("expect needs a value and its range".into());
        };
        self.settle()?;
        let value = self.value(what)?;
        let bounds = range(bounds, &self.values())?;
        match bounds.has(value) {
            true => Ok(()),
            false => Err(format!("expected {what} in {bounds}, got {value}")),
        }
    }

    fn application(&mut self, words: &[String]) -> Outcome {
        let names = self.values();
        let (verb, rest) = words.split_first().ok_or("app needs an action")?;
        let stream = self.connections[self.current].stream(&self.bench.app);
        match (verb.as_str(), rest) {
            ("connect", []) => return self.connect(),
            ("refuse", [reason]) if reason == "all" => {
                self.bench.app.refuse = Some(watm_core::ErrorCode::ConnectionRefused);
                return Ok(());
            }
            ("is", states) => return self.expect_state(states),
            // Before there is a stream: of streams to come.
            ("room", [bytes]) => self.bench.app.room = Some(whole(bytes, &names)? as usize),
            _ => {}
        }
        let Some(stream) = stream else {
            return match verb.as_str() {
                "room" => Ok(()),
                _ => Err("the application has no stream yet".into()),
            };
        };
        let one = &mut self.connections[self.current];
        match (verb.as_str(), rest) {
            ("write", [text]) if text.starts_with('"') => {
                let text = text.as_bytes()[1..].to_vec();
                stream.write(&text);
                one.texts.push((one.written, text.clone()));
                one.written += text.len() as i64;
            }
            ("write", [count]) => {
                let count = whole(count, &names)?;
                let bytes: Vec<u8> = (one.written..one.written + count).map(pattern).collect();
                stream.write(&bytes);
                one.written += count;
            }
            ("endless", []) => one.endless = true,
            ("stop", []) => one.endless = false,
            ("close", []) => {
                one.closed = true;
                stream.close();
            }
            ("abort", []) => {
                one.closed = true;
                stream.abort();
            }
            ("room", [bytes]) => stream.make_room(whole(bytes, &names)? as usize),
            ("read", [text]) if text.starts_with('"') => {
                self.settle()?;
                let expected = &text.as_bytes()[1..];
                let got = stream.read_some(expected.len());
                if got != expected {
                    let got = String::from_utf8_lossy(&got).into_owned();
                    return Err(format!("expected to read {text}\", got {got:?}"));
                }
                self.connection().read += expected.len() as i64;
            }
            ("read", [count]) => {
                self.settle()?;
                let count = whole(count, &self.values())?;
                let got = stream.read_some(count as usize);
                if got.len() as i64 != count {
                    return Err(format!("expected to read {count} bytes, got {}", got.len()));
                }
                let one = self.connection();
                let wrong = (one.read..)
                    .zip(&got)
                    .find(|(offset, byte)| pattern(*offset) != **byte);
                if let Some((offset, _)) = wrong {
                    return Err(format!("the application read another byte at {offset}"));
                }
                one.read += count;
            }
            _ => return Err(format!("app {} is no action", words.join(" "))),
        }
        self.settle()
    }

    fn connect(&mut self) -> Outcome {
        let port = 5000 + self.current as u16;
        let (theirs, _) = self.ends(port);
        let end = self.bench.dial(PEER, theirs);
        let end = end.map_err(|error| format!("the stack does not dial: {error:?}"))?;
        let ours = match self.setup.is_ipv6 {
            true => crate::support::SOURCE_V6,
            false => crate::support::SOURCE_V4,
        };
        let first = self.connection().their_first;
        let ours = SocketAddr::new(ours, 0);
        *self.connection() = Connection::dialled(theirs, ours, first, end);
        self.settle()
    }

    fn expect_state(&mut self, states: &[String]) -> Outcome {
        self.settle()?;
        let stream = self.connections[self.current].stream(&self.bench.app);
        let mut states = states.iter().map(String::as_str);
        let Some(stream) = stream else {
            return match states.next() {
                Some("unopened") => Ok(()),
                _ => Err("the application has no stream".into()),
            };
        };
        let reset = stream.reset().map(|reason| format!("{reason:?}"));
        while let Some(state) = states.next() {
            let holds = match state {
                "open" => !stream.gone() && reset.is_none(),
                "ended" => stream.ended(),
                "unended" => !stream.ended(),
                "finished" => stream.finished(),
                "unfinished" => !stream.finished(),
                "gone" => stream.gone(),
                "connecting" => stream.is_connecting(),
                "connected" => stream.is_connected(),
                "unreset" => reset.is_none(),
                "reset" => reset.as_deref() == Some(states.next().ok_or("reset needs a reason")?),
                "unopened" => false,
                other => return Err(format!("{other:?} is no state")),
            };
            if !holds {
                let ended = if stream.ended() { "ended" } else { "unended" };
                let gone = if stream.gone() { "gone" } else { "open" };
                return Err(format!(
                    "not {state}; the stream is {ended}, {gone}, reset: {reset:?}"
                ));
            }
        }
        Ok(())
    }

    /// Lets a receiver answer for a time.
    fn run_path(&mut self, words: &[String]) -> Outcome {
        let path = Path::parse(words, self.rtt, &self.values())?;
        let begun = self.now();
        let end = begun + path.time;
        let acked = self.connections[self.current].ack;
        let mut receiver = self.receiver.take().unwrap_or_else(|| Receiver::new(acked));
        let mut measures = Measures::default();
        loop {
            self.settle()?;
            self.carry(&mut receiver, &mut measures, &path)?;
            let one = &self.connections[self.current];
            if path.until.is_some_and(|until| one.ack >= until) {
                break;
            }
            let events = [receiver.due(), self.bench.stack.poll_timeout()];
            let next = events.into_iter().flatten().min();
            let now = self.now();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.bench.app.set_now(end);
                self.settle()?;
                self.carry(&mut receiver, &mut measures, &path)?;
                if let Some(until) = path.until {
                    let acked = self.connections[self.current].ack;
                    return Err(format!("expected {until} acknowledged, got {acked}"));
                }
                break;
            };
            self.bench.app.set_now(next.max(now));
            let now = self.now();
            let answers = receiver.pass(&path, now);
            if let Some(answer) = answers.last() {
                measures.gap = !answer.blocks.is_empty();
            }
            let batch: Vec<_> = answers.iter().map(|answer| self.answer(answer)).collect();
            if self.bench.stack.poll_timeout().is_some_and(|at| at <= now) {
                self.time_out();
            }
            self.deliver(&batch)?;
        }
        self.receiver = Some(receiver);
        let took = (self.now() - begun).as_secs_f64();
        let values = [
            ("flight", measures.flight as f64),
            ("sent", measures.sent as f64),
            ("resent", measures.resent as f64),
            ("segments", measures.segments as f64),
            ("lost", measures.lost as f64),
            ("burst", measures.burst as f64),
            ("longest", measures.longest as f64),
            ("took", took),
        ];
        for (name, value) in values {
            self.names.insert(name.into(), value);
        }
        Ok(())
    }

    /// Gives the stack's packets to the path.
    fn carry(&mut self, receiver: &mut Receiver, measures: &mut Measures, path: &Path) -> Outcome {
        while let Some(packet) = self.sent.pop_front() {
            if packet.connection != self.current {
                return Err(format!("unexpected: {}", self.describe(&packet)));
            }
            let one = &self.connections[self.current];
            let start = one.our_number(packet.segment.sequence);
            let length = packet.segment.payload.len() as i64;
            let end = start + length + i64::from(packet.segment.has(FIN));
            if end == start {
                continue;
            }
            let piece = Piece {
                start,
                end,
                timestamp: packet.segment.options.timestamps.map(|(value, _)| value),
                marked: false,
                reduced: packet.segment.has(CWR),
            };
            measures.sent(piece, packet.before, one.ack, packet.at);
            // The longest of its pieces that pass as one.
            let whole = if packet.divisible { 0 } else { packet.length };
            let passes = receiver.carry(piece, whole, measures.segments, path, packet.at);
            measures.lost += u64::from(!passes);
        }
        Ok(())
    }

    /// The packet of an acknowledgement.
    fn answer(&mut self, answer: &Answer) -> Vec<u8> {
        let now = self.now();
        let one = &mut self.connections[self.current];
        one.ack = one.ack.max(answer.ack);
        one.their_edge = one.their_edge.max(answer.ack + one.win);
        let mut segment = Segment {
            flags: ACK | if answer.ece { ECE } else { 0 },
            sequence: one.absolute_theirs(one.seq),
            acknowledges: one.absolute_ours(answer.ack),
            window: (one.win >> one.their_shift()).min(65535) as u16,
            ..Segment::default()
        };
        let block =
            |(start, end): &(i64, i64)| (one.absolute_ours(*start), one.absolute_ours(*end));
        segment.options.blocks = answer.blocks.iter().map(block).collect();
        if let (true, Some((value, since))) = (one.timestamps, one.their_clock) {
            let value = value.wrapping_add((now - since).as_millis() as u32);
            segment.options.timestamps = Some((value, answer.echo.unwrap_or(one.our_clock)));
        }
        let packet = segment.packet(one.theirs, one.ours, Damage::default());
        let blocks = &answer.blocks;
        self.note(&format!("< ack {} sack {blocks:?}", answer.ack));
        packet
    }
}

/// A peer's SYN.
struct Offer {
    win: i64,
    rtt: Duration,
    options: String,
    expected: String,
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    match name {
        "cubic" => Ok(Algorithm::Cubic),
        "bbr" => Ok(Algorithm::Bbr),
        other => Err(format!("{other:?} is no congestion control")),
    }
}

/// The number of lines before the `end` of a block.
fn block(lines: &[&str]) -> Result<usize, String> {
    let mut depth = 0;
    for (index, line) in lines.iter().enumerate() {
        match words(line)?.first().map(String::as_str) {
            Some("repeat") => depth += 1,
            Some("end") if depth == 0 => return Ok(index),
            Some("end") => depth -= 1,
            _ => {}
        }
    }
    Err("a block without its end".into())
}
