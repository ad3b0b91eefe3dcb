//! The models that the interface can have: those of the hub, files that were named by their paths, and scripted engines.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::anyhow;
use serde_json::Value;

use super::Cli;
use super::args::{AnswerArgs, EngineArgs, ModelArg};
use super::describe::{Detail, describe_beside};
use super::known::{self, Known, Where};
use super::open::{self, Opening, Source};
use super::outcome::usage;
use super::recommended;
use crate::config::paths::Paths;
use crate::engine::fake::Fake;
use crate::engine::fake::script::Script;
use crate::engine::memory::{mlx_memory, readings};
use crate::engine::prompt_cache::disk::usage as prompts;
use crate::hub::{Cancel, Hub, LocalModel, Located, Progress, Settings};
use crate::model::RandomModel;
use crate::nn::kernels::Kernels;
use crate::sampling::Sampling;
use crate::ui::models::{
    Facts, Fetching, Fit, Inventory, Listed, Models, NotFetched, NotOpened, Opened, Place,
};

/// Models, and what they are opened with.
pub struct Library {
    hub: Hub,
    paths: Paths,
    model: ModelArg,
    engine: EngineArgs,
    answer: AnswerArgs,
    /// Scripts of scripted engines, by the names of their files.
    scripts: Vec<(String, PathBuf)>,
    seen: Mutex<Seen>,
}

/// What was opened.
#[derive(Default)]
struct Seen {
    /// The model that was opened last: the name it was asked for by, and its files where it has some.
    last: Option<(String, Option<PathBuf>)>,
    /// Models that no folder of ours has, by what they were asked for.
    elsewhere: Vec<(String, Option<LocalModel>)>,
}

impl Library {
    /// What the command line asks for, and all else that is here.
    pub fn new(cli: &Cli, paths: &Paths) -> anyhow::Result<Self> {
        let settings = Settings {
            offline: cli.model.offline,
            ..Settings::default()
        };
        let scripts = cli.scripted.as_deref().map_or(Ok(Vec::new()), open::scripts)?;
        let named = |script: PathBuf| {
            let stem = script.file_stem().unwrap_or_default();
            (stem.to_string_lossy().into_owned(), script)
        };
        Ok(Self {
            hub: Hub::new(paths, settings)?,
            paths: paths.clone(),
            model: cli.model.clone(),
            engine: cli.engine.clone(),
            answer: cli.chat.answer.clone(),
            scripts: scripts.into_iter().map(named).collect(),
            seen: Mutex::default(),
        })
    }

    /// The name of the model to begin with, and how it is recommended to sample. An error where it is known before any
    /// screen that it can't be had.
    pub fn first(&self) -> anyhow::Result<(String, Sampling)> {
        open::means(&self.engine)?;
        let greedy = || self.answer.sampling(Sampling::default());
        if let Some((name, script)) = self.scripts.first() {
            // What is wrong with a script is told before the terminal is taken.
            Script::read(script).map_err(|error| anyhow!(error.to_string()))?;
            return Ok((name.clone(), greedy()?));
        }
        let name = self.model.model.as_deref();
        if let Some(random) = name.and_then(RandomModel::named) {
            return Ok((random.map_err(usage)?.name().to_owned(), greedy()?));
        }
        let sampling = match self.hub.resolve(name)? {
            Located::Local(model) => self.answer.sampling(recommended::sampling(&model.path))?,
            Located::Remote(_) | Located::Repository(_) => {
                if self.model.offline {
                    // Says why, without a connection.
                    self.hub.ensure(name, &mut |_| {}, &Cancel::new())?;
                }
                greedy()?
            }
        };
        let name = name.unwrap_or_else(|| self.hub.manifest().default_name());
        Ok((name.to_owned(), sampling))
    }

