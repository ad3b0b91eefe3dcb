//! What a scripted engine does, written as TOML. Everything may be left out; an empty script echoes prompts.
//!
//! ```toml
//! tick_ms = 20                    # a step's length; 0 is not allowed
//!
//! [model]
//! name = "Scripted"               # also: description, device, mlx
//! context_length = 4096
//! kv_bytes_per_token = 1024
//! has_tokenizer = true            # false: token ids are the only prompts
//! thinking_switch = false         # whether its chat template could be told to think
//! template = ""                   # text that names the markers of its thinking and tool calls, as a template does
//!
//! [engine]
//! max_batch = 8
//! max_queued = 64
//! kv_budget = 33554432
//! prefill_chunk = 64              # tokens per step
//! prefill_batch_tokens = 64       # tokens per step while prompts end
//! prompt_cache = 8388608          # bytes; 0 is off
//!
//! [fail]                          # the engine as a whole: one of message and panic
//! at_step = 40                    # counted from 0; only steps with something to do
//! message = "the device is gone"  # a failure of the loop
//! # panic = "index out of bounds" # a panic in the engine's thread
//!
//! [[loading]]                     # stages, one after the other
//! stage = "reading weights"
//! steps = 5
//! bytes = 1000000                 # 0: not known
//! # fail = "the file is damaged"  # loading ends here, and the engine with it
//!
//! [[answer]]                      # the first that matches answers
//! match = "weather"               # part of the prompt's last message; left out: any prompt
//! text = "It rains."              # cut into a token per word, or
//! # pieces = ["It", " rains."]    # a token per piece; neither: the prompt is echoed
//! repeat = 1                      # how often the answer comes before its end
//! # reject = "no"                 # refused instead
//! # error = { after = 3, message = "out of memory" }   # fails after so many tokens
//! # endless = true                # never ends by itself
//! ```

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

/// A script that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file can't be read.
    #[error("the engine script {path} can't be read: {source}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what a script may be.
    #[error("the engine script {name}, line {line}: {message}")]
    Bad {
        /// What the script is called.
        name: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// The thread that runs it can't be started.
    #[error("the scripted engine's thread can't be started: {0}")]
    Thread(std::io::Error),
}

/// The script. See the module for its form.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// A step's length in milliseconds; in the manual engine, of its own clock.
    pub tick_ms: u64,
    /// What it says of the model.
    pub model: Model,
    /// Its limits.
    pub engine: Limits,
    /// How the engine as a whole fails.
    pub fail: Option<Fail>,
    /// Stages of loading.
    pub loading: Vec<Stage>,
    /// Answers; the first that matches is given.
    pub answer: Vec<Answer>,
}

/// What the engine says of its model: see [`crate::engine::telemetry::EngineInfo`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are EngineInfo's")]
pub struct Model {
    pub name: String,
    pub description: String,
    pub device: String,
    pub mlx: String,
    pub context_length: usize,
    pub kv_bytes_per_token: u64,
    pub has_tokenizer: bool,
    pub thinking_switch: bool,
    /// What a chat template would say: the markers in it are looked for in answers.
    pub template: String,
}

/// The engine's limits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The most rows that prepare or run.
    pub max_batch: usize,
    /// The most requests that wait.
    pub max_queued: usize,
    /// The most KV bytes that rows may reserve.
    pub kv_budget: u64,
    /// Prompt tokens per step.
    pub prefill_chunk: usize,
    /// Prompt tokens per step while one prompt ends and another begins.
    pub prefill_batch_tokens: usize,
    /// Bytes of the prompt cache; 0 is off.
    pub prompt_cache: u64,
}

/// How the engine as a whole fails: one of `message` and `panic`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// At which step, counted from 0; loading and steps with nothing to do don't count.
    pub at_step: u64,
    /// The loop fails with this message.
    pub message: Option<String>,
    /// The engine's thread panics with this message.
    pub panic: Option<String>,
}

/// A stage of loading.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// What is being done.
    pub stage: String,
    /// How many steps it takes.
    #[serde(default = "one")]
    pub steps: u64,
    /// Bytes that it is about; 0 if not known.
    #[serde(default)]
    pub bytes: u64,
    /// Loading fails at the end of this stage.
    pub fail: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// Part of the prompt's last message (or of its text, or of its ids with spaces between); unset matches all.
    #[serde(rename = "match")]
    pub matches: Option<String>,
    /// The answer, cut into words.
    pub text: Option<String>,
    /// The answer, cut by hand.
    pub pieces: Option<Vec<String>>,
    /// How often it comes before its end; unset is once.
    pub repeat: Option<u64>,
    /// It never ends by itself.
    pub endless: bool,
    /// The request is refused with this message.
    pub reject: Option<String>,
    /// The request fails.
    pub error: Option<RowError>,
}

