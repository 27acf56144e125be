//! Modules that cost a compiler much, each in one way, in a given size.

use super::leb;

/// The type of functions without parameters and results.
const EMPTY: usize = 2;

/// A family of files.
pub struct Shape {
    pub name: &'static str,
    /// Makes a file of these two sizes.
    pub make: fn([usize; 2]) -> Vec<u8>,
    pub refused: [usize; 2],
    /// A part of the error.
    pub refusal: &'static str,
    pub accepted: [usize; 2],
}

const fn shape(
    name: &'static str,
    make: fn([usize; 2]) -> Vec<u8>,
    refused: [usize; 2],
    refusal: &'static str,
    accepted: [usize; 2],
) -> Shape {
    Shape {
        name,
        make,
        refused,
        refusal,
        accepted,
    }
}

pub const SHAPES: &[Shape] = &[
    shape(
        "empty-loops",
        empty_loops,
        [8000, 8000],
        "function 2: blocks times values live across them: 64000000; the limit of this host is \
         1000000",
        [999, 1000],
    ),
    shape(
        "nested-loops",
        nested_loops,
        [900, 500],
        "function 2: values merged by loops",
        [59, 100],
    ),
    shape(
        "branches-back",
        branches_back,
        [10_000, 100],
        "function 2: values merged by branches",
        [1480, 100],
    ),
    shape(
        "branches-to-one-loop",
        branches_back,
        [7000, 10],
        "function 2: branches back to one loop",
        [1480, 10],
    ),
    shape(
        "blocks-of-many-values",
        blocks_of_values,
        [1000, 100],
        "function 2: blocks times values live across them",
        [100, 40],
    ),
    shape(
        "calls-of-many-arguments",
        calls,
        [1000, 100],
        "function 3: arguments of calls",
        [90, 100],
    ),
    shape(
        "wide-types",
        calls,
        [1, 1000],
        "type 3: parameters: 1000",
        [1, 200],
    ),
    shape(
        "indirect-calls",
        indirect_calls,
        [25_000, 0],
        "function 2: uses of elements of tables",
        [1900, 0],
    ),
    shape(
        "divisions",
        divisions,
        [12_000, 1000],
        "function 2: blocks times values live across them",
        [9000, 100],
    ),
    shape(
        "functions",
        functions,
        [41_000, 0],
        "functions: 41003",
        [5000, 0],
    ),
    shape(
        "functions-that-are-costly",
        costly_functions,
        [60, 0],
        "more than 12000000 steps, of which function 2",
        [5, 0],
    ),
    shape(
        "elements",
        elements,
        [60_000, 0],
        "more than 12000000 steps",
        [5000, 0],
    ),
    shape("signatures", signatures, [100_000, 10], "steps", [1000, 20]),
    shape(
        "computed-elements",
        computed_elements,
        [100_000, 0],
        "values computed at the start: 100000",
        [9900, 0],
    ),
    shape(
        "late-data",
        late_data,
        [20_000, 0],
        "segments of data for the start: 20000",
        [1990, 0],
    ),
    shape(
        "images",
        images,
        [90, 0],
        "bytes of memories and tables",
        [3, 0],
    ),
    shape(
        "expressions",
        expressions,
        [2_000_000, 0],
        "bytes of expressions",
        [80_000, 0],
    ),
    shape(
        "components-in-components",
        instances,
        [24, 0],
        "instances of components: 6",
        [2, 0],
    ),
    shape("types-of-types", lifted, [900, 16], "steps", [50, 16]),
    shape(
        "names",
        names,
        [10, 1 << 20],
        "function 0: bytes of its name: 1048576",
        [100, 65_536],
    ),
    shape(
        "names-of-modules",
        name_of_module,
        [0, 90_000],
        "bytes of the module's name: 90000",
        [0, 65_536],
    ),
];

/// A WATER v0 dialer that does nothing, with more functions: the first of them is 2, and its type
/// is usually `EMPTY`.
struct Module {
    types: Vec<Vec<u8>>,
    /// Functions, each with the number of its type.
    functions: Vec<(usize, Vec<u8>)>,
    elements: Vec<u8>,
    data: Vec<u8>,
}

impl Module {
    fn new() -> Module {
        let mut module = Module {
            types: Vec::new(),
            functions: Vec::new(),
            elements: vec![0],
            data: vec![0],
        };
        for (parameters, results) in [(0, 1), (1, 1), (0, 0)] {
            module.add_type(parameters, results);
        }
        for kind in [0, 1] {
            module.add(kind, 0, &[0x41, 0]);
        }
        module
    }

    /// Adds a type with this many numbers as parameters and results.
    fn add_type(&mut self, parameters: usize, results: usize) -> usize {
        let (of, to) = (vec![0x7f; parameters], vec![0x7f; results]);
        self.types
            .push([vec![0x60], leb(parameters), of, leb(results), to].concat());
        self.types.len() - 1
    }

