//! The fields of a segment in a script: to make one, and to compare one with.

use super::connection::{Connection, pattern};
use super::segment::{ACK, CWR, Damage, ECE, FIN, FLAGS, PSH, RST, SYN, Segment, URG};
use super::values::{Names, Range, range, whole};

/// Reads `SYN+ACK`, and `-ECE` for a flag that must be absent. Returns both sets.
fn flags(text: &str) -> Result<(u8, u8), String> {
    let (mut set, mut clear) = (0, 0);
    for word in text.split('+').filter(|word| *word != "none") {
        let (name, into) = match word.strip_prefix('-') {
            Some(name) => (name, &mut clear),
            None => (word, &mut set),
        };
        let flag = FLAGS.iter().find(|(known, _)| *known == name);
        *into |= flag.ok_or_else(|| format!("{name:?} is no flag"))?.1;
    }
    Ok((set, clear))
}

/// The words of a line, one after the other.
struct Words<'a> {
    left: std::slice::Iter<'a, String>,
    names: &'a Names,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.left.next().map(String::as_str)
    }

    fn value(&mut self, of: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| format!("{of} needs a value"))
    }

    fn whole(&mut self, of: &str) -> Result<i64, String> {
        whole(self.value(of)?, self.names)
    }

    fn range(&mut self, of: &str) -> Result<Range, String> {
        range(self.value(of)?, self.names)
    }

    /// The pairs `A:B` that follow.
    fn pairs(&mut self) -> Result<Vec<(i64, i64)>, String> {
        let mut pairs = Vec::new();
        while let Some((start, end)) = self.left.as_slice().first().and_then(|w| w.split_once(':'))
        {
            pairs.push((whole(start, self.names)?, whole(end, self.names)?));
            self.left.next();
        }
        match pairs.is_empty() {
            true => Err("sack needs blocks, such as 1001:2001".into()),
            false => Ok(pairs),
        }
    }
}

/// A segment of the peer, to send.
pub struct Made {
    pub segment: Segment,
    pub damage: Damage,
    /// The number of its first byte or SYN, and after its last.
    pub start: i64,
    pub end: i64,
    /// The acknowledgement, if there is one, and the window in bytes.
    pub ack: Option<i64>,
    pub win: i64,
}

