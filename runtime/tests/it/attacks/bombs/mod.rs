//! 15: files that are made to cost a host its time or its memory.

mod shapes;

#[cfg(target_os = "linux")]
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Command;
use std::time::{Duration, Instant};

use watm_runtime::{CacheDir, Engine};

#[cfg(target_os = "linux")]
use watm_test_support::directory;
use watm_test_support::for_development;
#[cfg(target_os = "linux")]
use watm_test_support::water::Guest;

/// The time limit of a refusal: enough to read every byte of the largest file on a busy machine.
const TIME: Duration = Duration::from_secs(2);

/// The memory that a refusal may add to the process, in MiB: nothing in proportion to sizes that a
/// file claims, and less than one copy of the largest.
const MEMORY: u64 = 32;

/// Makes a WATER module with this before its code.
fn core(functions: usize, body: &[u8]) -> Vec<u8> {
    let mut out = b"\0asm\x01\0\0\0".to_vec();
    let mut section = |id: u8, content: Vec<u8>| {
        out.push(id);
        out.extend(leb(content.len()));
        out.extend(content);
    };
    section(1, vec![1, 0x60, 0, 0]);
    section(3, [leb(functions), vec![0; functions]].concat());
    section(5, vec![1, 0, 1]);
    let export = |name: &str, kind: u8| [leb(name.len()), name.into(), vec![kind, 0]].concat();
    section(
        7,
        [vec![2], export("memory", 2), export("_water_init", 0)].concat(),
    );
    let one = [leb(body.len()), body.to_vec()].concat();
    section(10, [leb(functions), one.repeat(functions)].concat());
    out
}

fn leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn deep(levels: usize) -> Vec<u8> {
    let (open, end) = ([0x02, 0x40].repeat(levels), [0x0b].repeat(levels));
    [vec![0], open, end, vec![0x0b]].concat()
}

/// Repeats `local.get 0; drop`, with a thousand locals, up to this size.
fn long(bytes: usize) -> Vec<u8> {
    let content = [0x20, 0, 0x1a].repeat(bytes / 3);
    [vec![1], leb(1000), vec![0x7f], content, vec![0x0b]].concat()
}

/// Nests components in components.
fn nested() -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    for _ in 0..2000 {
        bytes = [b"\0asm\x0d\0\x01\0\x04".to_vec(), leb(bytes.len()), bytes].concat();
    }
    bytes
}

/// Makes a section that claims this many entries of one type.
fn counts(id: u8, count: usize, entry: &[u8]) -> Vec<u8> {
    let content = [leb(count), entry.to_vec()].concat();
    [
        b"\0asm\x01\0\0\0".as_slice(),
        &[id],
        &leb(content.len()),
        &content,
    ]
    .concat()
}

/// Makes the bytes of a bomb.
type Make = fn() -> Vec<u8>;

/// Bombs that somebody might send, each made when its turn comes.
const BOMBS: [(&str, Make); 14] = [
    ("huge", || vec![0; (64 << 20) + 1]),
    ("functions", || core(1_000_000, &[0, 0x0b])),
    ("depth", || core(1, &deep(200_000))),
    ("function", || core(1, &long(4 << 20))),
    ("code", || core(40, &long(500 << 10))),
    ("nested", nested),
    ("types", || counts(1, 0xffff_ffff, &[0x60, 0, 0])),
    ("imports", || counts(2, 0xffff_ffff, b"\x01a\x01b\0\0")),
    ("locals", || {
        core(1, &[&[1][..], &leb(0xffff_ffff), &[0x7f, 0x0b]].concat())
    }),
    // A memory of 4 GiB, and a table of as many entries.
    ("memory", || {
        counts(5, 1, &[1, 0x80, 0x80, 4, 0x80, 0x80, 4])
    }),
    ("section", || {
        b"\0asm\x01\0\0\0\x01\xff\xff\xff\xff\x0f".to_vec()
    }),
    ("type", || {
        b"\0asm\x01\0\0\0\x01\x05\xff\xff\xff\xff\x0f".to_vec()
    }),
    ("body", || {
        b"\0asm\x01\0\0\0\x0a\x06\xff\xff\xff\xff\x0f\0".to_vec()
    }),
    ("leb", || {
        b"\0asm\x01\0\0\0\x80\x80\x80\x80\x80\x80".to_vec()
    }),
];

/// Makes a working module with this many functions of nearly the largest accepted size.
#[cfg(target_os = "linux")]
fn working(functions: usize) -> Vec<u8> {
    let code = "(drop (local.get 0))".repeat(40_000);
    let function = format!("(func (param i32) {code})");
    let text = Guest::v1().with(&function.repeat(functions)).text();
    wat::parse_str(text).expect("valid text")
}

fn host() -> Engine {
    Engine::new(for_development(CacheDir::Off)).expect("an engine")
}

/// Tests files of some kilobytes that can occupy a compiler for minutes, or with gigabytes: of each
/// shape a refused one, with a part of the refusal, and one just within bounds.
#[test]
fn a_15_what_is_small_and_costly_is_refused_by_name() {
    let host = host();
    for shape in shapes::SHAPES {
        let bytes = (shape.make)(shape.refused);
        let begin = Instant::now();
        let error = host.load("bomb", &bytes).err();
        let took = begin.elapsed();
        let error = error.map_or_else(|| panic!("{}", shape.name), |error| error.to_string());
        println!("{}: {} bytes, {took:?}: {error}", shape.name, bytes.len());
        assert!(error.contains(shape.refusal), "{}: {error}", shape.name);
        assert!(took < TIME, "{}: {took:?}", shape.name);
    }
}

