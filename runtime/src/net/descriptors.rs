use super::options;

/// As many as a module may have handles by default.
const MOST: usize = 65_536;

/// What a module has at least: for a process that may open next to none, which says so when it has
/// none left.
const LEAST: usize = 64;

/// How many descriptors the connections of one module may take by default: half of what the process
/// may open now, since an application has one for each of them too.
pub(crate) fn descriptors_of_module() -> usize {
    let most = options::most_descriptors().map(|most| usize::try_from(most / 2).unwrap_or(MOST));
    most.unwrap_or(MOST).clamp(LEAST, MOST)
}
