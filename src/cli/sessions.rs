//! `mlx-chat sessions list|show|search|export|import|rm`.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::at_least_one;
use super::outcome::{Stdout, tell, usage};
use super::stderr::{say, say_part};
use crate::chat::store::{Place, Summary};
use crate::chat::{Conversation, ExportFormat, Marks, Store, Taken, import, to_markdown};
use crate::config::paths::Paths;
use crate::text::sanitize::{for_terminal, line_for_terminal as plain};

/// List, read, search, export, import and delete conversations.
#[derive(Debug, Clone, Args)]
pub struct SessionsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SessionsCommand,
}

/// What `mlx-chat sessions` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum SessionsCommand {
    /// Show the conversations, newest first: id, last change, turns, model, title
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print a conversation
    Show {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Find what holds all of the words, whatever their case: titles first, then messages
    Search {
        /// The words
        #[arg(required = true)]
        words: Vec<String>,
        /// How many finds to show at most
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one, allow_negative_numbers = true)]
        limit: usize,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Write a conversation as a document
    Export {
        /// Its id, or the beginning of it
        id: String,
        /// What kind of document; else as the file's name ends, else `markdown`; `json` has all branches, and can be imported
        #[arg(long, value_enum)]
        format: Option<ExportFormat>,
        /// Where to write it, instead of to standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Take conversations from files: ChatGPT's conversations.json with its branches, or lists of messages as the OpenAI
    /// protocol writes them. What can't be read is told, and the rest is taken; it fails if a file gives nothing
    Import {
        /// The files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Delete a conversation
    Rm {
        /// Its id, or the beginning of it
        id: String,
        /// Don't ask
        #[arg(long, short)]
        yes: bool,
    },
}

impl ValueEnum for ExportFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Markdown, Self::Json, Self::Html]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Markdown => PossibleValue::new("markdown").alias("md").help("Markdown"),
            Self::Json => PossibleValue::new("json").help("One JSON object"),
            Self::Html => PossibleValue::new("html").help("A page that needs nothing else"),
        })
    }
}

/// Runs `mlx-chat sessions`.
pub fn run(args: &SessionsArgs, paths: &Paths) -> anyhow::Result<ExitCode> {
    let mut store = Store::open(paths);
    match &args.command {
        SessionsCommand::List { json } => list(&store, *json)?,
        SessionsCommand::Show { id } => {
            let conversation = load(&store, id)?;
            print(&for_terminal(&to_markdown(&conversation)))?;
        }
        SessionsCommand::Search { words, limit, json } => search(&store, &words.join(" "), *limit, *json)?,
        SessionsCommand::Export { id, format, output } => {
            let conversation = load(&store, id)?;
            let of_file = || output.as_deref().and_then(ExportFormat::of_file);
            let document = format
                .or_else(of_file)
                .unwrap_or_default()
                .document(&conversation);
            match output {
                None => print(&document)?,
                Some(path) => std::fs::write(path, document)
                    .with_context(|| format!("can't write {}", path.display()))?,
            }
        }
        SessionsCommand::Import { files } => return take_all(&mut store, files),
        SessionsCommand::Rm { id, yes } => return remove(&mut store, id, *yes),
    }
    Ok(ExitCode::SUCCESS)
}

/// A conversation by the beginning of its id; what could not be read of it is told.
fn load(store: &Store, id: &str) -> anyhow::Result<Conversation> {
    let conversation = store.load(store.find(id)?)?;
    conversation.notes.iter().for_each(tell);
    Ok(conversation)
}

/// Prints text that models and others wrote: on a terminal it can't steer that.
fn print(text: &str) -> io::Result<()> {
    let text = if io::stdout().is_terminal() {
        for_terminal(text)
    } else {
        Cow::Borrowed(text)
    };
    let mut out = Stdout::lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn named(title: &str) -> String {
    if title.is_empty() {
        "(no title)".into()
    } else {
        plain(title)
    }
}

/// How many turns, in a column.
fn turns(count: usize) -> String {
    format!("{count:>3} {:<5}", if count == 1 { "turn" } else { "turns" })
}

/// How a conversation is listed, behind what is told of it.
fn marked(marks: Marks) -> &'static str {
    match (marks.pinned, marks.archived) {
        (false, false) => "",
        (true, false) => "  (pinned)",
        (false, true) => "  (archived)",
        (true, true) => "  (pinned, archived)",
    }
}