    /// Adds a function with this many locals.
    fn add(&mut self, kind: usize, locals: usize, code: &[u8]) {
        let locals = [vec![1], leb(locals), vec![0x7f]].concat();
        let end = [0x0b];
        self.functions.push((kind, [&locals, code, &end].concat()));
    }

    fn bytes(&self) -> Vec<u8> {
        let counted = |all: Vec<Vec<u8>>| [leb(all.len()), all.concat()].concat();
        let kinds = self.functions.iter().map(|(kind, _)| leb(*kind));
        let bodies = self.functions.iter();
        let bodies = bodies.map(|(_, body)| [leb(body.len()), body.clone()].concat());
        let export = |name: &str, kind: u8, index: u8| {
            [leb(name.len()), name.into(), vec![kind, index]].concat()
        };
        let mut out = b"\0asm\x01\0\0\0".to_vec();
        for (id, content) in [
            (1, counted(self.types.clone())),
            (3, counted(kinds.collect())),
            (4, [vec![1, 0x70, 0], leb(200_000)].concat()),
            (5, vec![1, 0, 1]),
            (
                7,
                counted(vec![
                    export("memory", 2, 0),
                    export("_water_init", 0, 0),
                    export("_water_cancel_with", 0, 1),
                    export("_water_worker", 0, 0),
                    export("_water_dial", 0, 1),
                ]),
            ),
            (9, self.elements.clone()),
            (10, counted(bodies.collect())),
            (11, self.data.clone()),
        ] {
            out.push(id);
            out.extend(leb(content.len()));
            out.extend(content);
        }
        out
    }
}

fn get(local: usize) -> Vec<u8> {
    [vec![0x20], leb(local)].concat()
}

/// `local = local + 1`.
fn increment(local: usize) -> Vec<u8> {
    [get(local), vec![0x41, 1, 0x6a, 0x21], leb(local)].concat()
}

fn many(count: usize, one: impl FnMut(usize) -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(one).collect()
}

/// Makes a module of one such function.
fn one(locals: usize, code: &[Vec<u8>]) -> Vec<u8> {
    let mut module = Module::new();
    module.add(EMPTY, locals, &code.concat());
    module.bytes()
}

/// Makes loops in a row, and locals that are used after the last of them.
fn empty_loops([loops, locals]: [usize; 2]) -> Vec<u8> {
    let uses = many(locals, |local| [get(local), vec![0x1a]].concat());
    one(locals, &[[3, 0x40, 0x0b].repeat(loops), uses])
}

/// Makes nested loops, in the innermost of which all locals change.
fn nested_loops([loops, locals]: [usize; 2]) -> Vec<u8> {
    let ends = [0x41, 1, 0x0d, 0, 0x0b].repeat(loops);
    one(
        locals,
        &[[3, 0x40].repeat(loops), many(locals, increment), ends],
    )
}

/// Makes one loop in which all locals change, and a table of branches back to its beginning.
fn branches_back([branches, locals]: [usize; 2]) -> Vec<u8> {
    let table = [get(0), vec![0x0e], leb(branches), vec![0; branches + 1]].concat();
    one(
        locals,
        &[vec![3, 0x40], many(locals, increment), table, vec![0x0b]],
    )
}

/// Makes blocks in a row that each take and return this many values.
fn blocks_of_values([blocks, values]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    let kind = module.add_type(values, values);
    let block = [vec![2], leb(kind), vec![0x0b]].concat();
    let code = [
        [0x41, 0].repeat(values),
        block.repeat(blocks),
        vec![0x1a; values],
    ];
    module.add(EMPTY, 0, &code.concat());
    module.bytes()
}

/// Makes calls in a row that each take and return this many values.
fn calls([calls, values]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    let kind = module.add_type(values, values);
    module.add(kind, 0, &many(values, get));
    let code = [
        [0x41, 0].repeat(values),
        [0x10, 2].repeat(calls),
        vec![0x1a; values],
    ];
    module.add(EMPTY, 0, &code.concat());
    module.bytes()
}

fn indirect_calls([calls, _]: [usize; 2]) -> Vec<u8> {
    one(0, &[[0x41, 0, 0x11, EMPTY as u8, 0].repeat(calls)])
}

/// Makes divisions of locals by each other, all of which live to the end.
fn divisions([divisions, locals]: [usize; 2]) -> Vec<u8> {
    let divide = many(divisions, |number| {
        let (by, to) = (number * 7 % locals, number * 13 % locals);
        [get(number % locals), get(by), vec![0x6e, 0x21], leb(to)].concat()
    });
    let uses = many(locals, |local| [get(local), vec![0x1a]].concat());
    one(locals, &[divide, uses])
}

fn functions([functions, _]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    for _ in 0..=functions {
        module.add(EMPTY, 0, &[]);
    }
    module.bytes()
}

