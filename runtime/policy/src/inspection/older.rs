//! Components for version 0.1 of the interface.
//!
//! Version 0.2 has everything that 0.1 has, with the same types, apart from two functions of
//! `endpoint` that a host looks for there too. A component for 0.1 is thus one for 0.2 under other
//! names.

use std::borrow::Cow;

use wasmparser::{Parser, Payload};

use super::inspect::PACKAGE;

/// Begins the version in the name of an interface.
const OLD: &str = "@0.1.";
/// The place of the second number in [`OLD`].
const MINOR: usize = 3;

/// Returns a component with names of version 0.2 in place of 0.1. The rest, and what cannot be read,
/// stays as it is.
pub fn renamed(component: &[u8]) -> Cow<'_, [u8]> {
    let places = places(component);
    if places.is_empty() {
        return Cow::Borrowed(component);
    }
    let mut renamed = component.to_vec();
    for place in places {
        renamed[place] = b'2';
    }
    Cow::Owned(renamed)
}

/// Returns the places of the second number in the names of its imports and exports that have version
/// 0.1.
fn places(component: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut depth = 0usize;
    let mut add = |name: &str| {
        let old = name.strip_prefix(PACKAGE).and_then(|rest| rest.find(OLD));
        if let Some(at) = old {
            // Names are parts of the file.
            let begin = name.as_ptr().addr() - component.as_ptr().addr();
            places.push(begin + PACKAGE.len() + at + MINOR);
        }
    };
    for payload in Parser::new(0).parse_all(component).map_while(Result::ok) {
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            Payload::ComponentImportSection(section) => section
                .into_iter()
                .map_while(Result::ok)
                .for_each(|import| add(import.name.name)),
            Payload::ComponentExportSection(section) => section
                .into_iter()
                .map_while(Result::ok)
                .for_each(|export| add(export.name.name)),
            _ => {}
        }
    }
    places
}
