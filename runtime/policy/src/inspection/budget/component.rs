//! The compile cost of a component, apart from its modules. `budget::check` adds it up.

use std::collections::HashMap;

use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentDefinedTypeId, ComponentFuncTypeId,
    ComponentValType,
};
use wasmparser::types::TypesRef;
use wasmparser::{
    CanonicalFunction, ComponentInstance, ComponentType, ComponentTypeDeclaration,
    InstanceTypeDeclaration, Payload, Validator, WasmFeatures,
};

use super::module::Images;
use super::{Work, at_most};

/// The most modules and components in the file; all but the simplest files have four and one.
const MAX_MODULES: u64 = 16;
const MAX_COMPONENTS: u64 = 8;
/// The most instantiations of components within it: each component is compiled again for each of
/// them, and so are those that it instantiates itself.
const MAX_INSTANCES: u64 = 4;
/// The most functions lifted and lowered, and of those the most in inner components, which may be
/// joined to each other by generated code.
const MAX_FUNCTIONS: u64 = 1000;
const MAX_INNER_FUNCTIONS: u64 = 100;
/// The most imports at all levels.
const MAX_IMPORTS: u64 = 200;
/// The most types, with all declarations in them.
const MAX_DECLARED: u64 = 4000;
/// The most bytes in images of memories and tables, before the module runs.
const MAX_IMAGES: u64 = 64 << 20;

/// Work, in the unit of [`MAX_WORK`](super::MAX_WORK).
const FUNCTION: u64 = 500;
const INNER_FUNCTION: u64 = 40_000;
/// A value in a function's type, however deep.
const VALUE: u64 = 1;

/// The counts of a file so far.
pub(super) struct Component {
    /// The validator, which knows the types if it has seen all payloads. `None`: the file is
    /// damaged.
    validator: Option<Validator>,
    sizes: Sizes,
    modules: u64,
    components: u64,
    instances: u64,
    functions: u64,
    inner_functions: u64,
    imports: u64,
    declared: u64,
    images: u64,
}

impl Default for Component {
    fn default() -> Component {
        Component {
            // The compiler refuses what this host does not run.
            validator: Some(Validator::new_with_features(WasmFeatures::all())),
            sizes: Sizes::default(),
            modules: 0,
            components: 0,
            instances: 0,
            functions: 0,
            inner_functions: 0,
            imports: 0,
            declared: 0,
            images: 0,
        }
    }
}

impl Component {
    /// Counts a payload at this depth; 1 is the file's own.
    pub(super) fn add(
        &mut self,
        payload: &Payload<'_>,
        depth: usize,
        work: &mut Work,
    ) -> Result<(), String> {
        match payload {
            Payload::ModuleSection { .. } => self.modules += 1,
            Payload::ComponentSection { .. } => self.components += 1,
            Payload::ComponentInstanceSection(section) => {
                let instances = section.clone().into_iter().map_while(Result::ok);
                let made = instances
                    .filter(|instance| matches!(instance, ComponentInstance::Instantiate { .. }));
                self.instances += made.count() as u64;
            }
            Payload::ComponentImportSection(section) => self.imports += u64::from(section.count()),
            Payload::ComponentTypeSection(section) => {
                for kind in section.clone().into_iter().map_while(Result::ok) {
                    self.declared += declared(&kind);
                }
            }
            _ => {}
        }
        at_most("modules", self.modules, MAX_MODULES)?;
        at_most("components", self.components, MAX_COMPONENTS)?;
        at_most("instances of components", self.instances, MAX_INSTANCES)?;
        at_most("imports", self.imports, MAX_IMPORTS)?;
        at_most("types", self.declared, MAX_DECLARED)?;
        if let Some(validator) = &mut self.validator
            && validator.payload(payload).is_err()
        {
            self.validator = None;
        }
        if let Payload::ComponentCanonicalSection(section) = payload {
            for function in section.clone().into_iter().map_while(Result::ok) {
                self.add_function(&function, depth, work)?;
            }
        }
        Ok(())
    }

