//! Module files of up to 16 MiB, generated from a short program.
//!
//! Each step of the program names an item, its number and its size: from one function to a file of
//! 16 MiB. Most files are valid, so that those within the host's budget reach the compiler.

use wasm_encoder::{
    BlockType, CodeSection, Component, ComponentTypeSection, ConstExpr, CustomSection, DataSection,
    ElementSection, Elements, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    GlobalSection, GlobalType, ImportSection, Instruction, MemArg, MemArgTarget, MemorySection,
    MemoryType, Module, ModuleSection, NestedComponentSection, PrimitiveValType, RefType,
    TableSection, TableType, TypeSection, ValType,
};

use crate::module;

/// The largest sum of all items, in bytes.
const LONGEST: usize = 16 << 20;

/// The largest function, in bytes: twice the largest that a host accepts.
const LONGEST_FUNCTION: usize = 256 << 10;

/// Generates a file and runs the checks of `module` on it.
pub fn run(program: &[u8]) {
    let mut program = Program { rest: program };
    let file = match program.byte() % 4 {
        0 => component(&mut program),
        _ => core(&mut program),
    };
    assert!(file.len() < 2 * LONGEST);
    module::run(&file);
}

struct Program<'a> {
    rest: &'a [u8],
}

impl Program<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        *first
    }

    /// Returns a number up to half a million, in steps of an eighth.
    fn many(&mut self) -> usize {
        let byte = usize::from(self.byte()) % 160;
        ((8 + byte % 8) << (byte / 8)) >> 3
    }

    /// Returns a number below `most`.
    fn below(&mut self, most: u32) -> u32 {
        (u32::from(self.byte()) << 8 | u32::from(self.byte())) % most.max(1)
    }
}

/// A core module, by section.
#[derive(Default)]
struct Core {
    types: TypeSection,
    /// Numbers of parameters and results of each type.
    known: Vec<(usize, usize)>,
    imports: ImportSection,
    imported: u32,
    functions: FunctionSection,
    /// The type of each function, imported ones first.
    of_type: Vec<u32>,
    tables: TableSection,
    globals: GlobalSection,
    exports: ExportSection,
    elements: ElementSection,
    code: CodeSection,
    data: DataSection,
    custom: Vec<u8>,
    /// The approximate size of the file.
    bytes: usize,
}

/// The exports of every WATER module, and their types. They are the first functions after the imported.
const ROLE: [(&str, u32); 4] = [
    ("watm_init_v1", 0),
    ("watm_ctrlpipe_v1", 1),
    ("watm_start_v1", 0),
    ("watm_accept_v1", 1),
];

fn core(program: &mut Program<'_>) -> Vec<u8> {
    let mut core = Core::default();
    core.add_type(0, 1);
    core.add_type(1, 1);
    core.tables.table(table(10));
    let mut pages = 1;
    let mut steps = Vec::new();
    // Types and imports come before the functions that refer to them.
    for _ in 0..50 {
        if program.rest.is_empty() {
            break;
        }
        let (what, many) = (program.byte() % 12, program.many());
        match what {
            0 => {
                let (parameters, results) = (program.many(), program.many());
                for _ in 0..many {
                    core.add_type(parameters, results);
                }
            }
            1 => {
                let of_type = program.below(core.known.len() as u32);
                for _ in 0..many {
                    core.import(of_type);
                }
            }
            2 => pages = many as u64,
            _ => steps.push((what, many, program.byte(), program.many(), program.many())),
        }
    }
    for (_, of_type) in ROLE {
        let mut body = Function::new([]);
        body.instructions().i32_const(0).end();
        core.add_function(of_type, &body);
    }
    for (index, (name, _)) in ROLE.into_iter().enumerate() {
        let index = core.imported + index as u32;
        core.exports.export(name, ExportKind::Func, index);
    }
    core.exports.export("memory", ExportKind::Memory, 0);
    for (what, many, kind, size, width) in steps {
        core.step(what, many, kind, size, width);
    }
    core.finish(pages)
}