/// Makes functions that are each just within the bounds of one.
fn costly_functions([functions, _]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    let table = [get(0), vec![0x0e], leb(1400), vec![0; 1401]].concat();
    let code = [vec![3, 0x40], many(100, increment), table, vec![0x0b]].concat();
    for _ in 0..functions {
        module.add(EMPTY, 100, &code);
    }
    module.bytes()
}

/// Makes elements of a table, each another function.
fn elements([elements, _]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    let count = elements.min(30_000);
    for _ in 0..count {
        module.add(EMPTY, 0, &[]);
    }
    let listed = many(elements, |number| leb(2 + number % count));
    module.elements = [vec![1, 0, 0x41, 0, 0x0b], leb(elements), listed].concat();
    module.bytes()
}

/// Makes types that all differ.
fn signatures([types, values]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    for number in 0..types {
        let mut kinds = vec![0x7f; values + 17];
        for (bit, kind) in kinds.iter_mut().take(17).enumerate() {
            *kind -= (number >> bit & 1) as u8;
        }
        let kind = [vec![0x60], leb(kinds.len()), kinds, vec![0]].concat();
        module.types.push(kind);
    }
    module.bytes()
}

fn computed_elements([elements, _]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    let all = [0xd2, 0, 0x0b].repeat(elements);
    module.elements = [vec![1, 4, 0x41, 0, 0x0b], leb(elements), all].concat();
    module.bytes()
}

/// Makes segments beyond the end of the memory.
fn late_data([segments, _]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    let segment = [0, 0x41, 0x80, 0x80, 0x80, 0x10, 0x0b, 1, 0];
    module.data = [leb(segments), segment.repeat(segments)].concat();
    module.bytes()
}

/// Makes a segment whose offset is a long sum.
fn expressions([summands, _]: [usize; 2]) -> Vec<u8> {
    let mut module = Module::new();
    let sum = [0x41, 0, 0x6a].repeat(summands);
    module.data = [vec![1, 0, 0x41, 0], sum, vec![0x0b, 1, 0]].concat();
    module.bytes()
}

/// The export that makes a component acceptable to this host.
const ENDPOINT: &str = "(instance $e) (export \"watm:transport/endpoint@0.1.0\" (instance $e))";

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {text} {ENDPOINT})")).expect("valid text")
}

/// Makes modules with two bytes each, nearly 16 MiB apart.
fn images([memories, _]: [usize; 2]) -> Vec<u8> {
    let module = "(core module (memory 300) (data (i32.const 0) \"a\") \
        (data (i32.const 16777000) \"a\"))";
    component(&module.repeat(memories.min(15)))
}

/// Makes components that each instantiate the one before it twice.
fn instances([components, _]: [usize; 2]) -> Vec<u8> {
    let mut text = "(component $c0 (core module $m) (core instance (instantiate $m)))".to_owned();
    for number in 1..components {
        let before = number - 1;
        text += &format!(
            "(component $c{number} (alias outer 1 $c{before} (component $x))
                (instance (instantiate $x)) (instance (instantiate $x)))"
        );
    }
    let last = components - 1;
    component(&format!("{text} (instance (instantiate $c{last}))"))
}

/// Makes functions that each take nested pairs, `depth` levels deep.
fn lifted([functions, depth]: [usize; 2]) -> Vec<u8> {
    let mut text = "(type $t0 (tuple u8 u8))".to_owned();
    for level in 1..depth {
        let below = level - 1;
        text += &format!("(type $t{level} (tuple $t{below} $t{below}))");
    }
    text += "(core module $m (memory (export \"m\") 1) (func (export \"f\") (param i32))
        (func (export \"r\") (param i32 i32 i32 i32) (result i32) i32.const 0))
        (core instance $i (instantiate $m))";
    let last = depth - 1;
    let lift = format!(
        "(func (param \"a\" $t{last}) (canon lift (core func $i \"f\")
            (memory (core memory $i \"m\")) (realloc (core func $i \"r\"))))"
    );
    component(&(text + &lift.repeat(functions)))
}

/// Makes a module with a section of names.
fn named(kind: u8, content: &[u8]) -> Vec<u8> {
    let part = [&[kind][..], &leb(content.len()), content].concat();
    let section = [b"\x04name", &part[..]].concat();
    [Module::new().bytes(), vec![0], leb(section.len()), section].concat()
}

fn names([functions, bytes]: [usize; 2]) -> Vec<u8> {
    let name = vec![b'n'; bytes];
    let each = many(functions, |index| {
        [leb(index), leb(bytes), name.clone()].concat()
    });
    named(1, &[leb(functions), each].concat())
}

fn name_of_module([_, bytes]: [usize; 2]) -> Vec<u8> {
    named(0, &[leb(bytes), vec![b'n'; bytes]].concat())
}