    fn add_function(
        &mut self,
        function: &CanonicalFunction,
        depth: usize,
        work: &mut Work,
    ) -> Result<(), String> {
        self.functions += 1;
        at_most(
            "functions lifted and lowered",
            self.functions,
            MAX_FUNCTIONS,
        )?;
        if depth > 1 {
            self.inner_functions += 1;
            let found = self.inner_functions;
            at_most("functions of inner components", found, MAX_INNER_FUNCTIONS)?;
            work.add(INNER_FUNCTION)?;
        }
        let types = self.validator.as_ref().and_then(|known| known.types(0));
        let Some(types) = types else { return Ok(()) };
        let kind = match function {
            CanonicalFunction::Lift { type_index, .. } => {
                match types.component_any_type_at(*type_index) {
                    ComponentAnyTypeId::Func(kind) => Some(kind),
                    _ => None,
                }
            }
            CanonicalFunction::Lower { func_index, .. } => {
                Some(types.component_function_at(*func_index))
            }
            _ => None,
        };
        let values = kind.map_or(0, |kind| self.sizes.values(kind, types));
        work.add(FUNCTION.saturating_add(values.saturating_mul(VALUE)))
    }

    /// Adds the images of a module in it, or of the file itself.
    pub(super) fn add_images(&mut self, Images(bytes): Images) -> Result<(), String> {
        self.images = self.images.saturating_add(bytes);
        at_most("bytes of memories and tables", self.images, MAX_IMAGES)
    }
}

/// The number of values within one of each type.
#[derive(Default)]
struct Sizes(HashMap<ComponentDefinedTypeId, u64>);

impl Sizes {
    fn values(&mut self, kind: ComponentFuncTypeId, types: TypesRef<'_>) -> u64 {
        let kind = &types[kind];
        let parameters = kind.params.iter().map(|(_, value)| *value);
        let all: Vec<ComponentValType> = parameters.chain(kind.result).collect();
        self.sum(all.into_iter(), types)
    }

    fn sum(&mut self, all: impl Iterator<Item = ComponentValType>, types: TypesRef<'_>) -> u64 {
        all.fold(0, |sum: u64, value| {
            sum.saturating_add(match value {
                ComponentValType::Primitive(_) => 1,
                ComponentValType::Type(id) => self.size(id, types),
            })
        })
    }

    /// Returns the number of values within one of this type. The validator limits the depth of
    /// types.
    fn size(&mut self, id: ComponentDefinedTypeId, types: TypesRef<'_>) -> u64 {
        if let Some(size) = self.0.get(&id) {
            return *size;
        }
        let inner: Vec<ComponentValType> = match &types[id] {
            ComponentDefinedType::Record(record) => record.fields.values().copied().collect(),
            ComponentDefinedType::Variant(variant) => {
                variant.cases.values().filter_map(|case| case.ty).collect()
            }
            ComponentDefinedType::Tuple(tuple) => tuple.types.to_vec(),
            ComponentDefinedType::List { element, .. }
            | ComponentDefinedType::FixedLengthList { element, .. } => vec![*element],
            ComponentDefinedType::Map { key, value, .. } => vec![*key, *value],
            ComponentDefinedType::Option { ty, .. } => vec![*ty],
            ComponentDefinedType::Result { ok, err, .. } => ok.iter().chain(err).copied().collect(),
            ComponentDefinedType::Future { ty, .. } | ComponentDefinedType::Stream { ty, .. } => {
                ty.iter().copied().collect()
            }
            _ => Vec::new(),
        };
        let size = self.sum(inner.into_iter(), types).saturating_add(1);
        self.0.insert(id, size);
        size
    }
}

/// Returns the number of a type's declarations, itself included.
fn declared(kind: &ComponentType<'_>) -> u64 {
    use wasmparser::ComponentDefinedType as Defined;
    match kind {
        ComponentType::Defined(Defined::Record(fields)) => 1 + fields.len() as u64,
        ComponentType::Defined(Defined::Variant(cases)) => 1 + cases.len() as u64,
        ComponentType::Defined(Defined::Tuple(types)) => 1 + types.len() as u64,
        ComponentType::Defined(Defined::Flags(names) | Defined::Enum(names)) => {
            1 + names.len() as u64
        }
        ComponentType::Func(function) => 1 + function.params.len() as u64,
        ComponentType::Component(all) => all.iter().fold(1, |sum, one| {
            sum + match one {
                ComponentTypeDeclaration::Type(kind) => declared(kind),
                _ => 1,
            }
        }),
        ComponentType::Instance(all) => all.iter().fold(1, |sum, one| {
            sum + match one {
                InstanceTypeDeclaration::Type(kind) => declared(kind),
                _ => 1,
            }
        }),
        ComponentType::Defined(_) | ComponentType::Resource { .. } => 1,
    }
}
