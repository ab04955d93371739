//! The JSON Schema of the pipeline file, from the raw types and their descriptions.

use std::borrow::Cow;

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value as Json;

use super::bounds;
use super::raw::{RawConfig, RawDir, RawDirTable, RawPartitions};
use super::table::At;

/// The schema of a pipeline file.
pub(super) fn schema() -> Json {
    let mut schema = schemars::schema_for!(RawConfig);
    RecursiveTransform(tidy).transform(&mut schema);
    schema.to_value()
}

/// Takes away what TOML does not have (null, formats of numbers) and line breaks of descriptions.
fn tidy(schema: &mut Schema) {
    if let Some(Json::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Json::Array(mut choices)) = schema.remove("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
        if let Some(Json::Object(only)) = choices.pop() {
            schema.ensure_object().extend(only);
        }
    }
    if let Some(Json::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    schema.remove("format");
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl JsonSchema for RawPartitions {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Partitions".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let number = json_schema!({ "type": "integer", "minimum": bounds::PARTITION.start(), "maximum": bounds::PARTITION.end() });
        json_schema!({
            "oneOf": [
                { "const": "all" },
                { "type": "array", "items": number, "minItems": 1, "uniqueItems": true }
            ]
        })
    }
}

impl JsonSchema for RawDir {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "DirectoryOrPath".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<RawDirTable>();
        json_schema!({ "oneOf": [{ "type": "string", "minLength": 1 }, table] })
    }
}
