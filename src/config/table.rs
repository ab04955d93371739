//! Takes typed values out of a parsed TOML table, and notes what does not fit.
//!
//! Serde would stop at the first problem; a reader of messages wants all of them at once.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::problem::{Problem, list, nearest, quoted};

/// A value with its place in the file, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

impl<T> At<T> {
    pub(super) fn new(value: T, span: Range<usize>) -> Self {
        Self { value, span }
    }
}

/// The keys that a kind of table has, and how messages call it.
#[derive(Debug)]
pub(super) struct Shape {
    /// The table as a user writes it: `[backend]`; empty for the whole file.
    pub(super) name: &'static str,
    /// Its keys.
    pub(super) keys: &'static [&'static str],
}

/// One table that is being read. Each key is taken once; [`Table::finish`] reports what is left.
pub(super) struct Table<'t, 's> {
    shape: &'static Shape,
    span: Range<usize>,
    left: BTreeMap<&'t str, (Range<usize>, &'t Spanned<DeValue<'s>>)>,
}

impl<'t, 's> Table<'t, 's> {
    /// Begins to read `table`, which stands at `span`.
    pub(super) fn new(shape: &'static Shape, table: &'t DeTable<'s>, span: Range<usize>) -> Self {
        let left = table.iter().map(|(key, value)| (key.get_ref().as_ref(), (key.span(), value))).collect();
        Self { shape, span, left }
    }

    /// Begins to read a value that must be a table.
    pub(super) fn from_value(
        shape: &'static Shape,
        value: &'t Spanned<DeValue<'s>>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Self::new(shape, table, value.span())),
            other => {
                let name = shape.name;
                let title = format!("{} must be a table, but is {}", quoted(name), article(other));
                problems.push(Problem::at(&value.span(), title));
                None
            }
        }
    }

    /// Takes a key of any type.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'s>>> {
        self.left.remove(key).map(|(_, value)| value)
    }

    /// Takes a string. `form` says what it should look like, for who wrote another type.
    pub(super) fn string(
        &mut self,
        key: &'static str,
        form: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<At<String>> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(At::new(text.clone().into_owned(), value.span())),
            other => {
                let problem = wrong_type(key, "a string", value.span(), other);
                problems.push(if form.is_empty() { problem } else { problem.help(form) });
                None
            }
        }
    }

    /// Takes a list of strings; where it is absent, it is empty. `form` says what one looks like.
    pub(super) fn strings(
        &mut self,
        key: &'static str,
        form: &str,
        problems: &mut Vec<Problem>,
    ) -> Vec<At<String>> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            problems.push(wrong_type(key, "a list of strings", value.span(), value.get_ref()).help(form));
            return Vec::new();
        };
        let strings = items.iter().filter_map(|item| match item.get_ref() {
            DeValue::String(text) => Some(At::new(text.clone().into_owned(), item.span())),
            other => {
                problems.push(wrong_type(key, "a list of strings", item.span(), other).help(form));
                None
            }
        });
        strings.collect()
    }

    /// Takes a truth value.
    pub(super) fn boolean(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<At<bool>> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::Boolean(truth) => Some(At::new(*truth, value.span())),
            other => {
                problems.push(wrong_type(key, "true or false", value.span(), other));
                None
            }
        }
    }

    /// Takes a whole number.
    pub(super) fn integer(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<At<i64>> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::Integer(number) => Some(At::new(saturated(number), value.span())),
            other => {
                problems.push(wrong_type(key, "a whole number", value.span(), other));
                None
            }
        }
    }

    /// Takes a number, whole or not.
    pub(super) fn number(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<At<f64>> {
        let value = self.take(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => saturated(number) as f64,
            // TOML's numbers are a subset of what Rust reads; NaN would fail every check of a range.
            DeValue::Float(number) => number.as_str().parse().unwrap_or(f64::NAN),
            other => {
                problems.push(wrong_type(key, "a number", value.span(), other));
                return None;
            }
        };
        Some(At::new(number, value.span()))
    }

    /// Takes a string that must be there.
    pub(super) fn required_string(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<At<String>> {
        if !self.left.contains_key(key) {
            let title = format!("{} needs the key {}", quoted(self.shape.name), quoted(key));
            problems.push(Problem::at(&self.span, title));
        }
        self.string(key, "", problems)
    }

    /// Reports every key that was not taken. `shapes` are all tables of the file: the key may have
    /// its place in another one.
    pub(super) fn finish(self, shapes: &[&'static Shape], problems: &mut Vec<Problem>) {
        for (key, (span, _)) in self.left {
            let title = match self.shape.name {
                "" => format!("unknown key {}", quoted(key)),
                name => format!("unknown key {} in {}", quoted(key), quoted(name)),
            };
            problems.push(Problem::at(&span, title).help(self.shape.hint(key, shapes)));
        }
    }
}

impl Shape {
    fn hint(&self, wrong: &str, shapes: &[&'static Shape]) -> String {
        if let Some(key) = nearest(wrong, self.keys.iter().copied()) {
            return format!("did you mean {}?", quoted(key));
        }
        match shapes.iter().find(|shape| shape.keys.contains(&wrong)) {
            Some(Shape { name: "", .. }) => format!("{} stands at the top level of the file", quoted(wrong)),
            Some(shape) => format!("{} is a key of {}", quoted(wrong), quoted(shape.name)),
            None => {
                let name = if self.name.is_empty() { "the top level".to_owned() } else { quoted(self.name) };
                format!("{name} has the keys {}", list(self.keys.iter().copied(), "and"))
            }
        }
    }
}

/// A value of another type than the key's.
pub(super) fn wrong_type(key: &str, expected: &str, span: Range<usize>, found: &DeValue<'_>) -> Problem {
    Problem::at(&span, format!("{} must be {expected}, but is {}", quoted(key), article(found)))
}

fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// A whole number; one beyond 64 bits becomes the nearest end, which no range of ours contains.
pub(super) fn saturated(number: &DeInteger<'_>) -> i64 {
    let digits = number.as_str();
    let end = if digits.starts_with('-') { i64::MIN } else { i64::MAX };
    i64::from_str_radix(digits, number.radix()).unwrap_or(end)
}