/// A failure of one row.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowError {
    /// After how many tokens; 0 is during preparation.
    pub after: u64,
    /// What went wrong.
    pub message: String,
}

fn one() -> u64 {
    1
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tick_ms: 20,
            model: Model::default(),
            engine: Limits::default(),
            fail: None,
            loading: Vec::new(),
            answer: Vec::new(),
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            name: "Scripted".into(),
            description: "a scripted engine, no model".into(),
            device: "none".into(),
            mlx: "none".into(),
            context_length: 4096,
            kv_bytes_per_token: 1024,
            has_tokenizer: true,
            thinking_switch: false,
            template: String::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_batch: 8,
            max_queued: 64,
            kv_budget: 32 << 20,
            prefill_chunk: 64,
            prefill_batch_tokens: 64,
            prompt_cache: 8 << 20,
        }
    }
}

/// The places of what [`check`] looks at.
#[derive(Deserialize)]
struct Places {
    tick_ms: Option<Spanned<toml::Value>>,
    engine: Option<Spanned<toml::Value>>,
    fail: Option<Spanned<toml::Value>>,
    #[serde(default)]
    loading: Vec<Spanned<toml::Value>>,
    #[serde(default)]
    answer: Vec<Spanned<toml::Value>>,
}

impl Script {
    /// Reads a script from a file.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path).map_err(|source| ScriptError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads a script from text; `name` is for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScriptError> {
        let at = |offset: usize| 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
        let bad = |offset: usize, message: String| ScriptError::Bad {
            name: name.to_string(),
            line: at(offset),
            message,
        };
        let toml_error = |error: toml::de::Error| {
            bad(
                error.span().map_or(0, |span| span.start),
                error.message().trim().to_string(),
            )
        };
        let script: Self = toml::from_str(text).map_err(toml_error)?;
        let places: Places = toml::from_str(text).map_err(toml_error)?;
        match check(&script, &places) {
            Some((offset, message)) => Err(bad(offset, message)),
            None => Ok(script),
        }
    }

    /// The answer to a prompt whose last message is `prompt`.
    pub fn answer_to(&self, prompt: &str) -> Option<&Answer> {
        self.answer
            .iter()
            .find(|answer| answer.matches.as_deref().is_none_or(|part| prompt.contains(part)))
    }
}

/// What the types can't say: the first fault, with its place.
fn check(script: &Script, places: &Places) -> Option<(usize, String)> {
    let start = |place: Option<&Spanned<toml::Value>>| place.map_or(0, |place| place.span().start);
    if script.tick_ms == 0 {
        return Some((
            start(places.tick_ms.as_ref()),
            "tick_ms is 0, but must be at least 1".into(),
        ));
    }
    let limits = &script.engine;
    for (name, value) in [
        ("max_batch", limits.max_batch),
        ("max_queued", limits.max_queued),
        ("prefill_chunk", limits.prefill_chunk),
    ] {
        if value == 0 {
            let message = format!("engine.{name} is 0, but must be at least 1");
            return Some((start(places.engine.as_ref()), message));
        }
    }
    if let Some(fail) = &script.fail
        && fail.message.is_some() == fail.panic.is_some()
    {
        return Some((
            start(places.fail.as_ref()),
            "fail needs one of message and panic".into(),
        ));
    }
    for (n, stage) in script.loading.iter().enumerate() {
        if stage.steps == 0 {
            let message = format!("loading {}: steps is 0, but must be at least 1", n + 1);
            return Some((start(places.loading.get(n)), message));
        }
    }
    for (n, answer) in script.answer.iter().enumerate() {
        let fault = if answer.text.is_some() && answer.pieces.is_some() {
            "text and pieces are both set; leave one out"
        } else if answer.repeat == Some(0) {
            "repeat is 0, but must be at least 1"
        } else if answer.endless && answer.repeat.is_some() {
            "endless and repeat are both set; leave one out"
        } else if answer.endless && no_tokens(answer) {
            "endless needs something to repeat, but the answer is empty"
        } else if answer.reject.is_some() && (answer.text.is_some() || answer.pieces.is_some()) {
            "reject is set beside an answer; leave one out"
        } else {
            continue;
        };
        return Some((start(places.answer.get(n)), format!("answer {}: {fault}", n + 1)));
    }
    None
}

fn no_tokens(answer: &Answer) -> bool {
    answer.text.as_deref().is_some_and(str::is_empty) || answer.pieces.as_ref().is_some_and(Vec::is_empty)
}