fn table(minimum: u64) -> TableType {
    TableType {
        element_type: RefType::FUNCREF,
        table64: false,
        minimum,
        maximum: None,
        shared: false,
    }
}

impl Core {
    /// Counts more bytes. Returns true if the file is full.
    fn is_full(&mut self, more: usize) -> bool {
        self.bytes += more;
        self.bytes > LONGEST
    }

    fn add_type(&mut self, parameters: usize, results: usize) {
        // The specification's limit for implementations.
        let (parameters, results) = (parameters.min(1000), results.min(1000));
        if self.is_full(parameters + results + 5) {
            return;
        }
        let of = |count| std::iter::repeat_n(ValType::I32, count);
        self.types.ty().function(of(parameters), of(results));
        self.known.push((parameters, results));
    }

    fn import(&mut self, of_type: u32) {
        if self.is_full(25) {
            return;
        }
        // The host refuses the import unless its type is right.
        let kind = EntityType::Function(of_type);
        self.imports
            .import("wasi_snapshot_preview1", "sched_yield", kind);
        self.of_type.push(of_type);
        self.imported += 1;
    }

    fn add_function(&mut self, of_type: u32, body: &Function) {
        if self.is_full(body.byte_len() + 6) {
            return;
        }
        self.functions.function(of_type);
        self.of_type.push(of_type);
        self.code.function(body);
    }

    fn step(&mut self, what: u8, many: usize, kind: u8, size: usize, width: usize) {
        match what {
            3 => {
                for number in 0..many {
                    let name = format!("{number}{}", "x".repeat(size % 100));
                    if self.is_full(name.len() + 6) {
                        break;
                    }
                    self.exports.export(&name, ExportKind::Func, self.imported);
                }
            }
            4 => {
                let functions = vec![self.imported; size];
                for _ in 0..many {
                    if self.is_full(functions.len() * 2 + 10) {
                        break;
                    }
                    let offset = ConstExpr::i32_const(0);
                    match kind % 3 {
                        0 => self
                            .elements
                            .passive(Elements::Functions((&functions[..]).into())),
                        1 => self
                            .elements
                            .declared(Elements::Functions((&functions[..]).into())),
                        _ => self.elements.active(
                            Some(0),
                            &offset,
                            Elements::Functions((&functions[..]).into()),
                        ),
                    };
                }
            }
            5 => {
                for number in 0..many {
                    if self.is_full(size + 10) {
                        break;
                    }
                    let at = number.wrapping_mul(width) as i32;
                    let content = std::iter::repeat_n(7, size);
                    match kind % 2 {
                        0 => self.data.active(0, &ConstExpr::i32_const(at), content),
                        _ => self.data.passive(content),
                    };
                }
            }
            6 => {
                let own = GlobalType {
                    val_type: ValType::I64,
                    mutable: kind.is_multiple_of(2),
                    shared: false,
                };
                for number in 0..many {
                    if self.is_full(12) {
                        break;
                    }
                    self.globals
                        .global(own, &ConstExpr::i64_const(number as i64));
                }
            }
            7 => {
                self.tables.table(table((many * size) as u64));
            }
            8 if !self.is_full(many * 16) => self.custom.resize(many * 16, 0),
            _ => {
                let of_type = (width % self.known.len()) as u32;
                let body = self.body(of_type, kind, size, width);
                for _ in 0..many {
                    self.add_function(of_type, &body);
                }
            }
        }
    }

    /// Returns a function with an item of this kind `size` times, each of `width` parts.
    fn body(&self, of_type: u32, kind: u8, size: usize, width: usize) -> Function {
        let (parameters, results) = self.known[of_type as usize];
        let locals = width.clamp(1, 50_000 - parameters) as u32;
        let all = parameters as u32 + locals;
        let mut body = Function::new([(locals, ValType::I32)]);
        for number in 0..size {
            if body.byte_len() > LONGEST_FUNCTION {
                break;
            }
            self.add(&mut body, kind, number as u32, all, width);
        }
        for _ in 0..results {
            body.instruction(&Instruction::I32Const(0));
        }
        body.instruction(&Instruction::End);
        body
    }

