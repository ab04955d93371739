//! What is wrong with a pipeline file, and how it is shown.

use std::fmt;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::mask::mask;

/// Most problems that are shown; a file of another kind could have thousands.
const SHOWN_MAX: usize = 20;

/// Longest piece of the file that a message repeats, in characters.
const QUOTED_CHARS_MAX: usize = 60;

/// One problem: what, where, and the way out.
#[derive(Debug)]
pub(super) struct Problem {
    title: String,
    at: Option<Range<usize>>,
    label: Option<String>,
    context: Option<(Range<usize>, String)>,
    help: Option<String>,
}

impl Problem {
    /// A problem of the file as a whole.
    pub(super) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), at: None, label: None, context: None, help: None }
    }

    /// A problem at a place in the file, in bytes.
    pub(super) fn at(span: &Range<usize>, title: impl Into<String>) -> Self {
        Self { at: Some(span.clone()), ..Self::new(title) }
    }

    /// Adds a few words beside the caret.
    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds a second place that has to do with it.
    pub(super) fn context(mut self, span: &Range<usize>, label: impl Into<String>) -> Self {
        self.context = Some((span.clone(), label.into()));
        self
    }

    /// Adds the way out.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    fn render(&self, renderer: &Renderer, path: &str, source: &str) -> String {
        let mut group = Group::with_title(Level::ERROR.primary_title(self.title.as_str()));
        group = match &self.at {
            Some(span) => group.element(self.snippet(span, path, source)),
            None => group.element(Origin::path(path)),
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }

    fn snippet<'a>(
        &'a self,
        span: &Range<usize>,
        path: &'a str,
        source: &'a str,
    ) -> Snippet<'a, Annotation<'a>> {
        let primary = AnnotationKind::Primary.span(span.clone()).label(self.label.as_deref());
        let context = self.context.iter();
        let context =
            context.map(|(span, label)| AnnotationKind::Context.span(span.clone()).label(label.as_str()));
        Snippet::source(source).path(path).annotation(primary).annotations(context)
    }
}

/// Everything that is wrong with a pipeline file: as many problems as one reading can find.
///
/// Its text (`Display`) is ready to be shown, without a final newline; passwords in it are hidden.
pub struct ConfigError {
    path: String,
    /// The file's text without passwords.
    source: String,
    problems: Vec<Problem>,
}

impl ConfigError {
    /// The problems of the file `path` whose text is `source`, shown in the order of the text,
    /// those of the file as a whole last.
    pub(super) fn new(path: String, source: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.at.as_ref().map_or(usize::MAX, |span| span.start));
        Self { path, source: mask(source), problems }
    }

    /// How many problems there are; at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.problems.len()
    }

    /// The messages with colours for a terminal that shows them.
    #[must_use]
    pub fn styled(&self) -> String {
        self.render(&Renderer::styled().decor_style(DecorStyle::Unicode).hyperlink(false))
    }

    fn render(&self, renderer: &Renderer) -> String {
        let shown = self.problems.iter().take(SHOWN_MAX);
        let mut messages: Vec<String> =
            shown.map(|problem| problem.render(renderer, &self.path, &self.source)).collect();
        if self.problems.len() > SHOWN_MAX {
            messages.push(format!("… and {} more", self.problems.len() - SHOWN_MAX));
        }
        messages.join("\n\n")
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Renderer::plain()))
    }
}

/// Shown as its messages: what `unwrap` in a test prints is then readable too.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

/// A piece of the file in backticks: shortened, and without characters that would move a
/// terminal's cursor.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTED_CHARS_MAX).flat_map(escaped).collect();
    if text.chars().nth(QUOTED_CHARS_MAX).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// A control character as its escape, any other character as it is.
fn escaped(c: char) -> impl Iterator<Item = char> {
    let control = c.is_control().then(|| c.escape_default());
    let plain = (!c.is_control()).then_some(c);
    control.into_iter().flatten().chain(plain)
}

/// The known word that a wrong one most likely meant, if one is near enough for a typing error.
pub(super) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = (wrong.chars().count() / 3).clamp(1, 4);
    let near = known.into_iter().map(|word| (strsim::osa_distance(wrong, word), word));
    near.filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, w)| w)
}

/// Words as a list for a sentence: "`a`, `b` or `c`", with the conjunction `or`.
pub(super) fn list<'a>(words: impl IntoIterator<Item = &'a str>, conjunction: &str) -> String {
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {conjunction} {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}
