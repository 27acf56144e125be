//! The compile cost of a core module, apart from its functions. `budget::check` adds it up.

use wasmparser::{
    CompositeInnerType, ConstExpr, DataKind, DataSectionReader, ElementItems, ElementKind,
    ElementSectionReader, Operator, Payload, TableInit, TypeRef, TypeSectionReader,
};

use super::{Work, at_most, function};

/// The most functions of one module: each keeps some kilobytes of the compiler's memory.
const MAX_FUNCTIONS: u64 = 40_000;
/// The most parameters, and results, of one signature.
const MAX_VALUES: u64 = 200;
/// The most globals, and elements of tables, that the module computes when it starts: all in one
/// function.
const MAX_COMPUTED: u64 = 10_000;
/// The most bytes of the expressions for that.
const MAX_EXPRESSIONS: u64 = 256 << 10;
/// The most segments of data that cannot be put into an image before the start.
const MAX_LATE_DATA: u64 = 2000;

/// Work, in the unit of [`MAX_WORK`](super::MAX_WORK).
const SIGNATURE: u64 = 500;
const VALUE: u64 = 30;
/// A function in a table or an export has a second entry.
const ENTRY: u64 = 350;
const COMPUTED: u64 = 100;
const LATE_DATA: u64 = 200;

const PAGE: u64 = 64 << 10;
/// An image of this many bytes or more must be more than half filled. Otherwise the data of its module
/// waits for the start.
const CLOSE: u64 = 16 << 20;

/// The types of a module: the numbers of parameters and results of each.
#[derive(Default)]
pub(super) struct Types {
    known: Vec<(u64, u64)>,
    functions: Vec<u32>,
}

impl Types {
    pub(super) fn parameters_and_results(&self, index: u32) -> (u64, u64) {
        self.known.get(index as usize).copied().unwrap_or_default()
    }

    pub(super) fn values(&self, index: u32) -> u64 {
        let (parameters, results) = self.parameters_and_results(index);
        parameters + results
    }

    pub(super) fn values_of_function(&self, index: u32) -> u64 {
        let index = self.functions.get(index as usize);
        index.map_or(0, |index| self.values(*index))
    }
}

/// A memory, and the range of its segments.
struct Memory {
    bytes: u64,
    first: u64,
    end: u64,
    filled: u64,
}

/// The counts of a module so far.
#[derive(Default)]
pub(super) struct Module {
    types: Types,
    imported: u32,
    /// The number of functions with a body that have been read.
    read: u32,
    /// The memories; `None` for an imported one.
    memories: Vec<Option<Memory>>,
    /// The number of initial elements of its own tables.
    elements: u64,
    computed: u64,
    expressions: u64,
    data: u64,
    /// True if its data has to wait for the start.
    is_late: bool,
}

/// The bytes that exist before a module runs: images of memories, and tables.
pub(super) struct Images(pub(super) u64);

