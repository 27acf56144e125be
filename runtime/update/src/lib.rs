//! Brings sealed modules from any source to the file from which a host loads them. The runtime and
//! the command `watm` use it.
//!
//! A [`Source`] is a file, a watched folder, a web server or a registry; a [`Place`] is a file of
//! this machine. An [`Updater`] takes the module from the one to the other, once or, in a
//! [`Watch`], repeatedly. Sources are not trusted: their answers are bounded, verified by
//! [`watm_seal::verify`] as the host itself does it, and put in place as a whole or not at all. The
//! worst that a source can do is to withhold new releases, which a freshness note and the module's
//! expiry reveal.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use watm_seal::{Policy, Root, SignedRoot, state::StateFile};
//! use watm_update::{Outcome, Place, Source, Terms, Updater};
//!
//! # use std::collections::BTreeSet;
//! # let key = watm_seal::PrivateKey::generate()?;
//! # let record = watm_seal::RootRecord {
//! #     version: 1, first: None, epoch: 1, expires: 4_000_000_000, threshold: 1,
//! #     keys: [key.public()].into(), delegations: Vec::new(), revoked: BTreeSet::new(),
//! # };
//! # let signed: SignedRoot = SignedRoot::new(record)?.sign(&key)?;
//! # let folder = std::env::temp_dir();
//! let terms = Terms {
//!     root: Root::trust(signed)?,
//!     state: StateFile::new(folder.join("state")),
//!     policy: Policy { name: Some("wireguard".parse()?), ..Policy::default() },
//! };
//! let source = Source::parse("no/such/folder/wireguard.wasm")?;
//! let place = Place::new(folder.join("watm-update-example.wasm"));
//! let report = Updater::new(source, place, terms).check().await;
//! match report.outcome {
//!     Outcome::Updated { module, .. } => println!("{:?} is in place", module),
//!     Outcome::Unchanged { .. } => println!("nothing new"),
//!     Outcome::Pending { more, .. } => println!("asks for {}", more.join(", ")),
//!     Outcome::Refused { code, reason } => {
//!         println!("{}: {reason}", report.source);
//!         assert_eq!(code, "file");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Bounds
//!
//! | object | at most |
//! |---|---|
//! | a module | [`watm_seal::MAX_FILE_BYTES`], whatever a server says of its length |
//! | a manifest in a registry, a token | 256 KiB, 64 KiB |
//! | a note | 4 KiB |
//! | redirections | 5 in a row, and never from HTTPS to HTTP |
//! | a connection, a silence, a trickle, a file | the times of [`NetworkOptions`] |
//! | modules in a watched folder | 256 |
//! | obedience to `Retry-After` | a day |
//!
//! Compressed bodies (`Content-Encoding`) are neither requested nor accepted.

mod authorization;
mod error;
mod fault;
mod fetch;
mod manifest;
mod network;
mod outcome;
mod place;
mod publish;
mod record;
mod reference;
mod schedule;
mod source;
mod task;
mod terms;
mod updater;
mod watch;

pub use error::FetchError;
pub use network::{Credentials, Network, NetworkOptions};
pub use outcome::{Module, Notice, Outcome, Report, Skipped};
pub use place::Place;
pub use publish::{PublishError, publish};
pub use source::{Source, SourceError};
pub use terms::Terms;
pub use updater::Updater;
pub use watch::Watch;
