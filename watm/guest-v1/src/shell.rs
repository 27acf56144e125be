//! The implementation of the exports: the roles, and the state between calls.

use std::cell::RefCell;

use crate::carrier::{Carrier, Connect, Session};
use crate::descriptor::{Descriptor, negative};
use crate::worker::Worker;
use crate::{config, env};

/// The state of a module. A host makes one call at a time.
pub struct Shell<C: Carrier>(RefCell<State<C>>);

struct State<C: Carrier> {
    carrier: Option<C>,
    role: Role<C::Session>,
    control: Option<Descriptor>,
}

/// The outcome of the function of a role.
enum Role<S> {
    /// No function was called, or it failed.
    None,
    Connected(S),
    /// A relay whose upstream is unreachable.
    Unconnected(i32),
    /// The worker runs it.
    Started,
}

impl<C: Carrier> Shell<C> {
    /// The state before `watm_init_v1`.
    #[expect(
        clippy::new_without_default,
        reason = "used in a const, by the macro alone"
    )]
    pub const fn new() -> Self {
        Shell(RefCell::new(State {
            carrier: None,
            role: Role::None,
            control: None,
        }))
    }

    /// `watm_init_v1`: returns 0, or `-EINVAL` for an invalid configuration.
    pub fn init(&self) -> i32 {
        let state = &mut *self.0.borrow_mut();
        if state.carrier.is_some() {
            return negative(wasip1::ERRNO_BUSY);
        }
        let configured = config::read()
            .and_then(|config| C::configure(&config).map_err(|error| error.to_string()));
        match configured {
            Ok(carrier) => {
                state.carrier = Some(carrier);
                0
            }
            Err(error) => {
                eprintln!("{}: {error}", config::PATH);
                negative(wasip1::ERRNO_INVAL)
            }
        }
    }

    /// `watm_dial_v1`: returns the descriptor of a connection to the address of the host's caller.
    pub fn dial(&self, caller: i32) -> i32 {
        self.open(caller, Connect::Caller)
    }

    /// `watm_dial_fixed_v1`: returns the descriptor of a connection to the address in the
    /// configuration.
    pub fn dial_fixed(&self, caller: i32) -> i32 {
        self.open(caller, Connect::Configured)
    }

    /// `watm_accept_v1`: returns the descriptor of an accepted connection.
    pub fn accept(&self, caller: i32) -> i32 {
        self.0
            .borrow_mut()
            .take_role(|carrier| carrier.accept(Descriptor::from_host(caller)?))
    }

    /// `watm_associate_v1`: returns 0 once a connection is accepted, which becomes the application
    /// of a dialled connection.
    ///
    /// The worker reports an unreachable upstream later: the host written in Go ends a whole relay
    /// when this function fails for one of its connections.
    pub fn associate(&self) -> i32 {
        let state = &mut *self.0.borrow_mut();
        let mut unconnected = None;
        let number = state.take_role(|carrier| {
            let application = env::accept()?;
            carrier
                .dial(Connect::Caller, application)
                .map_err(|(number, application)| {
                    application.hang_up();
                    unconnected = Some(number);
                    number
                })
        });
        if let Some(number) = unconnected {
            state.role = Role::Unconnected(number);
            return 0;
        }
        number.min(0)
    }

    /// `watm_ctrlpipe_v1`: returns 0.
    pub fn control(&self, control: i32) -> i32 {
        let state = &mut *self.0.borrow_mut();
        if state.control.is_some() {
            return negative(wasip1::ERRNO_BUSY);
        }
        match Descriptor::from_host(control) {
            Ok(control) => {
                state.control = Some(control);
                0
            }
            Err(number) => number,
        }
    }

    /// `watm_start_v1`: runs for as long as the connection, and returns the errno of its end.
    pub fn start(&self) -> i32 {
        let state = &mut *self.0.borrow_mut();
        match std::mem::replace(&mut state.role, Role::Started) {
            Role::None => {
                state.role = Role::None;
                negative(wasip1::ERRNO_NOTCONN)
            }
            Role::Unconnected(number) => number,
            Role::Started => negative(wasip1::ERRNO_BUSY),
            Role::Connected(session) => negative(
                Worker {
                    session,
                    control: state.control.take(),
                }
                .run(),
            ),
        }
    }

    fn open(&self, caller: i32, connect: Connect) -> i32 {
        self.0.borrow_mut().take_role(|carrier| {
            carrier
                .dial(connect, Descriptor::from_host(caller)?)
                .map_err(|(number, _)| number)
        })
    }
}

impl<C: Carrier> State<C> {
    /// Take the role that the host requests, once: `begin` makes the session. Returns the number of
    /// its network stream.
    fn take_role(&mut self, begin: impl FnOnce(&mut C) -> Result<C::Session, i32>) -> i32 {
        let Some(carrier) = &mut self.carrier else {
            // `watm_init_v1` must come first.
            return negative(wasip1::ERRNO_INVAL);
        };
        if !matches!(self.role, Role::None) {
            return negative(wasip1::ERRNO_BUSY);
        }
        match begin(carrier) {
            Ok(session) => {
                let number = session.streams().0.to_host();
                self.role = Role::Connected(session);
                number
            }
            Err(number) => number,
        }
    }
}