    /// Adds an item that leaves the stack empty.
    fn add(&self, body: &mut Function, kind: u8, number: u32, locals: u32, width: usize) {
        use Instruction::{
            Block, Br, BrIf, BrTable, Drop, Else, End, I32Add, I32Const, I32Load, If, LocalGet,
            LocalSet, LocalTee, Loop,
        };
        let (one, next) = (number % locals, (number + 1) % locals);
        let width = width.min(2000);
        let mut all = |instructions: &[Instruction<'_>]| {
            for instruction in instructions {
                body.instruction(instruction);
            }
        };
        let far = MemArg {
            offset: (width as u64) << 20,
            align: 0,
            target: MemArgTarget::Memory(0),
            ordering: None,
        };
        match kind % 18 {
            0 => all(&[LocalGet(one), LocalGet(next), I32Add, LocalSet(next)]),
            1 => all(&[Block(BlockType::Empty), End]),
            2 => all(&[
                Loop(BlockType::Empty),
                LocalGet(one),
                LocalSet(next),
                LocalGet(next),
                BrIf(0),
                End,
            ]),
            3 => {
                for _ in 0..width {
                    all(&[Block(BlockType::Empty)]);
                }
                let targets: Vec<u32> = (0..width as u32).collect();
                all(&[LocalGet(one), BrTable(targets.into(), 0)]);
                for _ in 0..width {
                    all(&[LocalGet(one), LocalSet(next), End]);
                }
            }
            4 => all(&[
                LocalGet(one),
                If(BlockType::Empty),
                LocalGet(next),
                LocalSet(one),
                Else,
                LocalGet(one),
                LocalSet(next),
                End,
            ]),
            5 | 6 => {
                let function = number % self.of_type.len().max(1) as u32;
                let of_type = self
                    .of_type
                    .get(function as usize)
                    .copied()
                    .unwrap_or_default();
                let (parameters, results) = self.known[of_type as usize];
                for _ in 0..parameters {
                    all(&[LocalGet(one)]);
                }
                match kind % 18 {
                    5 => all(&[Instruction::Call(function)]),
                    _ => all(&[
                        LocalGet(one),
                        Instruction::CallIndirect {
                            type_index: of_type,
                            table_index: 0,
                        },
                    ]),
                }
                for _ in 0..results {
                    all(&[Drop]);
                }
            }
            7 => all(&[LocalGet(one), I32Load(far), LocalSet(next)]),
            8 => all(&[
                LocalGet(one),
                LocalGet(next),
                Instruction::I32DivU,
                LocalSet(one),
            ]),
            9 => all(&[
                LocalGet(one),
                LocalGet(one),
                LocalGet(one),
                Instruction::MemoryCopy {
                    src_mem: 0,
                    dst_mem: 0,
                },
            ]),
            10 => {
                let of_type = number % self.known.len() as u32;
                let (parameters, results) = self.known[of_type as usize];
                for _ in 0..parameters {
                    all(&[LocalGet(one)]);
                }
                all(&[Block(BlockType::FunctionType(of_type))]);
                for _ in 0..parameters {
                    all(&[Drop]);
                }
                for _ in 0..results {
                    all(&[LocalGet(next)]);
                }
                all(&[End]);
                for _ in 0..results {
                    all(&[Drop]);
                }
            }
            11 => {
                all(&[I32Const(number as i32)]);
                for local in 0..(width as u32).min(locals) {
                    all(&[LocalTee(local)]);
                }
                all(&[Drop]);
            }
            12 => all(&[LocalGet(one), Instruction::TableGet(0), Drop]),
            13 => all(&[
                Instruction::V128Const(i128::from(number)),
                LocalGet(one),
                Instruction::I8x16Splat,
                Instruction::I8x16Swizzle,
                Drop,
            ]),
            14 => {
                all(&[Instruction::F64Const(1.5.into())]);
                for _ in 0..width % 100 {
                    all(&[Instruction::F64Const(0.1.into()), Instruction::F64Div]);
                }
                all(&[Drop]);
            }
            15 => {
                for _ in 0..width {
                    all(&[Loop(BlockType::Empty)]);
                }
                all(&[LocalGet(one), BrIf(width.saturating_sub(1) as u32)]);
                for _ in 0..width {
                    all(&[LocalGet(one), LocalSet(next), End]);
                }
            }
            16 => {
                all(&[Loop(BlockType::Empty)]);
                for _ in 0..width {
                    all(&[LocalGet(one), BrIf(0)]);
                }
                all(&[End]);
            }
            _ => all(&[
                Block(BlockType::Empty),
                LocalGet(one),
                LocalSet(next),
                Br(0),
                End,
            ]),
        }
    }

