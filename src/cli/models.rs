//! `mlx-chat models list|pull|info|rm`.

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::describe::Detail;
use super::known::{Known, Where, known, told};
use super::outcome::{Outcome, Stdout};
use crate::config::paths::Paths;
use crate::hub::{Cancel, Entry, Hub, HubError, LocalModel, Located, Progress, Reporter, Settings};
use crate::size;
use crate::text::sanitize::{for_terminal, line_for_terminal};

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// List, download, inspect and delete models.
#[derive(Debug, Clone, Args)]
pub struct ModelsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ModelsCommand,
    /// Never use the network
    #[arg(long, global = true)]
    pub offline: bool,
}

/// What `mlx-chat models` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum ModelsCommand {
    /// Show installed models, those in the shared cache of repositories, and those that can be pulled
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Download a model
    Pull {
        /// Name of a model, or a repository: `owner/name[@REVISION][:QUANTIZATION]`; the default model if left out
        name: Option<String>,
        /// Print one JSON object when done
        #[arg(long)]
        json: bool,
    },
    /// Show what is known about a model
    Info {
        /// Name, path or repository of a model; the default model if left out
        name: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Delete an installed model
    Rm {
        /// Name of an installed model, or a repository in the shared cache
        name: String,
        /// Don't ask
        #[arg(long, short)]
        yes: bool,
        /// Print one JSON object when done
        #[arg(long)]
        json: bool,
    },
}

/// Says what the files of a model tell about it; none if they can't be read.
pub type Describe<'a> = &'a dyn Fn(&Path, Detail) -> Option<Value>;

/// Runs `mlx-chat models`. `settings` are the hub's by configuration; `describe` reads a model's files for `info`.
pub fn run(
    args: ModelsArgs,
    paths: &Paths,
    settings: Settings,
    describe: Describe<'_>,
) -> anyhow::Result<ExitCode> {
    let settings = Settings {
        offline: settings.offline || args.offline,
        ..settings
    };
    let hub = Hub::new(paths, settings)?;
    let (stdin, stderr) = (io::stdin(), io::stderr());
    let asks = stdin.is_terminal() && stderr.is_terminal();
    let mut stdin = stdin.lock();
    let mut console = Console {
        out: &mut Stdout::lock(),
        err: &mut stderr.lock(),
        answers: if asks { Some(&mut stdin) } else { None },
        columns: columns_of_stderr(),
    };
    let code = Command {
        hub: &hub,
        console: &mut console,
        describe,
    }
    .run(args.command);
    match code {
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) =>
        {
            Ok(ExitCode::SUCCESS)
        }
        code => code.map(ExitCode::from),
    }
}

/// A token that Ctrl-C and SIGTERM cancel. The second one ends the process at once, with exit code 130.
pub fn cancelled_by_signals() -> io::Result<Cancel> {
    let cancel = Cancel::new();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), cancel.flag())?;
        signal_hook::flag::register(signal, cancel.flag())?;
    }
    Ok(cancel)
}

/// The width of the terminal that stderr is; none if it is none or one that can't rewrite a line.
pub fn columns_of_stderr() -> Option<usize> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    // A terminal that does not know its width says 0.
    let columns = if size.ws_col == 0 {
        80
    } else {
        usize::from(size.ws_col)
    };
    (!dumb && io::stderr().is_terminal()).then_some(columns)
}

/// The model's path, fetched first if need be, with progress on `err` (`columns` as of [`columns_of_stderr`]).
pub fn ensure(
    hub: &Hub,
    name: Option<&str>,
    err: &mut dyn Write,
    columns: Option<usize>,
    cancel: &Cancel,
) -> Result<LocalModel, HubError> {
    reported(hub, name, err, columns, |tell| hub.ensure(name, tell, cancel))
}

/// Does `work` and reports on `err` what it tells.
fn reported<T>(
    hub: &Hub,
    name: Option<&str>,
    err: &mut dyn Write,
    columns: Option<usize>,
    work: impl FnOnce(&mut dyn FnMut(Progress)) -> Result<T, HubError>,
) -> Result<T, HubError> {
    let shown = name.unwrap_or_else(|| hub.manifest().default_name());
    let mut reporter = Reporter::new(err, shown, columns);
    let start = Instant::now();
    // Progress that can't be shown is no reason to stop a download.
    let result = work(&mut |step| reporter.tell(&step, start.elapsed()).unwrap_or_default());
    reporter.end().unwrap_or_default();
    result
}

/// Where a command prints and asks.
pub struct Console<'a> {
    /// Results.
    pub out: &'a mut dyn Write,
    /// Progress, questions and messages.
    pub err: &'a mut dyn Write,
    /// Where answers come from; none if nobody can be asked.
    pub answers: Option<&'a mut dyn BufRead>,
    /// Width of the terminal that `err` is; none if it is none.
    pub columns: Option<usize>,
}

/// One command over a hub.
pub struct Command<'a, 'c> {
    /// The models.
    pub hub: &'a Hub,
    /// Where to print and ask.
    pub console: &'a mut Console<'c>,
    /// Reads a model's files.
    pub describe: Describe<'a>,
}

