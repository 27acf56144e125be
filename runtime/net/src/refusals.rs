//! Log records of destinations that the operator's own configuration refuses. The policy's
//! `access`, `component::sockets` and the command write them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time in which a destination is not logged again.
const WINDOW: Duration = Duration::from_secs(60);

/// The most destinations of a server that are logged in that time.
const NAMED: usize = 10;

static WINDOWS: Mutex<Windows> = Mutex::new(Windows(BTreeMap::new()));

/// Logs that `server` was not allowed to reach `destination`. The `reason` tells the operator what
/// would allow it.
///
/// The record has INFO. Clients often choose the destination, so each destination has one record a
/// minute, and a server has ten destinations at most. The other records have DEBUG, and the next
/// one at INFO has their number in the field `suppressed`.
pub fn log_refusal(server: &str, destination: &str, reason: &str) {
    let admitted = WINDOWS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .admit(server, destination, Instant::now());
    match admitted {
        Some(suppressed) => {
            tracing::info!(target: "watm::server", server, destination, suppressed, "{reason}");
        }
        None => tracing::debug!(target: "watm::server", server, destination, "{reason}"),
    }
}

/// The windows by the name of the server.
struct Windows(BTreeMap<String, Window>);

struct Window {
    began: Instant,
    named: Vec<String>,
    suppressed: u64,
}

impl Windows {
    /// Returns the number of records suppressed since the last one, if another may be written for
    /// this destination.
    fn admit(&mut self, server: &str, destination: &str, now: Instant) -> Option<u64> {
        let is_over = |window: &Window| now.duration_since(window.began) >= WINDOW;
        let suppressed = match self.0.get_mut(server) {
            Some(window) if !is_over(window) => {
                let is_named = window.named.iter().any(|named| named == destination);
                if is_named || window.named.len() >= NAMED {
                    window.suppressed += 1;
                    return None;
                }
                window.named.push(destination.to_owned());
                return Some(std::mem::take(&mut window.suppressed));
            }
            Some(window) => window.suppressed,
            None => 0,
        };
        // This also removes those of servers that are gone.
        self.0.retain(|_, window| !is_over(window));
        let window = Window {
            began: now,
            named: vec![destination.to_owned()],
            suppressed: 0,
        };
        self.0.insert(server.to_owned(), window);
        Some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_choose_destinations_do_not_fill_the_log() {
        let mut windows = Windows(BTreeMap::new());
        let began = Instant::now();
        assert_eq!(windows.admit("a", "host:1", began), Some(0));
        assert_eq!(windows.admit("a", "host:1", began), None);
        assert_eq!(windows.admit("b", "host:1", began), Some(0));
        let others = (2..1000).filter_map(|port| {
            let destination = format!("host:{port}");
            windows.admit("a", &destination, began + WINDOW / 2)
        });
        // The first record counts the one before it.
        assert_eq!(
            others.collect::<Vec<_>>(),
            [&[1][..], &[0; NAMED - 2]].concat()
        );
        let left_out = 998 - (NAMED as u64 - 1);
        assert_eq!(windows.admit("a", "host:1", began + WINDOW), Some(left_out));
        // The windows of servers that are gone are removed.
        assert_eq!(windows.0.len(), 1);
    }
}