    fn finish(self, pages: u64) -> Vec<u8> {
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: pages,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        let mut module = Module::new();
        module
            .section(&self.types)
            .section(&self.imports)
            .section(&self.functions)
            .section(&self.tables)
            .section(&memories)
            .section(&self.globals)
            .section(&self.exports)
            .section(&self.elements)
            .section(&wasm_encoder::DataCountSection {
                count: self.data.len(),
            })
            .section(&self.code)
            .section(&self.data)
            .section(&CustomSection {
                name: "".into(),
                data: self.custom.into(),
            });
        module.finish()
    }
}

/// Returns a component of modules, components and types, without a transport's exports.
fn component(program: &mut Program<'_>) -> Vec<u8> {
    let mut component = Component::new();
    let mut bytes = 0;
    for _ in 0..50 {
        if program.rest.is_empty() {
            break;
        }
        let (what, many, size) = (program.byte() % 5, program.many(), program.many());
        match what {
            0 => {
                let mut module = Module::new();
                module.section(&CustomSection {
                    name: "".into(),
                    data: vec![0; size].into(),
                });
                for _ in 0..many {
                    bytes += size + 20;
                    if bytes > LONGEST {
                        break;
                    }
                    component.section(&ModuleSection(&module));
                }
            }
            1 => {
                let mut inner = Component::new();
                // Each level copies all below it.
                for _ in 0..size.min(200) {
                    let mut outer = Component::new();
                    outer.section(&NestedComponentSection(&inner));
                    inner = outer;
                }
                for _ in 0..many {
                    bytes += size.min(200) * 12 + 20;
                    if bytes > LONGEST {
                        break;
                    }
                    component.section(&NestedComponentSection(&inner));
                }
            }
            2 => {
                // Each type is twice as large as the one before.
                let mut types = ComponentTypeSection::new();
                types.defined_type().primitive(PrimitiveValType::U8);
                for index in 0..(many as u32).min(1000) {
                    types.defined_type().tuple([
                        wasm_encoder::ComponentValType::Type(index),
                        wasm_encoder::ComponentValType::Type(index),
                    ]);
                }
                component.section(&types);
            }
            3 => {
                let mut types = ComponentTypeSection::new();
                for _ in 0..many {
                    bytes += size + 10;
                    if bytes > LONGEST {
                        break;
                    }
                    let fields = std::iter::repeat_n(PrimitiveValType::U64, size);
                    types
                        .defined_type()
                        .tuple(fields.map(wasm_encoder::ComponentValType::Primitive));
                }
                component.section(&types);
            }
            _ => {
                bytes += many * 16;
                if bytes < LONGEST {
                    component.section(&CustomSection {
                        name: "".into(),
                        data: vec![0; many * 16].into(),
                    });
                }
            }
        }
    }
    component.finish()
}
