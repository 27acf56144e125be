//! Fetching files from each kind of source. The updater calls `fetch` for modules and `fetch_small`
//! for freshness notes.

mod download;
mod folder;
mod http;
mod oci;
mod part;
mod path;

pub(crate) use folder::Folder;
pub(crate) use oci::address;
pub(crate) use part::Part;
pub(crate) use path::read as read_file;

use watm_seal::MAX_FILE_BYTES;

use crate::error::FetchError;
use crate::network::Network;
use crate::record::Validators;
use crate::source::{Kind, Source};

/// The answer of a source.
pub(crate) enum Fetched {
    /// The source still has the file taken last.
    NotModified,
    /// An unverified file, with its validators.
    File(Vec<u8>, Validators),
}

/// The largest file, in bytes, which is the largest that is verified. A download is whole in
/// memory.
pub(crate) const LIMIT: u64 = MAX_FILE_BYTES as u64;

/// Fetches the file from a source other than a folder. `known` has the validators of the file taken
/// last. `part` keeps the received bytes until the file is complete.
pub(crate) async fn fetch(
    source: &Source,
    network: &Network,
    known: &Validators,
    part: &mut Part,
) -> Result<Fetched, FetchError> {
    let work = async {
        match &source.0 {
            Kind::Path(path) => path::fetch(path, LIMIT).await,
            Kind::Http(url) => http::fetch(url, network, known, part, LIMIT).await,
            Kind::Oci(reference) => oci::fetch(reference, network, known, part, LIMIT).await,
        }
    };
    match tokio::time::timeout(network.options.total_timeout, work).await {
        Ok(result) => result,
        Err(_) => Err(FetchError::TimedOut(format!(
            "not complete after {} s",
            network.options.total_timeout.as_secs_f64()
        ))),
    }
}

/// Fetches something small without keeping it: a freshness note.
pub(crate) async fn fetch_small(
    source: &Source,
    network: &Network,
    limit: u64,
) -> Result<Vec<u8>, FetchError> {
    let mut part = Part::nowhere();
    let options = &network.options;
    let work = async {
        let known = Validators::default();
        match &source.0 {
            Kind::Path(path) => path::fetch(path, limit).await,
            Kind::Http(url) => http::fetch(url, network, &known, &mut part, limit).await,
            Kind::Oci(reference) => oci::fetch(reference, network, &known, &mut part, limit).await,
        }
    };
    let time = options.connect_timeout + options.idle_timeout;
    match tokio::time::timeout(time, work).await {
        Ok(Ok(Fetched::File(bytes, _))) => Ok(bytes),
        Ok(Ok(Fetched::NotModified)) => Err(FetchError::WrongRange(
            "not modified, but nothing is stored here".to_owned(),
        )),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(FetchError::TimedOut(format!(
            "not complete after {} s",
            time.as_secs_f64()
        ))),
    }
}
