//! The roles of a module, which its inspection finds and its runner checks.

use std::fmt;

/// A role of a module for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Dials an address that the application names: `Dialer`.
    Dialer,
    /// Dials an address of its own choice: `FixedDialer`.
    FixedDialer,
    /// Accepts connections for the application: `Listener`.
    Listener,
    /// Accepts connections and passes each on to one address: `Relay`.
    Relay,
}

impl Role {
    /// All roles, in the order in which they are listed.
    pub const ALL: [Role; 4] = [Role::Dialer, Role::FixedDialer, Role::Listener, Role::Relay];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Dialer => "dialer",
            Role::FixedDialer => "fixed dialer",
            Role::Listener => "listener",
            Role::Relay => "relay",
        })
    }
}
