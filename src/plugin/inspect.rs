//! What a component is made of, for people: its imports, its exports and their types.

use serde::Serialize;
use wasmparser::{KnownCustom, Parser, Payload};
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};

use super::bindings::CONTRACT_INTERFACE;
use super::needs::Need;

/// How deep a type is written out; below that it is only named.
const DEPTH_MAX: usize = 6;

/// What a file is, whether or not it can be loaded.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// SHA-256 of the file, in hexadecimal: it names the generation.
    pub digest: String,
    /// The file's size in bytes.
    pub bytes: u64,
    /// The contract version that it was built for, where it names one.
    pub contract: Option<String>,
    /// What it imports, by name; empty where it is no component.
    pub imports: Vec<String>,
    /// What of it does nothing, or little, without a grant of the operator.
    pub needs: Vec<Need>,
    /// What it exports, each with its type where it is a function.
    pub exports: Vec<String>,
    /// What made it, as far as it says so, without repetition.
    pub producers: Vec<Producer>,
    /// Why it cannot be loaded; `None` where it can.
    pub refusal: Option<String>,
}

/// A tool or a language that had a part in making a component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Producer {
    /// Its part: `language`, `processed-by` or `sdk`.
    pub field: String,
    /// Its name.
    pub name: String,
    /// Its version; may be empty.
    pub version: String,
}

/// The producers that a component names, in itself and in the modules inside it.
pub(super) fn producers(component: &[u8]) -> Vec<Producer> {
    let sections = Parser::new(0).parse_all(component).map_while(Result::ok);
    let mut found: Vec<_> = sections
        .filter_map(|section| match section {
            Payload::CustomSection(section) => match section.as_known() {
                KnownCustom::Producers(fields) => Some(fields),
                _ => None,
            },
            _ => None,
        })
        .flatten()
        .flatten()
        .flat_map(|field| {
            let values = field.values.into_iter().flatten();
            values.map(move |value| Producer {
                field: field.name.to_owned(),
                name: value.name.to_owned(),
                version: value.version.to_owned(),
            })
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The names of a component's imports.
pub(super) fn imports(engine: &Engine, component: &Component) -> Vec<String> {
    component.component_type().imports(engine).map(|(name, _)| name.to_owned()).collect()
}

/// A component's exports: a function with its type, anything else by its name.
pub(super) fn exports(engine: &Engine, component: &Component) -> Vec<String> {
    let ty = component.component_type();
    ty.exports(engine).map(|(name, export)| with_type(name, &export.ty)).collect()
}

/// The contract version that a component's imports name.
pub(super) fn contract(imports: &[String]) -> Option<&str> {
    imports.iter().find_map(|name| name.strip_prefix(CONTRACT_INTERFACE))
}

/// A function as WIT would write it, records and variants by their fields' names.
pub(super) fn signature(function: &ComponentFunc) -> String {
    let params: Vec<_> =
        function.params().map(|(name, ty)| format!("{name}: {}", describe(&ty, DEPTH_MAX))).collect();
    let results: Vec<_> = function.results().map(|ty| describe(&ty, DEPTH_MAX)).collect();
    let arrow = if results.is_empty() { "" } else { " -> " };
    format!("func({}){arrow}{}", params.join(", "), results.join(", "))
}

fn with_type(name: &str, item: &ComponentItem) -> String {
    match item {
        ComponentItem::ComponentFunc(function) => format!("{name}: {}", signature(function)),
        _ => name.to_owned(),
    }
}

fn describe(ty: &Type, depth: usize) -> String {
    let Some(depth) = depth.checked_sub(1) else { return "…".to_owned() };
    let inner = |ty: Option<Type>| ty.map_or_else(|| "_".to_owned(), |ty| describe(&ty, depth));
    match ty {
        Type::Bool => "bool".to_owned(),
        Type::S8 => "s8".to_owned(),
        Type::U8 => "u8".to_owned(),
        Type::S16 => "s16".to_owned(),
        Type::U16 => "u16".to_owned(),
        Type::S32 => "s32".to_owned(),
        Type::U32 => "u32".to_owned(),
        Type::S64 => "s64".to_owned(),
        Type::U64 => "u64".to_owned(),
        Type::Float32 => "f32".to_owned(),
        Type::Float64 => "f64".to_owned(),
        Type::Char => "char".to_owned(),
        Type::String => "string".to_owned(),
        Type::List(list) => format!("list<{}>", describe(&list.ty(), depth)),
        Type::Option(option) => format!("option<{}>", describe(&option.ty(), depth)),
        Type::Result(result) => match (result.ok(), result.err()) {
            (None, None) => "result".to_owned(),
            (ok, None) => format!("result<{}>", inner(ok)),
            (ok, err) => format!("result<{}, {}>", inner(ok), inner(err)),
        },
        Type::Tuple(tuple) => {
            let types: Vec<_> = tuple.types().map(|ty| describe(&ty, depth)).collect();
            format!("tuple<{}>", types.join(", "))
        }
        Type::Record(record) => {
            let fields: Vec<_> =
                record.fields().map(|f| format!("{}: {}", f.name, describe(&f.ty, depth))).collect();
            format!("record {{ {} }}", fields.join(", "))
        }
        Type::Variant(variant) => {
            let cases: Vec<_> = variant
                .cases()
                .map(|c| match c.ty {
                    Some(ty) => format!("{}({})", c.name, describe(&ty, depth)),
                    None => c.name.to_owned(),
                })
                .collect();
            format!("variant {{ {} }}", cases.join(", "))
        }
        Type::Enum(names) => format!("enum {{ {} }}", names.names().collect::<Vec<_>>().join(", ")),
        Type::Flags(names) => format!("flags {{ {} }}", names.names().collect::<Vec<_>>().join(", ")),
        Type::Own(_) => "a resource".to_owned(),
        Type::Borrow(_) => "a borrowed resource".to_owned(),
        Type::Map(_) => "map".to_owned(),
        Type::Future(_) => "future".to_owned(),
        Type::Stream(_) => "stream".to_owned(),
        Type::ErrorContext => "error-context".to_owned(),
        Type::FixedLengthList(_) => "list of fixed length".to_owned(),
    }
}
