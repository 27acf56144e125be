//! The limits of a module's connections that the process sets: file descriptors, for `Limits`, and
//! mappings of memory, for `Granted`.

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

/// The mappings of an instance of a WATER module: its memory, its image, and the stack of its calls,
/// with what is reserved around them.
const MAPPINGS: usize = 5;

/// The mappings of a process under Linux's default `vm.max_map_count`.
const USUAL_MAPPINGS: usize = 65_530;

/// The bounds of [`instances_of_module`]. Each instance reserves 4 GiB of addresses, of which a
/// process has 128 TiB.
const FEWEST_INSTANCES: usize = 1024;
const MOST_INSTANCES: usize = 16_384;

/// Returns the number of instances that a WATER module may have, one for each connection: half of
/// what the process can map, so that other modules can have some too.
pub fn instances_of_module() -> usize {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let most = most.ok().and_then(|text| text.trim().parse().ok());
    instances(most.unwrap_or(USUAL_MAPPINGS))
}

fn instances(mappings: usize) -> usize {
    (mappings / 2 / MAPPINGS).clamp(FEWEST_INSTANCES, MOST_INSTANCES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_mappings_are_left() {
        assert_eq!(instances(USUAL_MAPPINGS), 6553);
        assert_eq!(instances(1), FEWEST_INSTANCES);
        assert_eq!(instances(usize::MAX), MOST_INSTANCES);
    }
}
