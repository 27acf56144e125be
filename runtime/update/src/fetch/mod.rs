//! What each kind of source does to hand over a file.

mod download;
mod folder;
mod http;
mod oci;
mod part;
mod path;

pub(crate) use folder::Folder;
pub(crate) use oci::{CONFIG_MEDIA_TYPE, LAYER_MEDIA_TYPE, address};
pub(crate) use part::Part;
pub(crate) use path::read as read_file;

use watm_seal::MAX_FILE_BYTES;

use crate::error::FetchError;
use crate::network::Network;
use crate::record::Validators;
use crate::source::{Kind, Source};

/// What a source says.
pub(crate) enum Fetched {
    /// What was taken last is what it has.
    NotModified,
    /// A file; nobody has verified it.
    File(Vec<u8>, Validators),
}

/// Whole in memory while it comes, and no larger than what is verified.
pub(crate) const LIMIT: u64 = MAX_FILE_BYTES as u64;

/// Get the file from a source that is no folder. `known` is what the source said of the file that was
/// taken last; what comes is kept in `part` until it is complete.
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

/// Get something small that is not kept: a freshness note.
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
    match tokio::time::timeout(options.connect_timeout + options.idle_timeout, work).await {
        Ok(Ok(Fetched::File(bytes, _))) => Ok(bytes),
        Ok(Ok(Fetched::NotModified)) => Err(FetchError::WrongRange(
            "nothing, although nothing is here".to_owned(),
        )),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(FetchError::TimedOut("it is small".to_owned())),
    }
}
