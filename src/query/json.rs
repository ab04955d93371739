//! Equality of JSON values without reading what is stored into numbers that lose digits.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// A value that stored text is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

/// Why a text is no value to compare with.
#[derive(Debug, thiserror::Error)]
#[error("not a JSON value: {0}")]
pub struct ValueError(#[from] serde_json::Error);

/// A number: a whole one as its digits, any other one as what a double holds.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Whole(String),
    Float(f64),
}

impl Number {
    fn parse(text: &str) -> Self {
        if text.contains(['.', 'e', 'E']) {
            // Every number of JSON is one of Rust's; one beyond all doubles is infinite.
            return Self::Float(text.parse().unwrap_or(f64::NAN));
        }
        Self::Whole(if text == "-0" { "0".to_owned() } else { text.to_owned() })
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a == b,
            (Self::Whole(whole), Self::Float(float)) | (Self::Float(float), Self::Whole(whole)) => {
                // `{:.0}` writes all digits of a double that is whole, and they are exact.
                float.fract() == 0.0 && Self::parse(&format!("{float:.0}")) == Self::Whole(whole.clone())
            }
        }
    }
}

impl Json {
    /// Reads a value.
    pub(super) fn parse(text: &str) -> Result<Self, ValueError> {
        // This bounds the depth, and so that of the recursions below.
        serde_json::from_str::<serde_json::Value>(text)?;
        Ok(Self::from_raw(serde_json::from_str(text)?)?)
    }

    fn from_raw(raw: &RawValue) -> Result<Self, serde_json::Error> {
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'"') => Self::Text(serde_json::from_str(text)?),
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text)?;
                Self::List(items.into_iter().map(Self::from_raw).collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
                let fields = fields.into_iter().map(|(name, value)| Ok((name, Self::from_raw(value)?)));
                Self::Object(fields.collect::<Result<_, serde_json::Error>>()?)
            }
            _ => Self::Number(Number::parse(text)),
        })
    }

    /// Whether stored text says the same; what is absent is null.
    pub(super) fn is(&self, stored: Option<&RawValue>) -> bool {
        let Some(stored) = stored else { return *self == Self::Null };
        let text = stored.get();
        match self {
            Self::Null => text == "null",
            Self::Bool(truth) => text == if *truth { "true" } else { "false" },
            Self::Number(number) => {
                text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && *number == Number::parse(text)
            }
            Self::Text(wanted) => {
                text.starts_with('"')
                    && serde_json::from_str::<String>(text).is_ok_and(|found| found == *wanted)
            }
            Self::List(wanted) => {
                text.starts_with('[')
                    && serde_json::from_str::<Vec<&RawValue>>(text).is_ok_and(|found| {
                        found.len() == wanted.len() && wanted.iter().zip(found).all(|(w, f)| w.is(Some(f)))
                    })
            }
            Self::Object(wanted) => {
                text.starts_with('{')
                    && serde_json::from_str::<BTreeMap<String, &RawValue>>(text).is_ok_and(|found| {
                        found.len() == wanted.len()
                            && wanted.iter().all(|(name, w)| found.get(name).is_some_and(|f| w.is(Some(f))))
                    })
            }
        }
    }

    /// Whether it is this text; no text is null.
    pub(super) fn is_text(&self, text: Option<&str>) -> bool {
        match (self, text) {
            (Self::Text(wanted), Some(text)) => wanted == text,
            (Self::Null, None) => true,
            _ => false,
        }
    }

    /// Whether it is this number.
    pub(super) fn is_number(&self, number: u64) -> bool {
        matches!(self, Self::Number(wanted) if *wanted == Number::Whole(number.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(wanted: &str, stored: &str) -> bool {
        Json::parse(wanted).unwrap().is(Some(serde_json::from_str(stored).unwrap()))
    }

    #[test]
    fn numbers_compare_by_value() {
        for (a, b) in [
            ("1", "1.0"),
            ("100000", "1.0e5"),
            ("0", "-0"),
            ("0", "-0.0"),
            ("0.1", "0.10"),
            ("10000000000000000000000", "1e22"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ] {
            assert!(same(a, b) && same(b, a), "{a} {b}");
        }
        for (a, b) in [
            ("9007199254740993", "9007199254740992"),
            ("9007199254740993", "9007199254740992.0"),
            ("123456789012345678901234567890", "123456789012345678901234567891"),
            ("1", "\"1\""),
            ("1", "true"),
            ("1", "1.5"),
        ] {
            assert!(!same(a, b) && !same(b, a), "{a} {b}");
        }
    }

    #[test]
    fn texts_compare_by_their_characters() {
        assert!(same(r#""ü/""#, r#""\u00fc\/""#) && !same(r#""a""#, r#""A""#));
        assert!(!same("null", r#""null""#) && !same(r#""null""#, "null"));
        assert!(!same(r#""x""#, r#""\ud800""#), "half a character is no text of ours");
    }

    #[test]
    fn lists_and_objects_compare_by_what_they_hold() {
        assert!(
            same(r#"[1, {"a": 2}]"#, r#"[1.0,{"a":2}]"#) && !same("[1,2]", "[2,1]") && !same("[1]", "[1,1]")
        );
        assert!(same(r#"{"a":1,"b":null}"#, r#"{ "b": null, "a": 1.0 }"#));
        assert!(!same(r#"{"a":1}"#, r#"{"a":1,"b":null}"#));
    }

    #[test]
    fn depth_is_bounded() {
        assert!(Json::parse(&format!("{}{}", "[".repeat(1000), "]".repeat(1000))).is_err());
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(!same("[[1]]", &deep));
    }

    proptest! {
        #[test]
        fn a_value_is_itself(value in any::<i64>(), float in any::<f64>().prop_filter("JSON", |f| f.is_finite()), text in "\\PC*") {
            let json = serde_json::json!([value, float, text, { text.clone(): null }]).to_string();
            prop_assert!(same(&json, &json));
        }

        #[test]
        fn any_text_is_a_value_or_not(text in "\\PC{0,20}") {
            let _ = Json::parse(&text);
        }
    }
}
