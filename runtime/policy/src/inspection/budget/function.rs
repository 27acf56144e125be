//! The compile cost of a function, for `module`.

use wasmparser::{BinaryReaderError, BlockType, FunctionBody, MemArg, Operator};

use super::at_most;
use super::module::Types;

/// The most bytes of one function: three times the largest known.
const MAX_BYTES: u64 = 128 << 10;
/// The deepest nesting of blocks, loops and conditions.
const MAX_NESTING: u64 = 1000;
/// The most blocks times the values that may live through them.
const MAX_LIVE: u64 = 1_000_000;
/// The most branches times the values that their targets merge.
const MAX_MERGED: u64 = 150_000;
/// The most values merged by loops; in nested loops the cost grows with their square.
const MAX_LOOPED: u64 = 6000;
/// The most branches back to the begin of one loop.
const MAX_BACK: u64 = 1500;
/// The most arguments and results of all calls.
const MAX_ARGUMENTS: u64 = 20_000;
/// The most calls through tables, and other uses of their elements: each is several blocks.
const MAX_INDIRECT: u64 = 2000;

/// Work, in the unit of [`MAX_WORK`](super::MAX_WORK).
const FUNCTION: u64 = 150;
const INSTRUCTION: u64 = 3;
const HEAVY: u64 = 30;
const CALL: u64 = 10;
const INDIRECT: u64 = 100;
const ARGUMENT: u64 = 10;
const MERGED: u64 = 5;
/// The work of ten values that live through a block.
const TEN_LIVE: u64 = 7;

/// The largest offset of loads and stores that needs no check of its own.
const USUAL_OFFSET: u64 = 1 << 20;

/// An open block, loop or condition, or the function itself.
struct Label {
    is_loop: bool,
    /// The number of values that its result, or a loop's begin, takes from the stack.
    values: u64,
    /// The number of branches to it, with the way in or out.
    branches: u64,
    /// The locals that are set within, each once, in order of their numbers.
    set: Vec<u32>,
}

#[derive(Default)]
struct Count {
    instructions: u64,
    heavy: u64,
    calls: u64,
    indirect: u64,
    arguments: u64,
    /// The number of places where the code forks or joins.
    points: u64,
    /// The number of results of blocks, which are variables to the compiler as locals are.
    variables: u64,
    merged: u64,
    looped: u64,
    /// The branches to the begin of the loop that has most.
    back: u64,
    nesting: u64,
    /// True for each local that is used, by its number.
    used: Vec<bool>,
}

/// Returns the work for function `index`, or an error that names the bound it exceeds.
pub(super) fn work(index: u32, body: &FunctionBody<'_>, types: &Types) -> Result<u64, String> {
    let range = body.range();
    let check = |what: &str, found: u64, most: u64| {
        at_most(&format!("function {index}: {what}"), found, most)
    };
    check("bytes", (range.end - range.start) as u64, MAX_BYTES)?;
    // A damaged function is counted as far as it can be read.
    let mut count = Count::default();
    let _ = count.add_all(body, types);
    let used = count.used.iter().filter(|used| **used).count() as u64;
    let live = count.points.saturating_mul(used + count.variables);
    check("nested blocks", count.nesting, MAX_NESTING)?;
    check("blocks times values live across them", live, MAX_LIVE)?;
    check("values merged by branches", count.merged, MAX_MERGED)?;
    check("values merged by loops", count.looped, MAX_LOOPED)?;
    check("branches back to one loop", count.back, MAX_BACK)?;
    check("arguments of calls", count.arguments, MAX_ARGUMENTS)?;
    check("uses of elements of tables", count.indirect, MAX_INDIRECT)?;
    Ok(FUNCTION
        + count.instructions * INSTRUCTION
        + count.heavy * HEAVY
        + count.calls * CALL
        + count.indirect * INDIRECT
        + count.arguments * ARGUMENT
        + count.merged * MERGED
        + live * TEN_LIVE / 10)
}

impl Count {
    fn add_all(&mut self, body: &FunctionBody<'_>, types: &Types) -> Result<(), BinaryReaderError> {
        let mut open = vec![Label::new(false, 0)];
        for operator in body.get_operators_reader()? {
            let operator = operator?;
            self.instructions += 1;
            self.add(&operator, &mut open, types);
            self.nesting = self.nesting.max((open.len() as u64).saturating_sub(1));
            if open.is_empty() || self.is_too_much() {
                break;
            }
        }
        Ok(())
    }

    /// Returns true if a bound is exceeded, so that reading on would only cost time.
    fn is_too_much(&self) -> bool {
        self.nesting > MAX_NESTING || self.merged > MAX_MERGED || self.looped > MAX_LOOPED
    }