impl Command<'_, '_> {
    /// Runs the command and gives its exit code.
    pub fn run(&mut self, command: ModelsCommand) -> anyhow::Result<u8> {
        match command {
            ModelsCommand::List { json } => self.list(json),
            ModelsCommand::Pull { name, json } => self.pull(name.as_deref(), json, &cancelled_by_signals()?),
            ModelsCommand::Info { name, json } => self.info(name.as_deref(), json),
            ModelsCommand::Rm { name, yes, json } => self.rm(&name, yes, json),
        }
    }

    fn list(&mut self, as_json: bool) -> anyhow::Result<u8> {
        let family_of = |path: Option<&Path>| {
            let told = path.and_then(|path| (self.describe)(path, Detail::Family));
            let told = told.unwrap_or_default();
            let field = |name: &str| told.get(name).cloned().unwrap_or_default();
            (field("family"), field("supported"))
        };
        let row = |model: Known| {
            let (family, supported) = family_of(model.path.as_deref());
            json!({"name": model.name, "installed": model.place != Where::Remote, "bytes": model.bytes, "path": model.path,
                "verified": model.verified, "license": model.license, "default": model.default,
                "cached": model.place == Where::Cached, "commit": model.commit,
                "family": family, "supported": supported})
        };
        let rows: Vec<Value> = known(self.hub)?.into_iter().map(row).collect();
        if as_json {
            return self.print_json(&Value::from(rows));
        }
        let text = |row: &Value, key: &str| {
            let text = row.get(key).and_then(Value::as_str);
            line_for_terminal(text.unwrap_or_default())
        };
        let width = rows
            .iter()
            .map(|row| text(row, "name").chars().count())
            .max()
            .unwrap_or(0);
        for row in &rows {
            let truth = |key: &str| row.get(key).and_then(Value::as_bool).unwrap_or(false);
            let size = size::shown(row.get("bytes").and_then(Value::as_u64).unwrap_or(0));
            let mut state = String::from(match (truth("installed"), truth("cached")) {
                (true, true) => "in the shared cache",
                (true, false) => "installed",
                (false, _) => "not installed",
            });
            if row.get("supported") == Some(&Value::Bool(false)) {
                state += &format!(
                    ", not supported ({})",
                    plain(row.get("family").unwrap_or(&Value::Null))
                );
            }
            for mark in ["verified", "default"].iter().filter(|mark| truth(mark)) {
                state += &format!(", {mark}");
            }
            let more = if truth("installed") {
                format!("  {}", text(row, "path"))
            } else {
                format!("; mlx-chat models pull {}", text(row, "name"))
            };
            writeln!(
                self.console.out,
                "{:width$}  {size:>5}  {state}{more}",
                text(row, "name")
            )?;
        }
        Ok(0)
    }

    /// Downloads a model unless it is there; `cancel` stops it, which keeps what has come.
    pub fn pull(&mut self, name: Option<&str>, as_json: bool, cancel: &Cancel) -> anyhow::Result<u8> {
        let (hub, columns) = (self.hub, self.console.columns);
        let pulled = reported(hub, name, self.console.err, columns, |tell| {
            hub.pull(name, tell, cancel)
        });
        let pulled = match pulled {
            Ok(pulled) => pulled,
            Err(error @ HubError::Interrupted { .. }) => {
                writeln!(self.console.err, "{error}")?;
                return Ok(INTERRUPTED);
            }
            Err(error) => return Err(error.into()),
        };
        let model = pulled.model;
        if as_json {
            return self.print_json(
                &json!({"name": model.name, "path": model.path, "bytes": pulled.bytes,
                "commit": pulled.commit, "was_there": pulled.was_there}),
            );
        }
        let state = if pulled.was_there {
            "is already installed"
        } else {
            "is installed"
        };
        writeln!(
            self.console.err,
            "{} {state}: {}",
            line_for_terminal(&model.name),
            line_for_terminal(&model.path.display().to_string())
        )?;
        Ok(0)
    }