impl Module {
    pub(super) fn add(&mut self, payload: &Payload<'_>, work: &mut Work) -> Result<(), String> {
        match payload {
            Payload::TypeSection(section) => self.add_types(section.clone(), work)?,
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports().map_while(Result::ok) {
                    match import.ty {
                        TypeRef::Func(index) | TypeRef::FuncExact(index) => {
                            self.types.functions.push(index);
                            self.imported += 1;
                        }
                        TypeRef::Memory(_) => self.memories.push(None),
                        _ => {}
                    }
                }
            }
            Payload::FunctionSection(section) => {
                at_most("functions", section.count().into(), MAX_FUNCTIONS)?;
                let functions = section.clone().into_iter().map_while(Result::ok);
                self.types.functions.extend(functions);
            }
            Payload::TableSection(section) => {
                for table in section.clone().into_iter().map_while(Result::ok) {
                    self.elements = self.elements.saturating_add(table.ty.initial);
                    if let TableInit::Expr(expression) = &table.init {
                        self.compute(expression);
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section.clone().into_iter().map_while(Result::ok) {
                    let page = memory.page_size_log2.map_or(PAGE, |log| 1 << log.min(16));
                    self.memories.push(Some(Memory {
                        bytes: memory.initial.saturating_mul(page),
                        first: u64::MAX,
                        end: 0,
                        filled: 0,
                    }));
                }
            }
            Payload::GlobalSection(section) => {
                for global in section.clone().into_iter().map_while(Result::ok) {
                    self.compute(&global.init_expr);
                }
            }
            Payload::ExportSection(section) => {
                work.add(u64::from(section.count()).saturating_mul(ENTRY))?;
            }
            Payload::ElementSection(section) => self.add_elements(section.clone(), work)?,
            Payload::DataSection(section) => self.add_data(section.clone()),
            Payload::CodeSectionEntry(body) => {
                let index = self.imported.saturating_add(self.read);
                self.read += 1;
                let costs = function::work(index, body, &self.types)?;
                work.add_function(index, costs)?;
            }
            _ => {}
        }
        at_most("values computed at the start", self.computed, MAX_COMPUTED)?;
        at_most("bytes of expressions", self.expressions, MAX_EXPRESSIONS)
    }

    fn add_types(&mut self, section: TypeSectionReader<'_>, work: &mut Work) -> Result<(), String> {
        for group in section.into_iter().map_while(Result::ok) {
            for kind in group.into_types() {
                let (parameters, results) = match &kind.composite_type.inner {
                    CompositeInnerType::Func(function) => (
                        function.params().len() as u64,
                        function.results().len() as u64,
                    ),
                    _ => (0, 0),
                };
                let index = self.types.known.len();
                let check = |what: &str, found: u64| {
                    at_most(&format!("type {index}: {what}"), found, MAX_VALUES)
                };
                check("parameters", parameters)?;
                check("results", results)?;
                work.add(SIGNATURE + VALUE * (parameters + results))?;
                self.types.known.push((parameters, results));
            }
        }
        Ok(())
    }

    fn add_elements(
        &mut self,
        section: ElementSectionReader<'_>,
        work: &mut Work,
    ) -> Result<(), String> {
        for segment in section.into_iter().map_while(Result::ok) {
            let is_known = match &segment.kind {
                ElementKind::Active { offset_expr, .. } => {
                    self.compute(offset_expr);
                    true
                }
                ElementKind::Declared => true,
                ElementKind::Passive => {
                    self.computed += 1;
                    false
                }
            };
            match segment.items {
                ElementItems::Functions(functions) => {
                    let count = u64::from(functions.count());
                    // A repeated function costs little, but counts too.
                    work.add(count.min(MAX_FUNCTIONS) * ENTRY)?;
                    if !is_known {
                        self.computed = self.computed.saturating_add(count);
                    }
                }
                ElementItems::Expressions(_, expressions) => {
                    self.computed = self.computed.saturating_add(expressions.count().into());
                    for expression in expressions.into_iter().map_while(Result::ok) {
                        self.expressions += length(&expression);
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts a value that is computed at the start, unless it is a constant number.
    fn compute(&mut self, expression: &ConstExpr<'_>) {
        self.expressions += length(expression);
        if number(expression).is_none() {
            self.computed += 1;
        }
    }

    fn add_data(&mut self, section: DataSectionReader<'_>) {
        self.data += u64::from(section.count());
        for segment in section.into_iter().map_while(Result::ok) {
            let DataKind::Active {
                memory_index,
                offset_expr,
            } = &segment.kind
            else {
                continue;
            };
            let memory = self.memories.get_mut(*memory_index as usize);
            let length = segment.data.len() as u64;
            match (memory, number(offset_expr)) {
                (Some(Some(memory)), Some(offset))
                    if offset.saturating_add(length) <= memory.bytes =>
                {
                    memory.first = memory.first.min(offset);
                    memory.end = memory.end.max(offset + length);
                    memory.filled += length;
                }
                _ => {
                    self.is_late = true;
                    self.expressions += self::length(offset_expr);
                }
            }
        }
    }

    /// Returns the images, once everything is read.
    pub(super) fn finish(self, work: &mut Work) -> Result<Images, String> {
        work.add(self.computed * COMPUTED)?;
        let memories = self.memories.iter().flatten();
        let filled = memories.filter(|memory| memory.filled > 0);
        let images: Vec<(u64, u64)> = filled
            .map(|memory| (memory.end - memory.first, memory.filled))
            .collect();
        let is_sparse =
            |&(image, filled): &(u64, u64)| image >= filled.saturating_mul(2) && image >= CLOSE;
        let is_late = self.is_late || images.iter().any(is_sparse);
        let images = match is_late {
            true => {
                at_most("segments of data for the start", self.data, MAX_LATE_DATA)?;
                work.add(self.data * LATE_DATA)?;
                0
            }
            false => images.iter().map(|(image, _)| image).sum(),
        };
        // A table's elements are numbers of four bytes, with room to grow.
        let tables = self.elements.saturating_mul(16);
        Ok(Images(tables.saturating_add(images)))
    }
}

/// Returns the bytes of an expression.
fn length(expression: &ConstExpr<'_>) -> u64 {
    expression.get_binary_reader().bytes_remaining() as u64
}

/// Returns the value of an expression that is only a number.
fn number(expression: &ConstExpr<'_>) -> Option<u64> {
    let mut operators = expression.get_operators_reader().into_iter();
    let number = match operators.next()?.ok()? {
        Operator::I32Const { value } => u64::from(value.cast_unsigned()),
        Operator::I64Const { value } => value.cast_unsigned(),
        Operator::F32Const { .. } | Operator::F64Const { .. } | Operator::V128Const { .. } => 0,
        _ => return None,
    };
    matches!(operators.next()?.ok()?, Operator::End).then_some(number)
}