/// Makes a segment of the peer of a connection. `clock`: its timestamp, if it has a clock.
pub fn make(
    words: &[String],
    connection: &Connection,
    clock: Option<u32>,
    names: &Names,
) -> Result<Made, String> {
    let mut words = Words {
        left: words.iter(),
        names,
    };
    let (set, _) = flags(words.value("<")?)?;
    let mut segment = Segment {
        flags: set,
        ..Segment::default()
    };
    let is_syn = set & SYN != 0;
    let mut damage = Damage::default();
    let (mut start, mut end) = (connection.seq, None);
    let (mut ack, mut win) = (connection.ack, connection.win);
    let (mut value, mut echo) = (clock, None);
    let agreed = connection.timestamps && !is_syn;
    let mut stamps = agreed || is_syn && connection.their_clock.is_some();
    while let Some(word) = words.next() {
        match word {
            "seq" => {
                let text = words.value(word)?;
                let (from, to) = text.split_once(':').unwrap_or((text, ""));
                start = whole(from, names)?;
                if !to.is_empty() {
                    end = Some(whole(to, names)?);
                }
            }
            "len" => end = Some(start + words.whole(word)?),
            "ack" => ack = words.whole(word)?,
            "win" => win = words.whole(word)?,
            "urg" => segment.urgent = words.whole(word)? as u16,
            "mss" => segment.options.mss = Some(words.whole(word)? as u16),
            "scale" => segment.options.scale = Some(words.whole(word)? as u8),
            "sackok" => segment.options.sack_permitted = true,
            "sack" => {
                let block = |(start, end)| {
                    (
                        connection.absolute_ours(start),
                        connection.absolute_ours(end),
                    )
                };
                segment.options.blocks = words.pairs()?.into_iter().map(block).collect();
            }
            "ts" => {
                value = Some(words.whole(word)? as u32);
                stamps = true;
            }
            "ecr" => echo = Some(words.whole(word)? as u32),
            "nots" => stamps = false,
            "raw" => segment.options.raw = hexadecimal(words.value(word)?)?,
            "badsum" => damage.checksum = true,
            "doff" => damage.offset = Some(words.whole(word)? as u8),
            "ect1" => segment.ecn = 1,
            "ect0" => segment.ecn = 2,
            "ce" => segment.ecn = 3,
            "fill" => {
                let byte = words.whole(word)? as u8;
                let length = end.unwrap_or(start) - start;
                segment.payload = vec![byte; length.max(0) as usize];
            }
            text if text.starts_with('"') => {
                segment.payload = text.as_bytes()[1..].to_vec();
                end = Some(start + segment.payload.len() as i64);
            }
            other => return Err(format!("{other:?} is no field of a segment")),
        }
    }
    let end = end.unwrap_or(start);
    if end < start || end - start > 65_000 {
        return Err(format!("{start}:{end} is no range of bytes"));
    }
    // The bytes behind a SYN begin one later, as its number is the first.
    let first = start - i64::from(!is_syn);
    if segment.payload.is_empty() {
        segment.payload = (first..first + end - start).map(pattern).collect();
    }
    let shift = if is_syn { 0 } else { connection.their_shift() };
    if win >> shift > 65535 {
        return Err(format!("a window of {win} bytes does not fit"));
    }
    segment.window = (win >> shift) as u16;
    segment.sequence = connection.absolute_theirs(start);
    let acknowledges = set & ACK != 0;
    if acknowledges {
        segment.acknowledges = connection.absolute_ours(ack);
    }
    if stamps && set & RST == 0 || echo.is_some() {
        let echo = echo.unwrap_or(if acknowledges {
            connection.our_clock
        } else {
            0
        });
        segment.options.timestamps = Some((value.unwrap_or(0), echo));
    }
    let counts = i64::from(is_syn) + i64::from(set & FIN != 0);
    Ok(Made {
        start,
        end: end + counts,
        ack: acknowledges.then_some(ack),
        win: win >> shift << shift,
        segment,
        damage,
    })
}

fn hexadecimal(text: &str) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        u8::from_str_radix(pair, 16).map_err(|_| format!("{pair:?} is no byte"))
    });
    bytes.collect()
}

/// Describes a segment of the stack as a script would.
pub fn describe(segment: &Segment, connection: &Connection) -> String {
    let names = FLAGS.iter().filter(|(_, flag)| segment.has(*flag));
    let names: Vec<_> = names.map(|(name, _)| *name).collect();
    let start = connection.our_number(segment.sequence);
    let shift = if segment.has(SYN) {
        0
    } else {
        connection.our_shift()
    };
    let mut text = match names.is_empty() {
        true => "none".to_string(),
        false => names.join("+"),
    };
    text += &format!(" seq {start}:{}", start + segment.payload.len() as i64);
    if segment.has(ACK) {
        text += &format!(" ack {}", connection.their_number(segment.acknowledges));
    }
    text += &format!(" win {}", i64::from(segment.window) << shift);
    let options = &segment.options;
    if let Some(mss) = options.mss {
        text += &format!(" mss {mss}");
    }
    if let Some(scale) = options.scale {
        text += &format!(" scale {scale}");
    }
    if options.sack_permitted {
        text += " sackok";
    }
    if let Some((value, echo)) = options.timestamps {
        text += &format!(" ts {value} ecr {echo}");
    }
    if !options.blocks.is_empty() {
        text += " sack";
        for (start, end) in blocks(segment, connection) {
            text += &format!(" {start}:{end}");
        }
    }
    match segment.ecn {
        0 => {}
        1 => text += " ect1",
        2 => text += " ect0",
        _ => text += " ce",
    }
    text
}

/// The reported blocks, relative to the peer's SYN.
fn blocks(segment: &Segment, connection: &Connection) -> Vec<(i64, i64)> {
    let number = |number| connection.their_number(number);
    let blocks = segment.options.blocks.iter();
    blocks
        .map(|(start, end)| (number(*start), number(*end)))
        .collect()
}

