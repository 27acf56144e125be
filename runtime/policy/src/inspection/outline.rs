//! The imports and exports of a module, read without compiling it, for `inspect`.

use std::fmt::Write;

use wasmparser::{
    BinaryReaderError, CompositeInnerType, Encoding, ExternalKind, FuncType, Parser, Payload,
    TypeRef, ValType,
};

use super::about::{self, About};
use super::budget::check_names;
use super::inspect::shown;
use super::program;
use crate::ModuleKind;

/// The outermost imports and exports of a module. Nested modules are only skimmed.
#[derive(Default)]
pub struct Outline {
    component: bool,
    /// True if it has a section `watm.alone`, nested or not.
    pub alone: bool,
    /// Its description of itself, nested or not, or the reason why it has none that can be read.
    pub about: Option<Result<Option<About>, String>>,
    /// True if it has a section `watm.names-clients`.
    pub names_clients: bool,
    /// The imports. Those of a core module name a module, those of a component do not.
    pub imports: Vec<Import>,
    pub exports: Vec<Export>,
}

pub struct Import {
    pub module: Option<String>,
    pub name: String,
    pub kind: Item,
}

pub struct Export {
    pub name: String,
    pub kind: Item,
}

/// An imported or exported item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A function, with its type in words, such as `(i32,i64)->i32`.
    Function(String),
    Memory,
    Other,
}

/// The section of modules of which only one instance may serve, which the description says since:
/// see `wit/world.wit`.
const ALONE: &str = "watm.alone";

/// The section of WATER modules whose connections begin with the name of their client, as those of the
/// PROXY protocol do. The interface cannot tell a host otherwise. The contents are ignored.
const NAMES_CLIENTS: &str = "watm.names-clients";

/// The most values of a type that are shown. Longer types are cut: the host looks for no function of
/// such a type.
const MAX_SHOWN_VALUES: usize = 10;

impl Outline {
    /// Returns the kind of the file: see [`ModuleKind`].
    pub fn kind(&self) -> ModuleKind {
        let has = |name: &str| self.export(name).is_some();
        let names = || self.exports.iter().map(|export| export.name.as_str());
        if self.component
            && !names().any(|name| name.starts_with("watm:"))
            && program::runs(names())
        {
            ModuleKind::Program
        } else if self.component {
            ModuleKind::Component
        } else if has("watm_userpipe_v1") && !has("watm_init_v1") {
            ModuleKind::WaterV1Final
        } else if names().any(|name| name.starts_with("watm_") && name.ends_with("_v1")) {
            ModuleKind::WaterV1
        } else if has("_water_v1") {
            ModuleKind::WaterV1Preview
        } else if names().any(|name| name.starts_with("_water_")) {
            ModuleKind::WaterV0
        } else {
            ModuleKind::CoreModule
        }
    }

    pub fn export(&self, name: &str) -> Option<&Item> {
        let mut exports = self.exports.iter();
        exports
            .find(|export| export.name == name)
            .map(|export| &export.kind)
    }

    /// Returns the names of the imports, sorted.
    pub fn import_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.imports.iter().map(Import::full_name).collect();
        names.sort();
        names
    }

    /// Returns the names of the exports, sorted.
    pub fn export_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.exports.iter().map(|e| e.name.clone()).collect();
        names.sort();
        names
    }
}

impl Import {
    pub fn full_name(&self) -> String {
        match &self.module {
            Some(module) => format!("{module}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Reads a module. The error says where it is damaged.
pub fn outline(bytes: &[u8]) -> Result<Outline, String> {
    let damaged = |error: BinaryReaderError| {
        format!(
            "cut short or damaged at byte {}: {}",
            error.offset(),
            shown(error.message())
        )
    };
    let mut depth = 0usize;
    let mut outline = Outline::default();
    let mut types = Types::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(damaged)? {
            Payload::Version { encoding, .. } if depth == 0 => {
                outline.component = encoding == Encoding::Component;
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if section.name() == "name" => check_names(&section)?,
            Payload::CustomSection(section) if section.name() == ALONE => outline.alone = true,
            Payload::CustomSection(section) if section.name() == about::SECTION => {
                outline.about = Some(match &outline.about {
                    None => about::parse(section.data()),
                    Some(_) => Err(format!(
                        "has several sections {}; must have one",
                        about::SECTION
                    )),
                });
            }
            Payload::CustomSection(section) if section.name() == NAMES_CLIENTS => {
                outline.names_clients = true;
            }
            _ if depth > 0 => {}
            Payload::ComponentImportSection(section) => {
                for import in section {
                    outline.imports.push(Import {
                        module: None,
                        name: import.map_err(damaged)?.name.name.to_owned(),
                        kind: Item::Other,
                    });
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    outline.exports.push(Export {
                        name: export.map_err(damaged)?.name.name.to_owned(),
                        kind: Item::Other,
                    });
                }
            }
            Payload::TypeSection(section) => {
                for group in section {
                    for kind in group.map_err(damaged)?.into_types() {
                        types.known.push(match kind.composite_type.inner {
                            CompositeInnerType::Func(function) => Some(function),
                            _ => None,
                        });
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(damaged)?;
                    let kind = match import.ty {
                        TypeRef::Func(index) | TypeRef::FuncExact(index) => {
                            types.functions.push(index);
                            types.function_of_type(index)
                        }
                        TypeRef::Memory(_) => Item::Memory,
                        _ => Item::Other,
                    };
                    outline.imports.push(Import {
                        module: Some(import.module.to_owned()),
                        name: import.name.to_owned(),
                        kind,
                    });
                }
            }
            Payload::FunctionSection(section) => {
                for index in section {
                    types.functions.push(index.map_err(damaged)?);
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.map_err(damaged)?;
                    outline.exports.push(Export {
                        name: export.name.to_owned(),
                        kind: match export.kind {
                            ExternalKind::Func | ExternalKind::FuncExact => {
                                types.function(export.index)
                            }
                            ExternalKind::Memory => Item::Memory,
                            _ => Item::Other,
                        },
                    });
                }
            }
            _ => {}
        }
    }
    Ok(outline)
}

/// The types of a module, and the types of its functions by index.
#[derive(Default)]
struct Types {
    /// The types; `None` for one that is not of a function.
    known: Vec<Option<FuncType>>,
    functions: Vec<u32>,
}

impl Types {
    fn function(&self, index: u32) -> Item {
        match self.functions.get(index as usize) {
            Some(index) => self.function_of_type(*index),
            None => Item::Other,
        }
    }

    fn function_of_type(&self, index: u32) -> Item {
        match self.known.get(index as usize) {
            Some(Some(function)) => Item::Function(in_words(function)),
            _ => Item::Other,
        }
    }
}

fn in_words(function: &FuncType) -> String {
    let list = |values: &[ValType]| {
        let mut out = String::new();
        for (place, value) in values.iter().take(MAX_SHOWN_VALUES).enumerate() {
            let comma = if place > 0 { "," } else { "" };
            // Writing to a string does not fail.
            let _ = write!(out, "{comma}{value}");
        }
        if values.len() > MAX_SHOWN_VALUES {
            out += ",…";
        }
        out
    };
    let results = match function.results() {
        [one] => one.to_string(),
        many => format!("({})", list(many)),
    };
    format!("({})->{results}", list(function.params()))
}