    /// What is to be said on the command line, besides `--resume`, for a model to come again.
    pub fn words(&self, model: &str) -> String {
        let scripted = self.scripts.iter().any(|(name, _)| name == model);
        if scripted || (self.model.model.is_none() && model == self.hub.manifest().default_name()) {
            String::new()
        } else {
            format!("-m {} ", quoted(model))
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing panics while it holds the lock.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A model that is on this machine; none where it has to be downloaded first.
    fn local(&self, name: &str) -> Result<Option<LocalModel>, String> {
        match self.hub.resolve(Some(name)) {
            Ok(Located::Local(model)) => Ok(Some(model)),
            Ok(Located::Remote(_) | Located::Repository(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn start(&self, name: &str, source: Source) -> Result<Opened, NotOpened> {
        let failed = |error: anyhow::Error| NotOpened::Failed(format!("{error:#}"));
        let path = match &source {
            Source::File(model) => Some(model.path.clone()),
            Source::Random(_) => None,
        };
        let elsewhere = match &source {
            Source::File(model) => {
                let known = known::known(&self.hub).unwrap_or_default();
                let is_known = known.iter().any(|known| known.path.as_ref() == Some(&model.path));
                (!is_known).then(|| Some(model.clone()))
            }
            Source::Random(_) => Some(None),
        };
        let opening = Opening {
            model: &self.model,
            engine: &self.engine,
            paths: &self.paths,
            keeps_prompts: true,
        };
        let open::Opened { engine, recommended } = open::start(source, &opening).map_err(failed)?;
        let sampling = self.answer.sampling(recommended);
        let mut seen = self.seen();
        seen.last = Some((name.to_owned(), path));
        if let Some(model) = elsewhere
            && seen.elsewhere.iter().all(|(other, _)| other != name)
        {
            seen.elsewhere.push((name.to_owned(), model));
        }
        Ok(Opened {
            engine: Arc::new(engine),
            recommended: sampling.map_err(|error| failed(error.into()))?,
        })
    }

    fn listed(&self, known: Known) -> Listed {
        let free = || free_without(held()).1;
        let in_use = {
            let seen = self.seen();
            let path = seen.last.as_ref().and_then(|(_, path)| path.as_ref());
            path.is_some() && path == known.path.as_ref()
        };
        Listed {
            place: match known.place {
                Where::Installed => Place::Installed,
                Where::Cached => Place::Cached,
                Where::Remote => Place::Remote,
            },
            bytes: Some(known.bytes),
            unfinished: match known.place {
                Where::Remote => self.hub.unfinished(&known.name),
                Where::Installed | Where::Cached => 0,
            },
            default: known.default,
            in_use,
            link: self.hub.is_link(&known.name),
            facts: (known.place == Where::Remote).then(|| {
                let free = free();
                Facts {
                    weights: known.bytes,
                    free,
                    fit: if known.bytes <= free { Fit::Whole } else { Fit::No },
                    template: self.hub.manifest().get(&known.name).map(|entry| entry.chat),
                    ..Facts::default()
                }
            }),
            name: known.name,
        }
    }

    /// A model of no folder of ours, or of none at all.
    fn beside(&self, name: &str, bytes: Option<u64>, kind: Option<&str>) -> Listed {
        Listed {
            name: name.to_owned(),
            place: Place::Elsewhere,
            bytes,
            unfinished: 0,
            default: false,
            in_use: self.seen().last.as_ref().is_some_and(|(last, _)| last == name),
            link: false,
            facts: kind.map(|kind| Facts {
                quantization: kind.to_owned(),
                ..Facts::default()
            }),
        }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let word: String = word.chars().filter(|c| !c.is_control()).collect();
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Bytes that the model that is there now holds, and that its end gives back: MLX's, and those of packed weights.
fn held() -> u64 {
    mlx_memory().active.saturating_add(Kernels::held())
}

/// All device memory, and what is free of it once so many bytes are given back.
fn free_without(given_back: u64) -> (u64, u64) {
    let machine = readings();
    let free = machine.free().saturating_add(given_back).min(machine.total());
    (machine.total(), free)
}

/// What a description of a model says.
fn facts(told: &Value) -> Facts {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let count = |value: &Value| usize::try_from(number(value)).unwrap_or(usize::MAX);
    let memory = &told["memory"];
    let fit = match text(&told["not_supported"]) {
        Some(why) => Fit::Unsupported(why),
        None if memory.is_null() => Fit::Unknown,
        None if memory["fits_now"] == true => Fit::Whole,
        None => match count(&memory["longest_context_that_fits_now"]) {
            0 => Fit::No,
            tokens => Fit::UpTo(tokens),
        },
    };
    let stored = text(&told["quantization"]).or_else(|| text(&told["types"][0]["type"]));
    Facts {
        quantization: stored.unwrap_or_default(),
        context: count(&told["context_length"]),
        weights: number(&told["weight_bytes"]),
        kv: number(&memory["kv_bytes_at_full_context"]),
        free: number(&memory["free_bytes"]),
        fit,
        template: None,
    }
}

impl Models for Library {
    fn list(&self) -> Result<Inventory, String> {
        let known = known::known(&self.hub).map_err(|error| error.to_string())?;
        let elsewhere = self.seen().elsewhere.clone();
        let scripts = self.scripts.iter().map(|(name, script)| {
            let mut listed = self.beside(name, None, Some("scripted"));
            if let (Some(facts), Ok(script)) = (&mut listed.facts, Script::read(script)) {
                facts.context = script.model.context_length;
            }
            listed
        });
        let mut models: Vec<Listed> = scripts.collect();
        models.extend(elsewhere.iter().map(|(name, model)| match model {
            Some(model) => self.beside(name, Some(size_of(&model.path)), None),
            None => self.beside(name, None, Some("random")),
        }));
        models.extend(known.into_iter().map(|known| self.listed(known)));
        models.extend(self.hub.begun().into_iter().map(|(name, unfinished)| Listed {
            place: Place::Remote,
            unfinished,
            ..self.beside(&name, None, None)
        }));
        let prompts = prompts::usage(&self.prompts()).map_err(|error| error.to_string())?;
        Ok(Inventory {
            models,
            prompt_files: prompts.files,
            prompt_bytes: prompts.bytes,
        })
    }

    fn inspect(&self, name: &str) -> Option<Facts> {
        let elsewhere = self
            .seen()
            .elsewhere
            .iter()
            .find(|(known, _)| known == name)
            .cloned();
        let model = match elsewhere {
            Some((_, model)) => model,
            None => self.local(name).ok().flatten(),
        };
        let path = model?.path;
        let told = describe_beside(&path, Detail::Memory, held())?;
        Some(Facts {
            template: crate::text::has_template(&path),
            ..facts(&told)
        })
    }

    fn is_here(&self, name: &str) -> Result<bool, String> {
        let beside =
            self.scripts.iter().any(|(script, _)| script == name) || RandomModel::named(name).is_some();
        Ok(beside || self.local(name)?.is_some())
    }

    fn remove(&self, name: &str) -> Result<String, String> {
        let last = self.seen().last.clone();
        let used = last.and_then(|(_, path)| path);
        let path = self.local(name).ok().flatten().map(|model| model.path);
        if path.is_some() && path == used {
            return Err(format!("{name} is in use: change to another model first"));
        }
        let removed = self.hub.remove(name).map_err(|error| error.to_string())?;
        Ok(known::told(&removed))
    }

    fn clear_prompts(&self) -> Result<String, String> {
        let folder = self.prompts();
        let gone = prompts::clear(&folder)
            .map_err(|error| format!("the prompt cache's files in {}: {error}", folder.display()))?;
        Ok(format!(
            "deleted the prompt cache's files, {} freed",
            crate::size::shown(gone.bytes)
        ))
    }

    fn fetch(
        &self,
        name: &str,
        tell: &mut dyn FnMut(Fetching),
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), NotFetched> {
        let mut told = |progress: Progress| {
            let (stage, counts) = progress.stage();
            if let Progress::Note(note) = &progress {
                tracing::info!(model = name, note, "download");
                return;
            }
            let (done, total) = counts.unwrap_or_default();
            tell(Fetching { stage, done, total });
        };
        let fetched = self
            .hub
            .ensure(Some(name), &mut told, &Cancel::from(Arc::clone(cancel)));
        fetched.map(drop).map_err(|error| NotFetched(error.to_string()))
    }

    fn open(&self, name: &str) -> Result<Opened, NotOpened> {
        if let Some((_, script)) = self.scripts.iter().find(|(script, _)| script == name) {
            let fake = Fake::from_file(script).map_err(|error| NotOpened::Failed(error.to_string()))?;
            let sampling = self.answer.sampling(Sampling::default());
            self.seen().last = Some((name.to_owned(), None));
            return Ok(Opened {
                engine: Arc::new(fake),
                recommended: sampling.map_err(|error| NotOpened::Failed(error.to_string()))?,
            });
        }
        if let Some(random) = RandomModel::named(name) {
            return self.start(name, Source::Random(random.map_err(NotOpened::Failed)?));
        }
        match self.local(name).map_err(NotOpened::Failed)? {
            Some(model) => self.start(name, Source::File(model)),
            None => Err(NotOpened::Remote),
        }
    }
}

impl Library {
    /// The folder of the prompt cache's files.
    fn prompts(&self) -> PathBuf {
        let files = self.engine.prompt_cache_files(self.paths.prompts(), true);
        files.map_or_else(|| self.paths.prompts(), |(folder, _)| folder)
    }
}

/// Bytes of a model's files.
fn size_of(path: &Path) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    match std::fs::read_dir(path) {
        Ok(folder) => folder.flatten().map(|item| length(&item.path())).sum(),
        Err(_) => length(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_written_as_a_shell_takes_them() {
        assert_eq!(quoted("org/tiny@main:Q4_K"), "org/tiny@main:Q4_K");
        assert_eq!(quoted("./my model"), "'./my model'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn whether_a_model_fits_is_what_its_description_says() {
        let told = |memory: Value| facts(&json!({"quantization": "Q4_K", "memory": memory})).fit;
        assert_eq!(told(json!({"fits_now": true})), Fit::Whole);
        assert_eq!(
            told(json!({"fits_now": false, "longest_context_that_fits_now": 900})),
            Fit::UpTo(900)
        );
        assert_eq!(
            told(json!({"fits_now": false, "longest_context_that_fits_now": 0})),
            Fit::No
        );
        assert_eq!(told(Value::Null), Fit::Unknown);
        let unsupported = facts(&json!({"not_supported": "no such family", "types": [{"type": "BF16"}]}));
        assert_eq!(unsupported.fit, Fit::Unsupported("no such family".into()));
        assert_eq!(unsupported.quantization, "BF16");
    }
}