    fn info(&mut self, name: Option<&str>, as_json: bool) -> anyhow::Result<u8> {
        let info = match self.hub.resolve(name)? {
            Located::Repository(spec) => {
                let failed = format!(
                    "'{spec}' is neither a file or folder here nor in the shared cache; `mlx-chat models pull {spec}` \
                     gets it"
                );
                return Err(anyhow::anyhow!(failed));
            }
            Located::Remote(entry) => {
                json!({"name": entry.name, "installed": false, "path": null, "bytes": entry.bytes,
                "verified": false, "manifest": entry_json(entry), "model": null})
            }
            Located::Local(model) => {
                let installed = self
                    .hub
                    .installed(&model.name)
                    .filter(|installed| installed.path == model.path);
                let entry = installed
                    .as_ref()
                    .and_then(|installed| self.hub.manifest().get(&installed.name));
                let cached = self
                    .hub
                    .cached()
                    .into_iter()
                    .find(|cached| cached.path == model.path);
                let known = installed.as_ref().map(|installed| installed.bytes);
                let bytes = known.or(cached.as_ref().map(|cached| cached.bytes)).or_else(|| {
                    std::fs::metadata(&model.path)
                        .ok()
                        .filter(|m| m.is_file())
                        .map(|m| m.len())
                });
                let is_here = installed.is_some() || cached.is_some();
                json!({"name": model.name, "installed": is_here, "path": model.path, "bytes": bytes,
                    "verified": installed.is_some_and(|installed| installed.verified),
                    "commit": cached.map(|cached| cached.commit), "manifest": entry.map(entry_json), "model": (self.describe)(&model.path, Detail::All)})
            }
        };
        if as_json {
            return self.print_json(&info);
        }
        let mut lines = Vec::new();
        flatten("", &info, &mut lines);
        let width = lines
            .iter()
            .map(|(key, _)| key.chars().count())
            .max()
            .unwrap_or(0);
        for (key, value) in lines {
            writeln!(self.console.out, "{key:width$}  {value}")?;
        }
        Ok(0)
    }

    fn rm(&mut self, name: &str, yes: bool, as_json: bool) -> anyhow::Result<u8> {
        let shown = line_for_terminal(name);
        if !yes {
            // Nobody is asked about what isn't there.
            self.hub.can_remove(name)?;
            let Some(answers) = self.console.answers.as_deref_mut() else {
                writeln!(
                    self.console.err,
                    "mlx-chat: nobody can be asked whether to delete '{shown}'; pass --yes"
                )?;
                return Ok(Outcome::Usage.code());
            };
            let what = if self.hub.is_link(name) {
                format!("Delete the link '{shown}'? What it leads to stays.")
            } else {
                let size = self.hub.bytes_of(name);
                let size = size.map(|bytes| format!(" ({})", size::shown(bytes)));
                format!("Delete model '{shown}'{}?", size.unwrap_or_default())
            };
            write!(self.console.err, "{what} [y/N] ")?;
            self.console.err.flush()?;
            let mut answer = String::new();
            answers.read_line(&mut answer)?;
            if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
                writeln!(self.console.err, "kept")?;
                return Ok(1);
            }
        }
        let removed = self.hub.remove(name)?;
        if as_json {
            return self
                .print_json(&json!({"name": removed.name, "bytes": removed.bytes, "link": removed.link}));
        }
        writeln!(self.console.err, "{}", told(&removed))?;
        Ok(0)
    }

    fn print_json(&mut self, value: &Value) -> anyhow::Result<u8> {
        // What JSON leaves in strings as it is, a terminal must not obey.
        let escaped = |c: char| match for_terminal(c.encode_utf8(&mut [0; 4])) {
            Cow::Borrowed(_) => c.to_string(),
            Cow::Owned(_) => format!("\\u{:04x}", u32::from(c)),
        };
        let line: String = value.to_string().chars().map(escaped).collect();
        writeln!(self.console.out, "{line}")?;
        Ok(0)
    }
}

fn entry_json(entry: &Entry) -> Value {
    let sources: Vec<String> = entry.sources.iter().map(crate::hub::Source::describe).collect();
    json!({"title": entry.title, "description": entry.description, "license": entry.license, "sha256": entry.sha256, "sources": sources})
}

/// Keys and values of nested objects as lines: `model.layers  30`.
fn flatten(prefix: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                flatten(&key, value, lines);
            }
        }
        Value::Null => lines.push((prefix.into(), "-".into())),
        Value::Bool(truth) => lines.push((prefix.into(), if *truth { "yes" } else { "no" }.into())),
        Value::Number(number)
            if prefix
                .rsplit('.')
                .next()
                .is_some_and(|name| name.contains("bytes")) =>
        {
            lines.push((
                prefix.into(),
                format!("{number} ({})", size::shown(number.as_u64().unwrap_or(0))),
            ));
        }
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let texts: Vec<String> = items.iter().map(plain).collect();
            lines.push((prefix.into(), texts.join(", ")));
        }
        Value::Array(items) => {
            for item in items {
                lines.push((prefix.into(), one_line(item)));
            }
        }
        other => lines.push((prefix.into(), plain(other))),
    }
}

/// An object as `text, number name, name text, …`; its first value needs no name.
fn one_line(value: &Value) -> String {
    let part = |(at, (name, value)): (usize, (&String, &Value))| match (at, value.as_u64()) {
        (0, _) => plain(value),
        (_, Some(bytes)) if name == "bytes" => size::shown(bytes),
        (_, Some(count)) => format!("{count} {name}"),
        (_, None) => format!("{name} as {}", plain(value)),
    };
    let fields = value.as_object().into_iter().flatten().enumerate();
    fields.map(part).collect::<Vec<String>>().join(", ")
}

/// A value as text on a line; names of files and a model's metadata may hold what a terminal would obey.
fn plain(value: &Value) -> String {
    match value.as_str() {
        Some(text) => line_for_terminal(text),
        None => line_for_terminal(&value.to_string()),
    }
}
