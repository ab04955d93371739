//! What a test shows: each event as it is answered, and a summary.

use super::expect::Verdict;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::trial::Answer;
use crate::event::Event;
use crate::plugin::CallReport;

/// One event, and what came of it.
pub(super) struct Tried<'a> {
    /// Where it is from, in words.
    pub(super) place: String,
    /// The line of its file.
    pub(super) line: Option<u64>,
    pub(super) event: &'a Event,
    pub(super) new: Answer,
    pub(super) old: Option<Answer>,
    pub(super) call: CallReport,
    /// Where the answer is not as expected.
    pub(super) unexpected: Vec<String>,
}

impl Tried<'_> {
    fn differs(&self) -> bool {
        self.old.as_ref().is_some_and(|old| *old != self.new)
    }
}

/// Everything that was tried.
pub(super) struct Report {
    json: bool,
    compared: bool,
    verdicts: [u64; Verdict::ALL.len()],
    count: u64,
    differ: u64,
    unexpected: u64,
    /// The memory after the first event and after the last.
    memory_bytes: (usize, usize),
}

impl Report {
    pub(super) fn new(json: bool, compared: bool) -> Self {
        let verdicts = [0; Verdict::ALL.len()];
        Self { json, compared, verdicts, count: 0, differ: 0, unexpected: 0, memory_bytes: (0, 0) }
    }

    /// Shows one.
    pub(super) fn add(&mut self, tried: &Tried<'_>) -> Result<(), Exit> {
        if self.count == 0 {
            self.memory_bytes.0 = tried.call.memory_bytes;
        }
        self.memory_bytes.1 = tried.call.memory_bytes;
        self.count += 1;
        self.differ += u64::from(tried.differs());
        self.unexpected += u64::from(!tried.unexpected.is_empty());
        if let Some(at) = Verdict::ALL.iter().position(|verdict| verdict.as_str() == tried.new.verdict) {
            self.verdicts[at] += 1;
        }
        if self.json {
            return output::json_line(&as_json(tried)?);
        }
        if !self.compared || tried.differs() || !tried.unexpected.is_empty() {
            for line in as_text(tried) {
                output::line(&output::printable(&line))?;
            }
        }
        Ok(())
    }

    /// Shows the summary; fails where something was not as expected.
    pub(super) fn finish(&self) -> Result<(), Exit> {
        let of = Verdict::ALL.iter().zip(self.verdicts);
        let verdicts: Vec<_> = of.map(|(verdict, count)| format!("{verdict} {count}")).collect();
        let (first, last) = (mib(self.memory_bytes.0), mib(self.memory_bytes.1));
        let memory = match self.count {
            0 => String::new(),
            1 => format!("; memory {last}"),
            _ => format!("; memory {first} after the first, {last} after the last"),
        };
        let events = output::count(self.count, "event");
        output::note(&format!("{events}: {}{memory}; nothing was committed", verdicts.join(", ")));
        if self.compared {
            output::note(&format!("{} of {} differ", self.differ, output::count(self.count, "answer")));
        }
        match self.unexpected {
            0 => Ok(()),
            count => Err(Exit::Failed(anyhow::anyhow!("{count} of {events} not answered as expected"))),
        }
    }
}

fn as_json(tried: &Tried<'_>) -> Result<serde_json::Value, Exit> {
    let logs =
        tried.call.lines.iter().map(
            |line| serde_json::json!({ "level": line.level.as_str().to_lowercase(), "message": line.text }),
        );
    let logs: Vec<_> = logs.collect();
    let mut line = serde_json::json!({
        "event": tried.event.id, "partition": tried.event.partition, "sequence": tried.event.sequence,
        "answer": tried.new, "ms": (ms(tried) * 1000.0).round() / 1000.0,
        "memory_bytes": tried.call.memory_bytes, "logs": logs,
    });
    if let Some(number) = tried.line {
        line["line"] = number.into();
    }
    if !tried.unexpected.is_empty() {
        line["unexpected"] = tried.unexpected.clone().into();
    }
    if let Some(old) = &tried.old {
        line["against"] = serde_json::to_value(old).map_err(anyhow::Error::from)?;
        line["differs"] = tried.differs().into();
    }
    Ok(line)
}

fn as_text(tried: &Tried<'_>) -> Vec<String> {
    let (verdict, memory) = (tried.new.verdict, mib(tried.call.memory_bytes));
    let mut lines = vec![format!("{verdict:<6} {:>9.1} ms {memory:>10}  {}", ms(tried), tried.place)];
    let mut below = |name: &str, text: &str| {
        for (n, text) in text.lines().enumerate() {
            lines.push(format!("  {:<9} {text}", if n == 0 { name } else { "" }));
        }
    };
    if let Some(fault) = tried.new.fault {
        below("fault", fault);
    }
    if let Some(reason) = &tried.new.reason {
        below("reason", reason);
    }
    if let Some(delay_ms) = tried.new.delay_ms {
        below("delay", &format!("{delay_ms} ms"));
    }
    for line in &tried.call.lines {
        below(&line.level.as_str().to_lowercase(), &line.text);
    }
    tried.new.effects().iter().for_each(|(name, text)| below(name, text));
    if let Some(old) = tried.old.as_ref().filter(|_| tried.differs()) {
        below("against", &old.brief());
    }
    tried.unexpected.iter().for_each(|text| below("WRONG", text));
    lines
}

fn ms(tried: &Tried<'_>) -> f64 {
    tried.call.took.as_secs_f64() * 1000.0
}

#[allow(clippy::cast_precision_loss, reason = "a size for people")]
fn mib(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
