//! Events of a file, with what is expected of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::TestArgs;
use super::case::{Case, Setting};
use super::report::{Report, Tried};
use crate::cli::context::{Context, plugin_host};
use crate::cli::exit::Exit;
use crate::cli::lines::{Line, next_line};
use crate::cli::output;
use crate::cli::trial::{Builds, Role};
use crate::event::{GroupKey, Name};
use crate::plugin::{Host, StateSource};
use crate::state::{Bucket, StateKeys, StateValue};

/// Longest line (64 MiB).
const LINE_BYTES_MAX: usize = 64 << 20;

/// Differently set up builds that are kept for the lines that follow.
const BUILDS_MAX: usize = 16;

pub(super) async fn run(
    context: &Context,
    args: &TestArgs,
    file: &Path,
    report: &mut Report,
) -> Result<(), Exit> {
    let mut input = open(file)?;
    let key = GroupKey::new(Name::existing("test")?, Name::existing(&args.group)?);
    let role = Role::new(context, &args.trial, &key, 5)?;
    let mut loader = Loader { host: plugin_host()?, args, role, builds: Vec::new() };
    // What cannot be loaded is refused before the first line.
    loader.builds(&Setting::default()).await?;
    let limit = args.limit.map_or(usize::MAX, usize::from);
    let (mut number, mut tried) = (0, 0);
    while tried < limit {
        number += 1;
        let text = match next_line(&mut input, LINE_BYTES_MAX)? {
            Line::End => break,
            Line::TooLong => return Err(wrong(file, number, "the line is longer than 64 MiB")),
            Line::Text(text) if text.iter().all(u8::is_ascii_whitespace) => continue,
            Line::Text(text) => text,
        };
        let case = Case::read(&text, number).map_err(|why| wrong(file, number, &why))?;
        loader.try_case(&case, number, report).await?;
        tried += 1;
    }
    if tried == 0 {
        return Err(Exit::usage(format!("{} has no events", file.display())));
    }
    Ok(())
}

fn open(file: &Path) -> Result<Box<dyn BufRead>, Exit> {
    if file == Path::new("-") {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let opened =
        File::open(file).map_err(|error| Exit::usage(format!("--event {}: {error}", file.display())))?;
    Ok(Box::new(BufReader::new(opened)))
}

fn wrong(file: &Path, number: u64, why: &str) -> Exit {
    Exit::usage(output::printable(&format!("{}, line {number}: {why}", file.display())))
}

/// Builds in the settings that lines ask for.
struct Loader<'a> {
    host: Arc<Host>,
    args: &'a TestArgs,
    role: Role,
    /// Those used last are at the end.
    builds: Vec<(Setting, Arc<Builds>)>,
}

impl Loader<'_> {
    async fn builds(&mut self, setting: &Setting) -> Result<Arc<Builds>, Exit> {
        if let Some(at) = self.builds.iter().position(|(known, _)| known == setting) {
            let found = self.builds.remove(at);
            self.builds.push(found);
        } else {
            let role = self.role.with_setting(&setting.config, &setting.streams);
            let builds =
                Builds::load_on(&self.host, &role, &self.args.component, self.args.against.as_ref()).await?;
            if self.builds.len() == BUILDS_MAX {
                self.builds.remove(0);
            }
            self.builds.push((setting.clone(), Arc::new(builds)));
        }
        self.builds
            .last()
            .map(|(_, builds)| Arc::clone(builds))
            .ok_or_else(|| Exit::Failed(anyhow::anyhow!("no build is loaded")))
    }

    async fn try_case(&mut self, case: &Case, number: u64, report: &mut Report) -> Result<(), Exit> {
        let builds = self.builds(&case.setting).await?;
        let attempt = case.attempt.unwrap_or(self.args.attempt);
        let given = Given::new(self.role.pipeline(), case)
            .map_err(|why| Exit::usage(format!("line {number}: {why}")))?;
        let role = self.role.with_state(Arc::new(given), attempt);
        let (new, call) = role.ask(&builds.new, &case.event, attempt).await;
        let old = match &builds.old {
            Some(old) => Some(role.ask(old, &case.event, attempt).await.0),
            None => None,
        };
        let mut expectation = case.expectation.clone();
        expectation.verdict = expectation.verdict.or(self.args.expect);
        expectation.of_pipeline(self.role.pipeline());
        let unexpected = expectation.differences(&new, &call.lines);
        let place = match &case.note {
            Some(note) => format!("line {number}: {note}"),
            None => format!("line {number}"),
        };
        report.add(&Tried { place, line: Some(number), event: &case.event, new, old, call, unexpected })
    }
}

/// The state that a line gives.
struct Given(HashMap<(Bucket, String), Vec<u8>>);

impl Given {
    fn new(pipeline: &str, case: &Case) -> Result<Self, String> {
        let mut given = HashMap::new();
        for (name, entries) in &case.state {
            let bucket = Bucket::own(pipeline, name).map_err(|error| error.to_string())?;
            for (key, value) in entries {
                given.insert((bucket.clone(), key.clone()), value.clone().into_bytes());
            }
        }
        Ok(Self(given))
    }
}

#[async_trait]
impl StateSource for Given {
    async fn get(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>, String> {
        let value = |key: &String| self.0.get(&(bucket.clone(), key.clone()));
        Ok(keys.iter().map(|key| Some(StateValue { version: 1, bytes: value(key)?.clone() })).collect())
    }

    async fn keys(&self, bucket: &Bucket, _: Option<u64>) -> Result<StateKeys, String> {
        let keys = self.0.keys().filter(|(of, _)| of == bucket).map(|(_, key)| key.clone());
        Ok(StateKeys { keys: keys.collect(), cursor: None })
    }
}
