//! The memory of datagrams for replay protection, as a replaced module hands it over. Used by
//! `server`.

use std::collections::BTreeMap;
use std::time::Duration;

use watm_core::Instant;

use super::server::Origin;
use super::window::Window;
use crate::salts::Salts;

/// The time for which the windows of sessions matter that the next module has not heard yet: a
/// datagram of SIP022 is accepted for half a minute before and after its time.
const WORTH: Duration = Duration::from_secs(61);

/// The length in bytes of a session's number and of its user's name.
const NAME: usize = 8 + 16;

/// The memory to hand over.
#[derive(Debug)]
pub struct Remembered {
    /// The salts of SIP004, of the server and of the client.
    pub server: Salts,
    pub client: Salts,
    /// The windows of the server's sessions (SIP022).
    pub windows: BTreeMap<Origin, Window>,
}

impl Default for Remembered {
    fn default() -> Remembered {
        Remembered {
            server: Salts::new(false),
            client: Salts::new(false),
            windows: BTreeMap::new(),
        }
    }
}

impl Remembered {
    /// Appends the state that [`Self::read`] reads.
    pub fn write<'a>(
        server: &Salts,
        client: &Salts,
        windows: impl Iterator<Item = (Origin, &'a Window)>,
        to: &mut Vec<u8>,
    ) {
        server.write(to);
        client.write(to);
        for (origin, window) in windows {
            if let Origin::Session(number, user) = origin {
                to.extend_from_slice(&number.to_be_bytes());
                to.extend_from_slice(&user);
                window.write(to);
            }
        }
    }

    /// Parses all of `from`. `None` if it is truncated or holds too much.
    pub fn read(from: &[u8]) -> Option<Remembered> {
        let mut remembered = Remembered::default();
        let from = remembered.server.follow(from)?;
        let from = remembered.client.follow(from)?;
        let windows = from.chunks(NAME + Window::LENGTH);
        if windows.len() > super::server::MAX_SESSIONS {
            return None;
        }
        for entry in windows {
            let (number, rest) = entry.split_first_chunk()?;
            let (user, window) = rest.split_first_chunk()?;
            let origin = Origin::Session(u64::from_be_bytes(*number), *user);
            remembered.windows.insert(origin, Window::read(window)?);
        }
        Some(remembered)
    }
}

/// The session windows of the module before this one.
#[derive(Debug, Default)]
pub struct Inherited {
    windows: BTreeMap<Origin, Window>,
    until: Option<Instant>,
}

impl Inherited {
    /// Takes over these windows at `now`.
    pub fn new(windows: BTreeMap<Origin, Window>, now: Instant) -> Inherited {
        Inherited {
            windows,
            until: Some(now + WORTH),
        }
    }

    /// The window of a session that begins here.
    pub fn window(&mut self, origin: &Origin, now: Instant) -> Window {
        if self.until.is_some_and(|until| until <= now) {
            *self = Inherited::default();
        }
        self.windows.get(origin).cloned().unwrap_or_default()
    }

    /// The windows that still matter, for the next module.
    pub fn windows(&self, now: Instant) -> impl Iterator<Item = (&Origin, &Window)> {
        let worth = self.until.is_some_and(|until| now < until);
        self.windows.iter().filter(move |_| worth)
    }
}
