//! Data packets that are decrypted ahead of boringtun: those of a session that arrive one after another,
//! in one call of the host's cipher. Used by `outgoing`, `peer` and `transport::receive`.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use ring::batch::Ahead;
use watm_core::DatagramBatch;
use watm_core::crypto::{AeadKey, Text};

/// The type of a message that carries a packet.
pub const DATA: u8 = 4;

/// The bytes of a data packet before its ciphertext, and those of the tag at its end.
pub const HEADER: usize = 16;
pub const TAG: usize = 16;

/// The bytes of ciphertext from which on it pays to decrypt a run ahead.
const LEAST: usize = 1024;

/// The sessions of a peer whose keys are remembered: as many as the protocol has at once.
const SESSIONS: usize = 3;

/// The keys of the host for a peer's sessions, by their local index. boringtun does not show them, so that
/// the first packet of a session tells.
#[derive(Default)]
pub struct Openers(Vec<(u32, Weak<dyn AeadKey>)>);

impl Openers {
    /// Notes the key that has opened a packet for this index.
    pub fn note(&mut self, index: u32, key: &Arc<dyn AeadKey>) {
        if self
            .get(index)
            .is_some_and(|known| Arc::ptr_eq(&known, key))
        {
            return;
        }
        self.0.retain(|(other, _)| *other != index);
        if self.0.len() == SESSIONS {
            self.0.remove(0);
        }
        self.0.push((index, Arc::downgrade(key)));
    }

    /// Returns the key for this index, if it is known and its session still exists.
    pub fn get(&self, index: u32) -> Option<Arc<dyn AeadKey>> {
        let mut keys = self.0.iter();
        keys.find(|(known, _)| *known == index)
            .and_then(|(_, key)| key.upgrade())
    }
}

/// The packets of a batch that are decrypted.
pub struct Decrypted {
    runs: Vec<Run>,
}

/// Packets of one session that follow each other: the number of the first in the batch, and how many.
struct Run {
    first: usize,
    count: usize,
    ahead: Rc<Ahead>,
}

/// A run that is being gathered.
struct Gathered {
    index: u32,
    /// The key of its session. Without one, its texts are not gathered.
    key: Option<Arc<dyn AeadKey>>,
    first: usize,
    /// The place of its first packet in the batch.
    begin: usize,
    end: usize,
    texts: Vec<Text>,
}

impl Decrypted {
    /// Decrypts the runs of a batch that are long enough. `key` returns the key for an index.
    pub fn of(
        batch: &DatagramBatch,
        mut key: impl FnMut(u32) -> Option<Arc<dyn AeadKey>>,
    ) -> Decrypted {
        let mut runs = Vec::new();
        let mut decrypt = |run: Gathered| {
            let long = run.texts.len() > 1 && run.end - run.begin >= LEAST;
            if let Some(key) = run.key.filter(|_| long) {
                let (first, count) = (run.first, run.texts.len());
                let ahead = Ahead::open(key, run.texts, &batch.payload[run.begin..run.end]);
                runs.push(Run {
                    first,
                    count,
                    ahead,
                });
            }
        };
        let mut run: Option<Gathered> = None;
        let mut at = 0;
        for (number, (_, datagram)) in batch.iter().enumerate() {
            let (begin, end) = (at, at + datagram.len());
            at = end;
            let Some((index, nonce)) = head(datagram) else {
                run.take().into_iter().for_each(&mut decrypt);
                continue;
            };
            if run.as_ref().is_some_and(|run| run.index != index) {
                run.take().into_iter().for_each(&mut decrypt);
            }
            let run = run.get_or_insert_with(|| Gathered {
                index,
                key: key(index),
                first: number,
                begin,
                end,
                texts: Vec::new(),
            });
            run.end = end;
            if run.key.is_some() {
                run.texts.push(Text {
                    nonce,
                    begin: begin - run.begin + HEADER,
                    len: datagram.len() - HEADER,
                });
            }
        }
        run.into_iter().for_each(&mut decrypt);
        Decrypted { runs }
    }

    /// Returns the run of the packet with this number in the batch, and its number there.
    pub fn get(&self, number: usize) -> Option<(Rc<Ahead>, usize)> {
        let next = self.runs.partition_point(|run| run.first <= number);
        let run = self.runs.get(next.checked_sub(1)?)?;
        let place = number - run.first;
        (place < run.count).then(|| (Rc::clone(&run.ahead), place))
    }
}

/// Returns the receiver's index and the nonce of a data packet (WireGuard paper, section 5.4.6).
fn head(datagram: &[u8]) -> Option<(u32, [u8; 12])> {
    let (head, rest) = datagram.split_first_chunk::<HEADER>()?;
    let [DATA, 0, 0, 0, index @ .., _, _, _, _, _, _, _, _] = head else {
        return None;
    };
    if rest.len() < TAG {
        return None;
    }
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&head[8..]);
    Some((u32::from_le_bytes(*index), nonce))
}
