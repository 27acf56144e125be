//! What the exports do: the roles, and what is kept between the calls.

use std::cell::RefCell;

use wasip1::Errno;
use watm_core::ErrorCode;
use watm_stream::{Relay, StreamTransport};

use crate::descriptor::{Descriptor, negative};
use crate::worker::Worker;
use crate::{config, env};

/// The state of a module. A host makes one call at a time.
pub struct Shell<T: StreamTransport>(RefCell<State<T>>);

struct State<T: StreamTransport> {
    transport: Option<T>,
    role: Role<T::Codec>,
    control: Option<Descriptor>,
}

/// What the function of a role has led to.
enum Role<C> {
    /// None was called, or it failed.
    None,
    Connected {
        codec: C,
        network: Descriptor,
        application: Descriptor,
    },
    /// A relay's upstream cannot be reached.
    Unconnected(i32),
    /// The worker has it.
    Started,
}

impl<T: StreamTransport> Shell<T> {
    /// Before `watm_init_v1`.
    #[expect(
        clippy::new_without_default,
        reason = "used in a const, by the macro alone"
    )]
    pub const fn new() -> Self {
        Shell(RefCell::new(State {
            transport: None,
            role: Role::None,
            control: None,
        }))
    }

    /// `watm_init_v1`: 0, or `-EINVAL` for a configuration that is not understood.
    pub fn init(&self) -> i32 {
        let state = &mut *self.0.borrow_mut();
        if state.transport.is_some() {
            return negative(wasip1::ERRNO_BUSY);
        }
        let configured = config::read()
            .and_then(|config| T::configure(&config).map_err(|error| error.to_string()));
        match configured {
            Ok(transport) => {
                state.transport = Some(transport);
                0
            }
            Err(error) => {
                eprintln!("{}: {error}", config::PATH);
                negative(wasip1::ERRNO_INVAL)
            }
        }
    }

    /// `watm_dial_v1`: the descriptor of a connection to the address of the host's caller.
    pub fn dial(&self, caller: i32) -> i32 {
        self.0.borrow_mut().take_role(|transport| {
            let application = Descriptor::from_host(caller)?;
            let codec = transport.dial(None).map_err(refused)?;
            Ok((codec, env::dial_fixed()?, application))
        })
    }

    /// `watm_dial_fixed_v1`: the descriptor of a connection to what the configuration names.
    pub fn dial_fixed(&self, caller: i32) -> i32 {
        self.0.borrow_mut().take_role(|transport| {
            let application = Descriptor::from_host(caller)?;
            let Some(remote) = transport.outer(None) else {
                eprintln!("{}: remote: there is none to dial", config::PATH);
                return Err(negative(wasip1::ERRNO_DESTADDRREQ));
            };
            let codec = transport.dial(None).map_err(refused)?;
            Ok((codec, env::dial(&remote.to_string())?, application))
        })
    }

    /// `watm_accept_v1`: the descriptor of a connection that somebody opened.
    pub fn accept(&self, caller: i32) -> i32 {
        self.0.borrow_mut().take_role(|transport| {
            let application = Descriptor::from_host(caller)?;
            let codec = transport.accept().map_err(refused)?;
            Ok((codec, env::accept()?, application))
        })
    }

    /// `watm_associate_v1`: 0 once somebody has connected, who then is the application of
    /// a connection that is dialled.
    ///
    /// That nobody answers there is left for the worker to say: the host written in Go
    /// ends all of a relay when this function fails, for one connection of many.
    pub fn associate(&self) -> i32 {
        let state = &mut *self.0.borrow_mut();
        let mut unconnected = None;
        let number = state.take_role(|transport| {
            let codec = transport.dial(None).map_err(refused)?;
            let application = env::accept()?;
            match env::dial_fixed() {
                Ok(network) => Ok((codec, network, application)),
                Err(number) => {
                    application.hang_up();
                    unconnected = Some(number);
                    Err(number)
                }
            }
        });
        if let Some(number) = unconnected {
            state.role = Role::Unconnected(number);
            return 0;
        }
        number.min(0)
    }

    /// `watm_ctrlpipe_v1`: 0.
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

    /// `watm_start_v1`: runs for as long as the connection, and returns what it ended with.
    pub fn start(&self) -> i32 {
        let state = &mut *self.0.borrow_mut();
        match std::mem::replace(&mut state.role, Role::Started) {
            Role::None => {
                state.role = Role::None;
                negative(wasip1::ERRNO_NOTCONN)
            }
            Role::Unconnected(number) => number,
            Role::Started => negative(wasip1::ERRNO_BUSY),
            Role::Connected {
                codec,
                network,
                application,
            } => negative(
                Worker {
                    relay: Relay::new(codec),
                    network,
                    application,
                    control: state.control.take(),
                }
                .run(),
            ),
        }
    }
}

impl<T: StreamTransport> State<T> {
    /// Be what the host asks for, once. `connect` gives the codec, the network's stream,
    /// whose number is returned, and the application's.
    fn take_role(
        &mut self,
        connect: impl FnOnce(&T) -> Result<(T::Codec, Descriptor, Descriptor), i32>,
    ) -> i32 {
        let Some(transport) = &self.transport else {
            // `watm_init_v1` comes first.
            return negative(wasip1::ERRNO_INVAL);
        };
        if !matches!(self.role, Role::None) {
            return negative(wasip1::ERRNO_BUSY);
        }
        match connect(transport) {
            Ok((codec, network, application)) => {
                let number = network.to_host();
                self.role = Role::Connected {
                    codec,
                    network,
                    application,
                };
                number
            }
            Err(number) => number,
        }
    }
}

/// What a transport says to a connection that it cannot make.
fn refused(reason: ErrorCode) -> i32 {
    eprintln!("{}: {reason}", config::PATH);
    let errno: Errno = match reason {
        ErrorCode::NotSupported => wasip1::ERRNO_NOTSUP,
        _ => wasip1::ERRNO_INVAL,
    };
    negative(errno)
}