/// Tests in a process of its own, as `a_15_what_is_refused_costs_no_memory` does.
#[cfg(target_os = "linux")]
#[test]
fn a_15_what_is_accepted_compiles_within_bounds() {
    /// CPU time of one core; five seconds on two.
    const CPU: Duration = Duration::from_secs(10);
    const PEAK: u64 = 512 << 10;
    const CHILD: &str = "WATM_TEST_WITHIN";
    if std::env::var_os(CHILD).is_some() {
        let host = host();
        for shape in shapes::SHAPES {
            let bytes = (shape.make)(shape.accepted);
            std::fs::write("/proc/self/clear_refs", "5").expect("reset");
            let (before, used) = (status("VmRSS:"), cpu_time());
            // It is compiled, and then found to lack a transport's exports.
            let error = host.load("near", &bytes).err();
            let error = error.map_or_else(String::new, |error| error.to_string());
            assert!(
                !error.contains("the limit of this host"),
                "{}: {error}",
                shape.name
            );
            let grown = status("VmHWM:").saturating_sub(before);
            let used = cpu_time().saturating_sub(used).as_millis();
            println!("within {} {} {used} {grown}", shape.name, bytes.len());
        }
        return;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "--nocapture"])
        .arg("attacks::bombs::a_15_what_is_accepted_compiles_within_bounds")
        .env(CHILD, "1")
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let lines = text.lines().filter_map(|line| line.strip_prefix("within "));
    let mut count = 0;
    for line in lines {
        println!("{line}");
        let numbers: Vec<u64> = line
            .split(' ')
            .skip(2)
            .map(|n| n.parse().expect("a number"))
            .collect();
        assert!(Duration::from_millis(numbers[0]) < CPU, "{line}");
        assert!(numbers[1] < PEAK, "{line}");
        count += 1;
    }
    assert_eq!(count, shapes::SHAPES.len(), "{text}");
}

/// Returns the CPU time of this process.
#[cfg(target_os = "linux")]
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("readable");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> u64 { fields.next().expect("there").parse().expect("a number") };
    // Ticks last 10 ms each, for all programs.
    Duration::from_millis((ticks() + ticks()) * 10)
}

#[test]
fn a_15_modules_that_work_are_within_bounds() {
    let folder = watm_test_support::repository().join("watm/target/modules");
    let host = host();
    let mut found = 0;
    for entry in std::fs::read_dir(folder).expect("built") {
        let path = entry.expect("readable").path();
        // The largest, the one with the largest function, and a small one of each kind.
        let name = path.file_name().and_then(|name| name.to_str());
        if matches!(
            name,
            Some("tls.wasm" | "wireguard.watm1.wasm" | "plain.wasm" | "plain.watm1.wasm")
        ) {
            host.load_file(&path).expect("loads");
            found += 1;
        }
    }
    assert_eq!(found, 4);
}

#[test]
fn a_15_what_is_too_much_for_the_compiler_is_refused_in_no_time() {
    let host = host();
    for (what, make) in BOMBS {
        let bytes = make();
        let begin = Instant::now();
        let error = host.load("bomb", &bytes).err();
        let took = begin.elapsed();
        println!("{what}: {took:?}: {}", error.expect("refused"));
        assert!(took < TIME, "{what}: {took:?}");
    }
}

/// Tests in a process of its own, so that nothing else is counted.
#[cfg(target_os = "linux")]
#[test]
fn a_15_what_is_refused_costs_no_memory() {
    const CHILD: &str = "WATM_TEST_BOMBS";
    if let Some(folder) = std::env::var_os(CHILD) {
        return measure_all(Path::new(&folder));
    }
    // Made here, so that the memory for making them is not reused by the measured process.
    let folder = directory("bombs");
    let files = BOMBS.into_iter().map(|(what, make)| (what, make()));
    for (what, bytes) in files.chain([("small", working(0)), ("compiled", working(2))]) {
        std::fs::write(folder.join(what), bytes).expect("written");
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "--nocapture"])
        .arg("attacks::bombs::a_15_what_is_refused_costs_no_memory")
        .env(CHILD, folder)
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let grown: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("bomb ")?.split_once(' '))
        .map(|(what, kib)| (what, kib.parse().expect("a number")))
        .collect();
    assert_eq!(grown.len(), BOMBS.len() + 1, "{text}");
    for (what, kib) in grown {
        println!("{what}: {kib} KiB");
        let most = match what {
            // Compiled to its end, since it keeps to all bounds: see `budget`.
            "compiled" => 1024,
            _ => MEMORY,
        };
        assert!(kib < most << 10, "{what}: {kib} KiB");
    }
}

/// Measures for each of them how much the peak of this process rises.
#[cfg(target_os = "linux")]
fn measure_all(folder: &Path) {
    let host = host();
    let read = |what: &str| std::fs::read(folder.join(what)).expect("readable");
    let measure = |what: &str| {
        let bytes = read(what);
        // The peak starts again: see proc_pid_clear_refs(5).
        std::fs::write("/proc/self/clear_refs", "5").expect("reset");
        let before = status("VmRSS:");
        let loaded = host.load("bomb", &bytes).is_ok();
        assert_eq!(loaded, what == "compiled", "{what}");
        println!("bomb {what} {}", status("VmHWM:").saturating_sub(before));
    };
    // The first load allocates memory that later ones share.
    host.load("small", &read("small")).expect("loads");
    for (what, _) in BOMBS {
        measure(what);
    }
    measure("compiled");
}

/// Returns a line of this process's status, in KiB.
#[cfg(target_os = "linux")]
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.expect("there").parse().expect("a number")
}
