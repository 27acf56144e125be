//! The default limit of file descriptors for a module's connections, for `Limits`.

use super::options;

/// The most by default: as many as a module may have handles.
const MOST: usize = 65_536;

/// The least by default, even for a process that may open next to none. Such a process reports an
/// error when it has none left.
const LEAST: usize = 64;

/// Returns the default number of descriptors that the connections of one module may take: half of
/// the process's limit, since an application needs one for each of them too.
pub fn descriptors_of_module() -> usize {
    let most = options::most_descriptors().map(|most| usize::try_from(most / 2).unwrap_or(MOST));
    most.unwrap_or(MOST).clamp(LEAST, MOST)
}
