//! `${VAR}` and `${VAR:-default}` in a string of the pipeline file.

use std::ops::Range;

/// What a string stands for once its variables are filled in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    /// The text, possibly with a secret in it.
    pub(super) text: String,
    /// Whether any part of it came from a variable or its default.
    pub(super) from_variable: bool,
}

/// One variable that cannot be filled in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VarError {
    /// Where it stands in the unexpanded string, in bytes.
    pub(super) at: Range<usize>,
    /// What is wrong with it.
    pub(super) kind: VarErrorKind,
}

/// What can be wrong with a variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VarErrorKind {
    /// It is not set, and has no default.
    Missing(String),
    /// Its `}` is missing.
    Unclosed,
    /// What stands between the braces is no name of a variable.
    BadName,
    /// Its default holds another variable.
    Nested,
}

/// Fills in the variables of `source` from `env`.
///
/// As in a shell, a default also stands in for a variable that is set but empty. `$${` gives the
/// text `${`; a `$` before anything else is itself. What a variable holds is not looked at again.
///
/// # Errors
/// Every variable that cannot be filled in.
pub(super) fn expand(source: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Expanded, Vec<VarError>> {
    let mut text = String::with_capacity(source.len());
    let mut from_variable = false;
    let mut errors = Vec::new();
    let mut done = 0;
    while let Some(found) = source[done..].find("${") {
        let start = done + found;
        if source[done..start].ends_with('$') {
            text.push_str(&source[done..start - 1]);
            text.push_str("${");
            done = start + 2;
            continue;
        }
        text.push_str(&source[done..start]);
        let Some(length) = source[start..].find('}') else {
            errors.push(VarError { at: start..source.len(), kind: VarErrorKind::Unclosed });
            done = source.len();
            break;
        };
        let end = start + length;
        done = end + 1;
        match value(&source[start + 2..end], env) {
            Ok(value) => {
                text.push_str(&value);
                from_variable = true;
            }
            Err(kind) => errors.push(VarError { at: start..done, kind }),
        }
    }
    text.push_str(&source[done..]);
    if errors.is_empty() { Ok(Expanded { text, from_variable }) } else { Err(errors) }
}

/// What stands for `NAME` or `NAME:-default`.
fn value(inner: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, VarErrorKind> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_name(name) {
        return Err(VarErrorKind::BadName);
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(VarErrorKind::Nested);
    }
    match (env(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(VarErrorKind::Missing(name.to_owned())),
    }
}

/// Whether a text can be the name of a variable: `[A-Za-z_][A-Za-z0-9_]*`.
pub(super) fn is_name(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("alpha".to_owned()),
            "EMPTY" => Some(String::new()),
            "AGAIN" => Some("${A}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn fills_in() {
        for (source, expected) in [
            ("${A}", "alpha"),
            ("x${A}y${A}", "xalphayalpha"),
            ("${NONE:-d}", "d"),
            ("${NONE:-}", ""),
            ("${NONE:-a:-b}", "a:-b"),
            ("${A:-d}", "alpha"),
            ("${EMPTY}", ""),
            ("${EMPTY:-d}", "d"),
            ("${AGAIN}", "${A}"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
            ("é$${${A}é", "é${alphaé"),
            ("$A $ $$ {A} }", "$A $ $$ {A} }"),
        ] {
            assert_eq!(expand(source, &env).map(|e| e.text), Ok(expected.to_owned()), "{source}");
        }
    }

    #[test]
    fn knows_what_came_from_a_variable() {
        assert!(expand("${A}", &env).unwrap().from_variable);
        assert!(expand("${NONE:-d}", &env).unwrap().from_variable);
        assert!(!expand("$${A}", &env).unwrap().from_variable);
    }

    #[test]
    fn refuses() {
        let missing = |name: &str| VarErrorKind::Missing(name.to_owned());
        for (source, expected) in [
            ("é${NONE}", vec![(2..9, missing("NONE"))]),
            ("${X}${A}${Y}", vec![(0..4, missing("X")), (8..12, missing("Y"))]),
            ("a${A", vec![(1..4, VarErrorKind::Unclosed)]),
            ("${}", vec![(0..3, VarErrorKind::BadName)]),
            ("${1A}", vec![(0..5, VarErrorKind::BadName)]),
            ("${A-d}", vec![(0..6, VarErrorKind::BadName)]),
            ("${A:-${B}}", vec![(0..9, VarErrorKind::Nested)]),
        ] {
            let errors = expand(source, &env).unwrap_err();
            let errors: Vec<_> = errors.into_iter().map(|e| (e.at, e.kind)).collect();
            assert_eq!(errors, expected, "{source}");
        }
    }

    proptest! {
        #[test]
        fn text_without_variables_stays(source in "([^$]|\\$[^{$])*") {
            let expanded = expand(&source, &env);
            prop_assert_eq!(expanded, Ok(Expanded { text: source, from_variable: false }));
        }

        #[test]
        fn escaped_text_stays(source in "[${}A:é-]*") {
            // Escaping is doubling the `$` of every `${`.
            let expanded = expand(&source.replace("${", "$${"), &env);
            prop_assert_eq!(expanded, Ok(Expanded { text: source, from_variable: false }));
        }

        #[test]
        fn errors_lie_in_the_text(source in "[${}A:é-]*") {
            for error in expand(&source, &env).err().into_iter().flatten() {
                let written = &source[error.at];
                prop_assert_eq!(written.get(..2), Some("${"));
            }
        }
    }
}