fn list(store: &Store, as_json: bool) -> anyhow::Result<()> {
    let listing = store.list()?;
    listing.notes.iter().for_each(tell);
    if as_json {
        let rows: Vec<Value> = listing.sessions.iter().map(summary_json).collect();
        return Ok(print(&format!("{}\n", Value::from(rows)))?);
    }
    let mut text = String::new();
    for row in &listing.sessions {
        let date = row.updated.strftime("%Y-%m-%d %H:%MZ");
        let model = if row.model.is_empty() {
            "-".into()
        } else {
            plain(&row.model)
        };
        text += &format!(
            "{}  {date}  {}  {model}  {}{}\n",
            row.session,
            turns(row.turns),
            named(&row.title),
            marked(row.marks)
        );
    }
    Ok(print(&text)?)
}

fn summary_json(row: &Summary) -> Value {
    json!({"id": row.session, "title": row.title, "model": row.model, "turns": row.turns,
        "created": row.created.to_string(), "updated": row.updated.to_string(), "bytes": row.bytes,
        "pinned": row.marks.pinned, "archived": row.marks.archived})
}

fn search(store: &Store, words: &str, limit: usize, as_json: bool) -> anyhow::Result<()> {
    let found = store.search(words, limit)?;
    found.notes.iter().for_each(tell);
    if as_json {
        let hit = |hit: &crate::chat::store::Hit| {
            let (turn, role) = match hit.place {
                Place::Title | Place::Draft => (None, None),
                Place::Message { turn, role } => (Some(turn), Some(role)),
            };
            json!({"id": hit.session, "title": hit.title, "turn": turn, "role": role, "line": hit.line, "at": hit.at.to_string(),
                "draft": hit.place == Place::Draft, "archived": hit.marks.archived})
        };
        let hits: Vec<Value> = found.hits.iter().map(hit).collect();
        return Ok(print(&format!("{}\n", Value::from(hits)))?);
    }
    let mut text = String::new();
    for hit in &found.hits {
        text += &match hit.place {
            Place::Title => {
                let marked = marked(hit.marks);
                format!("{}  title  {}{marked}\n", hit.session, plain(&hit.line))
            }
            Place::Draft => {
                let marked = marked(hit.marks);
                format!("{}  draft  {}{marked}\n", hit.session, plain(&hit.line))
            }
            Place::Message { turn, role } => {
                format!(
                    "{}  turn {turn}, {}  {}{}\n",
                    hit.session,
                    role.as_str(),
                    plain(&hit.line),
                    marked(hit.marks)
                )
            }
        };
    }
    if text.is_empty() {
        say!("nothing holds all of: {}", plain(words));
    }
    Ok(print(&text)?)
}

/// Takes what the files hold; one that gives nothing is told, and the next ones are read all the same.
fn take_all(store: &mut Store, files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match take(store, file) {
            Err(error) if files.len() > 1 => {
                tell(format_args!("{error:#}"));
                code = ExitCode::FAILURE;
            }
            done => done?,
        }
    }
    Ok(code)
}

fn take(store: &mut Store, file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    let read = import(&text).with_context(|| format!("can't import {}", file.display()))?;
    for left_out in read.left_out() {
        tell(format_args!("{}: {left_out}", file.display()));
    }
    let (mut lines, mut known) = (String::new(), 0);
    for conversation in read.conversations {
        let (title, turns) = (named(conversation.title()), turns(conversation.turns()));
        match store.take_in(conversation, Timestamp::now())? {
            Taken::New(session) => lines += &format!("{session}  {turns}  {title}\n"),
            Taken::Known(_) => known += 1,
        }
    }
    print(&lines)?;
    if known > 0 {
        tell(format_args!("imported before, and left as they are: {known}"));
    }
    Ok(())
}

fn remove(store: &mut Store, id: &str, yes: bool) -> anyhow::Result<ExitCode> {
    let session = store.find(id)?;
    if !yes {
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(usage(format!(
                "nobody can be asked whether to delete conversation {session}; pass --yes"
            ))
            .into());
        }
        let title = named(&store.load(session)?.title);
        say_part!("Delete conversation '{title}' ({session})? [y/N] ");
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            say!("kept");
            return Ok(ExitCode::FAILURE);
        }
    }
    store.remove(session)?;
    say!("deleted {session}");
    Ok(ExitCode::SUCCESS)
}