/// Compares a segment of the stack with the words of an expectation. Returns what differs.
/// Errors: the expectation is malformed.
pub fn compare(
    words: &[String],
    segment: &Segment,
    connection: &Connection,
    names: &Names,
) -> Result<Option<String>, String> {
    let mut words = Words {
        left: words.iter(),
        names,
    };
    let mut wrong = Vec::new();
    let expected = words.value(">")?;
    if expected == "reset" {
        if segment.flags & (RST | SYN | FIN) != RST {
            wrong.push("flags".to_string());
        }
    } else if expected != "any" {
        let (set, clear) = flags(expected)?;
        let exact = SYN | FIN | RST | ACK;
        let differs = (segment.flags ^ set) & exact != 0;
        if differs || segment.flags & set != set || segment.flags & clear != 0 {
            wrong.push("flags".to_string());
        }
    }
    let start = connection.our_number(segment.sequence);
    let length = segment.payload.len() as i64;
    let options = &segment.options;
    let shift = if segment.has(SYN) {
        0
    } else {
        connection.our_shift()
    };
    let mut check = |name: &str, holds: bool| {
        if !holds {
            wrong.push(name.to_string());
        }
    };
    let optional = |range: Range, value: Option<i64>| value.is_some_and(|v| range.has(v as f64));
    while let Some(word) = words.next() {
        match word {
            "seq" => {
                let text = words.value(word)?;
                match text.split_once(':') {
                    Some((from, to)) => {
                        check(word, whole(from, names)? == start);
                        check("length", whole(to, names)? == start + length);
                    }
                    None => check(word, range(text, names)?.has(start as f64)),
                }
            }
            "len" => check(word, words.range(word)?.has(length as f64)),
            "ack" => {
                let ack = connection.their_number(segment.acknowledges);
                check(word, words.range(word)?.has(ack as f64));
            }
            "win" => {
                let window = i64::from(segment.window) << shift;
                check(word, words.range(word)?.has(window as f64));
            }
            "mss" => check(
                word,
                optional(words.range(word)?, options.mss.map(i64::from)),
            ),
            "scale" => check(
                word,
                optional(words.range(word)?, options.scale.map(i64::from)),
            ),
            "ts" => {
                let value = options.timestamps.map(|(value, _)| i64::from(value));
                check(word, optional(words.range(word)?, value));
            }
            "ecr" => {
                let echo = options.timestamps.map(|(_, echo)| i64::from(echo));
                check(word, optional(words.range(word)?, echo));
            }
            "sack" => check(word, words.pairs()? == blocks(segment, connection)),
            "sack-first" => {
                let first = blocks(segment, connection).into_iter().take(1);
                check(word, words.pairs()? == first.collect::<Vec<_>>());
            }
            "sack-has" => {
                let told = blocks(segment, connection);
                check(
                    word,
                    words.pairs()?.iter().all(|block| told.contains(block)),
                );
            }
            "nosack" => check(word, options.blocks.is_empty()),
            "sackok" => check(word, options.sack_permitted),
            "nosackok" => check(word, !options.sack_permitted),
            "nots" => check(word, options.timestamps.is_none()),
            "withts" => check(word, options.timestamps.is_some()),
            "noscale" => check(word, options.scale.is_none()),
            "nomss" => check(word, options.mss.is_none()),
            "ect" => check(word, matches!(segment.ecn, 1 | 2)),
            "notect" => check(word, segment.ecn == 0),
            "push" => check(word, segment.has(PSH)),
            "noece" => check(word, !segment.has(ECE)),
            "nocwr" => check(word, !segment.has(CWR)),
            "nourg" => check(word, !segment.has(URG)),
            text if text.starts_with('"') => check("text", segment.payload == text.as_bytes()[1..]),
            other => return Err(format!("{other:?} is no field of a segment")),
        }
    }
    let wrong = wrong.join(", ");
    Ok((!wrong.is_empty()).then_some(wrong))
}
