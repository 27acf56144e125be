//! The answers of the adapter, run on its own.

use wasmi::{Caller, Engine, Extern, Instance, Linker, Memory, MemoryType, Module, Store};

/// The result of the next calls of `get-random-u64`.
const RANDOM: u64 = 0x0807_0605_0403_0201;

/// The time 2020-01-01 and a fraction of a second.
const SECONDS: u64 = 1_577_836_800;
const NANOSECONDS: u32 = 123_456_789;

struct Adapter {
    store: Store<()>,
    instance: Instance,
    memory: Memory,
}

impl Adapter {
    fn new() -> Self {
        let engine = Engine::default();
        let module = Module::new(&engine, watm_componentize::adapter().unwrap()).unwrap();
        let mut store = Store::new(&engine, ());
        let memory = Memory::new(&mut store, MemoryType::new(1, None)).unwrap();
        let mut linker = Linker::new(&engine);
        linker
            .define("env", "memory", Extern::Memory(memory))
            .unwrap();
        linker
            .func_wrap("wasi:random/random@0.2.0", "get-random-u64", || RANDOM)
            .unwrap();
        linker
            .func_wrap(
                "wasi:clocks/wall-clock@0.2.0",
                "now",
                move |mut caller: Caller<'_, ()>, area: u32| {
                    // A record of eight and four bytes; the rest of the sixteen is padding.
                    let area = area as usize;
                    let mut record = [0xee; 16];
                    record[..8].copy_from_slice(&SECONDS.to_le_bytes());
                    record[8..12].copy_from_slice(&NANOSECONDS.to_le_bytes());
                    memory.write(&mut caller, area, &record).unwrap();
                },
            )
            .unwrap();
        let instance = linker.instantiate_and_start(&mut store, &module).unwrap();
        Adapter {
            store,
            instance,
            memory,
        }
    }

    fn call<P: wasmi::WasmParams>(&mut self, name: &str, parameters: P) -> i32 {
        self.instance
            .get_typed_func::<P, i32>(&self.store, name)
            .unwrap()
            .call(&mut self.store, parameters)
            .unwrap()
    }

    fn bytes(&mut self, at: usize, count: usize) -> Vec<u8> {
        self.memory.data(&self.store)[at..at + count].to_vec()
    }

    fn fill(&mut self, at: usize, bytes: &[u8]) {
        self.memory.write(&mut self.store, at, bytes).unwrap();
    }
}

#[test]
fn random_bytes_fill_what_is_asked_and_nothing_else() {
    for length in 0..30 {
        let mut adapter = Adapter::new();
        adapter.fill(100, &[0xaa; 64]);
        assert_eq!(adapter.call("random_get", (116, length)), 0);
        let length = length as usize;
        let expected: Vec<u8> = (0..length).map(|n| (n % 8) as u8 + 1).collect();
        assert_eq!(adapter.bytes(116, length), expected);
        assert_eq!(adapter.bytes(100, 16), [0xaa; 16]);
        assert_eq!(adapter.bytes(116 + length, 8), [0xaa; 8]);
    }
}

#[test]
fn the_clock_is_nanoseconds_of_1970_and_leaves_its_neighbours_alone() {
    let mut adapter = Adapter::new();
    adapter.fill(64, &[0xaa; 64]);
    assert_eq!(adapter.call("clock_time_get", (0, 1u64, 80)), 0);
    let time = u64::from_le_bytes(adapter.bytes(80, 8).try_into().unwrap());
    assert_eq!(time, SECONDS * 1_000_000_000 + u64::from(NANOSECONDS));
    assert_eq!(adapter.bytes(64, 16), [0xaa; 16]);
    assert_eq!(adapter.bytes(88, 16), [0xaa; 16]);
}

#[test]
fn other_clocks_and_bad_pointers_are_refused() {
    const INVAL: i32 = 28;
    let mut adapter = Adapter::new();
    for (clock, pointer) in [(1, 80), (2, 80), (0, 81), (0, 0)] {
        let answer = adapter.call("clock_time_get", (clock, 1u64, pointer));
        assert_eq!(answer, INVAL, "clock {clock} at {pointer}");
    }
}

#[test]
fn the_environment_is_empty() {
    let mut adapter = Adapter::new();
    adapter.fill(64, &[0xaa; 16]);
    assert_eq!(adapter.call("environ_sizes_get", (64, 72)), 0);
    assert_eq!(adapter.bytes(64, 4), [0; 4]);
    assert_eq!(adapter.bytes(72, 4), [0; 4]);
    assert_eq!(adapter.call("environ_get", (64, 72)), 0);
}

#[test]
fn output_is_counted_and_dropped() {
    let mut adapter = Adapter::new();
    // Two slices, of 5 and 7 bytes.
    for (at, word) in [(64, 200u32), (68, 5), (72, 300), (76, 7)] {
        adapter.fill(at, &word.to_le_bytes());
    }
    assert_eq!(adapter.call("fd_write", (2, 64, 2, 96)), 0);
    assert_eq!(adapter.bytes(96, 4), 12u32.to_le_bytes());
    assert_eq!(adapter.call("fd_write", (2, 64, 0, 96)), 0);
    assert_eq!(adapter.bytes(96, 4), [0; 4]);
}

#[test]
fn yielding_returns_and_leaving_traps() {
    let mut adapter = Adapter::new();
    assert_eq!(adapter.call("sched_yield", ()), 0);
    let exit = adapter
        .instance
        .get_typed_func::<i32, ()>(&adapter.store, "proc_exit")
        .unwrap();
    assert!(exit.call(&mut adapter.store, 0).is_err());
}