    fn add(&mut self, operator: &Operator<'_>, open: &mut Vec<Label>, types: &Types) {
        match operator {
            Operator::Block { blockty }
            | Operator::TryTable {
                try_table: wasmparser::TryTable { ty: blockty, .. },
            } => {
                let (_, results) = self.enter(*blockty, types);
                open.push(Label::new(false, results));
            }
            Operator::If { blockty } => {
                self.points += 1;
                let (_, results) = self.enter(*blockty, types);
                open.push(Label::new(false, results));
            }
            Operator::Loop { blockty } => {
                let (parameters, _) = self.enter(*blockty, types);
                open.push(Label::new(true, parameters));
            }
            Operator::Else => branch(open, 0),
            Operator::End => self.leave(open),
            Operator::Br { relative_depth } => branch(open, *relative_depth),
            Operator::BrIf { relative_depth }
            | Operator::BrOnNull { relative_depth }
            | Operator::BrOnNonNull { relative_depth } => {
                self.points += 1;
                branch(open, *relative_depth);
            }
            Operator::BrTable { targets } => {
                self.points += 1;
                branch(open, targets.default());
                for target in targets.targets().map_while(Result::ok) {
                    self.instructions += 1;
                    branch(open, target);
                }
            }
            Operator::Return => {
                let depth = (open.len() as u32).saturating_sub(1);
                branch(open, depth);
            }
            Operator::LocalGet { local_index } => self.uses(*local_index),
            Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                self.uses(*local_index);
                if let Some(label) = open.last_mut()
                    && let Err(place) = label.set.binary_search(local_index)
                {
                    label.set.insert(place, *local_index);
                }
            }
            Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                self.calls += 1;
                self.arguments += types.values_of_function(*function_index);
            }
            Operator::CallIndirect { type_index, .. }
            | Operator::ReturnCallIndirect { type_index, .. }
            | Operator::CallRef { type_index }
            | Operator::ReturnCallRef { type_index } => {
                self.indirect += 1;
                self.points += 4;
                self.arguments += types.values(*type_index);
            }
            Operator::TableGet { .. } => {
                self.indirect += 1;
                self.points += 4;
            }
            // Their operands are in fixed registers, so values that live there are moved.
            Operator::I32DivS
            | Operator::I32DivU
            | Operator::I32RemS
            | Operator::I32RemU
            | Operator::I64DivS
            | Operator::I64DivU
            | Operator::I64RemS
            | Operator::I64RemU => self.points += 1,
            operator if is_heavy(operator) => self.heavy += 1,
            _ => {}
        }
    }

    /// Begins a block of this type. Returns the numbers of its parameters and results.
    fn enter(&mut self, kind: BlockType, types: &Types) -> (u64, u64) {
        self.points += 1;
        let (parameters, results) = match kind {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(index) => types.parameters_and_results(index),
        };
        self.variables = self.variables.saturating_add(parameters + results);
        (parameters, results)
    }

    /// Ends the innermost block.
    fn leave(&mut self, open: &mut Vec<Label>) {
        let Some(label) = open.pop() else { return };
        let merges = label.set.len() as u64 + label.values;
        if label.is_loop {
            self.looped += merges;
            self.back = self.back.max(label.branches);
        }
        // A block without branches merges nothing.
        if label.branches > 1 {
            self.merged = self.merged.saturating_add(label.branches * merges);
        }
        if let Some(outer) = open.last_mut() {
            outer.set = united(&outer.set, &label.set);
        }
    }

    fn uses(&mut self, local: u32) {
        /// More locals than a function can have in the format.
        const MOST: usize = 50_000;
        let local = local as usize;
        if local >= self.used.len() {
            self.used.resize((local + 1).min(MOST), false);
        }
        if let Some(used) = self.used.get_mut(local) {
            *used = true;
        }
    }
}

impl Label {
    fn new(is_loop: bool, values: u64) -> Label {
        Label {
            is_loop,
            values,
            branches: 1,
            set: Vec::new(),
        }
    }
}

/// Counts a branch to the label at this depth, counted from the innermost.
fn branch(open: &mut [Label], depth: u32) {
    let place = open.len().checked_sub(depth as usize + 1);
    if let Some(label) = place.and_then(|place| open.get_mut(place)) {
        label.branches += 1;
    }
}

/// Returns the numbers of two ordered lists, in order.
fn united(one: &[u32], other: &[u32]) -> Vec<u32> {
    let mut all = [one, other].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns true if the instruction becomes a call of the host, or many instructions.
fn is_heavy(operator: &Operator<'_>) -> bool {
    let is_far = |memarg: &MemArg| memarg.offset > USUAL_OFFSET;
    match operator {
        Operator::MemoryGrow { .. }
        | Operator::MemorySize { .. }
        | Operator::MemoryCopy { .. }
        | Operator::MemoryFill { .. }
        | Operator::MemoryInit { .. }
        | Operator::DataDrop { .. }
        | Operator::TableSet { .. }
        | Operator::TableGrow { .. }
        | Operator::TableSize { .. }
        | Operator::TableCopy { .. }
        | Operator::TableFill { .. }
        | Operator::TableInit { .. }
        | Operator::ElemDrop { .. }
        | Operator::RefFunc { .. }
        | Operator::Throw { .. }
        | Operator::ThrowRef => true,
        Operator::I32Load { memarg }
        | Operator::I64Load { memarg }
        | Operator::I32Load8U { memarg }
        | Operator::I32Load8S { memarg }
        | Operator::I32Load16U { memarg }
        | Operator::I32Load16S { memarg }
        | Operator::I64Load8U { memarg }
        | Operator::I64Load8S { memarg }
        | Operator::I64Load16U { memarg }
        | Operator::I64Load16S { memarg }
        | Operator::I64Load32U { memarg }
        | Operator::I64Load32S { memarg }
        | Operator::I32Store { memarg }
        | Operator::I64Store { memarg }
        | Operator::I32Store8 { memarg }
        | Operator::I32Store16 { memarg }
        | Operator::I64Store8 { memarg }
        | Operator::I64Store16 { memarg }
        | Operator::I64Store32 { memarg }
        | Operator::F32Load { memarg }
        | Operator::F64Load { memarg }
        | Operator::F32Store { memarg }
        | Operator::F64Store { memarg }
        | Operator::V128Load { memarg }
        | Operator::V128Store { memarg } => is_far(memarg),
        _ => false,
    }
}
