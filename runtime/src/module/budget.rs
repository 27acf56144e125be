//! How much a file may ask of the compiler.
//!
//! A compiler's time and memory grow with what it is given, and with a single function more than in
//! proportion; no compilation can be given up half way. So what would take long is refused before,
//! by its size. The numbers are several times those of the largest modules there are: those of
//! WATER that Go's compiler made, and WireGuard with its ciphers.

use wasmparser::{Operator, Parser, Payload};

/// Functions of all modules in the file.
const MAX_FUNCTIONS: u64 = 100_000;
/// Bytes of all functions: some ten seconds of one core.
const MAX_CODE_BYTES: u64 = 16 << 20;
/// Bytes of one function.
const MAX_FUNCTION_BYTES: u64 = 512 << 10;
/// Blocks, loops and conditions within each other.
const MAX_NESTING: u32 = 1000;
/// Modules and components within each other, and beside each other.
const MAX_MODULES: u32 = 100;

/// That it can be compiled within bounds. Reads the whole file once.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let too_much = |what: &str, found: u64, most: u64| {
        Err(format!(
            "{what}: {found}; no transport has more than {most}, and this host compiles no more"
        ))
    };
    let (mut functions, mut code, mut modules) = (0, 0, 0);
    for payload in Parser::new(0).parse_all(bytes) {
        // What is damaged is the compiler's to name.
        let Ok(payload) = payload else { return Ok(()) };
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                modules += 1;
                if modules > MAX_MODULES {
                    return too_much("modules", modules.into(), MAX_MODULES.into());
                }
            }
            Payload::CodeSectionStart { count, .. } => {
                functions += u64::from(count);
                if functions > MAX_FUNCTIONS {
                    return too_much("functions", functions, MAX_FUNCTIONS);
                }
            }
            Payload::CodeSectionEntry(body) => {
                let range = body.range();
                let size = (range.end - range.start) as u64;
                code += size;
                if size > MAX_FUNCTION_BYTES {
                    return too_much("bytes of a function", size, MAX_FUNCTION_BYTES);
                }
                if code > MAX_CODE_BYTES {
                    return too_much("bytes of functions", code, MAX_CODE_BYTES);
                }
                let nesting = body.get_operators_reader().map_or(0, nesting);
                if nesting > MAX_NESTING {
                    return too_much(
                        "blocks within each other",
                        nesting.into(),
                        MAX_NESTING.into(),
                    );
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The deepest, as far as it can be read.
fn nesting(operators: wasmparser::OperatorsReader<'_>) -> u32 {
    let (mut depth, mut deepest) = (0u32, 0);
    for operator in operators.into_iter().map_while(Result::ok) {
        match operator {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::TryTable { .. } => depth += 1,
            Operator::End => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
