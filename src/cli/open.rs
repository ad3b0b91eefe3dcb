//! From a model's name to an engine: found or fetched, then loaded on the engine's thread.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use signal_hook::consts::SIGINT;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

use super::args::{DeviceArg, EngineArgs, ModelArg};
use super::outcome::{Fault, interrupted, leave_at_once, usage};
use super::status_line::StatusLine;
use super::stderr::say;
use super::{models, recommended, version};
use crate::cache::KvScheme;
use crate::config::paths::Paths;
use crate::engine::fake::Fake;
use crate::engine::prompt_cache::disk::identity;
use crate::engine::prompt_cache::disk::tier::{self, DiskOptions};
use crate::engine::telemetry::{EngineInfo, EngineState};
use crate::engine::{Engine, EngineHandle, EngineOptions, Event, Prepared, RequestId};
use crate::hub::{Hub, LocalModel, Located, Meter, Settings};
use crate::model::{self, LoadOptions, ModelInfo, RandomModel};
use crate::nn::Backend;
use crate::nn::kernels::Kernels;
use crate::sampling::Sampling;
use crate::text::Codec;

/// What an engine is opened with.
pub struct Opening<'a> {
    /// Which model.
    pub model: &'a ModelArg,
    /// How it batches.
    pub engine: &'a EngineArgs,
    /// Where models are, and the prompt cache.
    pub paths: &'a Paths,
    /// Whether prompts are kept on disk where no flag says so.
    pub keeps_prompts: bool,
}

/// An engine, which may still be loading.
pub struct Opened {
    /// The engine.
    pub engine: EngineHandle,
    /// How the model's makers would have it sample.
    pub recommended: Sampling,
}

/// Finds the model (fetching it with progress on standard error) and starts an engine that loads it.
pub fn engine(opening: Opening<'_>) -> anyhow::Result<Opened> {
    means(opening.engine)?;
    let found = match opening.model.model.as_deref().and_then(RandomModel::named) {
        Some(random) => Source::Random(random.map_err(usage)?),
        None => Source::File(find(&opening)?),
    };
    start(found, &opening)
}

/// What models are loaded with, as the flags say; an error where they can't be had, or where the folder that is named for
/// the prompt cache can't.
pub fn means(engine: &EngineArgs) -> anyhow::Result<LoadOptions> {
    engine.check()?;
    make_named_folder(engine)?;
    let backend = backend(engine.device)?;
    // What is set for the CPU doesn't count elsewhere; what is asked for now is refused there.
    let counts = backend == Backend::Cpu || !engine.is_set("threads");
    let threads = engine.threads.filter(|_| counts);
    let kv = engine.kv_schemes()?;
    if backend.is_gpu() && threads.is_some() {
        return Err(usage("--threads is for the CPU: leave it out, or add --device cpu".to_owned()).into());
    }
    Ok(LoadOptions { backend, threads, kv })
}

/// Starts an engine that loads a model.
pub fn start(found: Source, opening: &Opening<'_>) -> anyhow::Result<Opened> {
    let means = means(opening.engine)?;
    let backend = means.backend;
    tracing::info!(model = found.name(), path = ?found.path(), ?backend, mlx = version::MLX, "opening");
    let recommended = found.path().map(recommended::sampling).unwrap_or_default();
    let options = EngineOptions {
        prompt_cache_disk: found.path().and_then(|path| prompt_cache_disk(opening, path)),
        ..opening.engine.options()
    };
    let loader = Box::new(move |progress: &mut dyn FnMut(model::LoadProgress)| {
        let started = Instant::now();
        let codec = found.codec()?;
        let tokenizer = started.elapsed();
        let loaded = found.load(&means, progress)?;
        let weights = started.elapsed().saturating_sub(tokenizer);
        let plan = loaded.model.plan();
        let kv = plan.quantized().unwrap_or_else(|| KvScheme::Full.to_string());
        tracing::info!(?tokenizer, ?weights, device = %loaded.model.info().device, kv, layers = ?plan.held(), "loaded");
        let info = EngineInfo {
            model: found.name().to_owned(),
            description: describe(loaded.model.info()),
            device: loaded.model.info().device.clone(),
            mlx: format!("{} ({})", version::MLX, version::BACKEND),
            ..EngineInfo::default()
        };
        Ok(Prepared { loaded, codec, info })
    });
    let engine = EngineHandle::spawn(options, loader)?;
    Ok(Opened { engine, recommended })
}

/// Finds the model among files, fetching it where it isn't there.
fn find(opening: &Opening<'_>) -> anyhow::Result<LocalModel> {
    let settings = Settings {
        offline: opening.model.offline,
        ..Settings::default()
    };
    let hub = Hub::new(opening.paths, settings)?;
    match hub.resolve(opening.model.model.as_deref())? {
        Located::Local(model) => Ok(model),
        Located::Remote(_) | Located::Repository(_) => {
            let cancel = models::cancelled_by_signals()?;
            let columns = models::columns_of_stderr();
            Ok(models::ensure(
                &hub,
                opening.model.model.as_deref(),
                &mut std::io::stderr().lock(),
                columns,
                &cancel,
            )?)
        }
    }
}

/// Where a model comes from.
pub enum Source {
    /// Its files.
    File(LocalModel),
    /// Chance: its weights are drawn.
    Random(RandomModel),
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Self::File(model) => &model.name,
            Self::Random(random) => random.name(),
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::File(model) => Some(&model.path),
            Self::Random(_) => None,
        }
    }

    fn codec(&self) -> Result<Option<Codec>, String> {
        match self {
            Self::File(model) => Codec::open(&model.path).map_err(|error| error.to_string()),
            Self::Random(_) => Ok(None),
        }
    }

    fn load(
        &self,
        options: &LoadOptions,
        progress: &mut dyn FnMut(model::LoadProgress),
    ) -> Result<model::Loaded, String> {
        match self {
            Self::File(model) => model::load(&model.path, options, progress)
                .map_err(|error| naming(&model.path, error.to_string())),
            Self::Random(random) => {
                model::load_random(random, options, progress).map_err(|error| error.to_string())
            }
        }
    }
}

/// An engine that answers people: over the model, or the scripted one where `fake:SCRIPT` names a script.
pub fn answering(
    scripted: Option<&str>,
    opening: Opening<'_>,
) -> anyhow::Result<(Arc<dyn Engine>, Sampling)> {
    let Some(scripted) = scripted else {
        let Opened { engine, recommended } = engine(opening)?;
        return Ok((Arc::new(engine), recommended));
    };
    let scripts = scripts(scripted)?;
    let script = scripts.first().ok_or_else(|| usage(SCRIPTED))?;
    let fake = Fake::from_file(script).map_err(|error| anyhow!(error.to_string()))?;
    Ok((Arc::new(fake), Sampling::default()))
}

/// How scripted engines are asked for.
const SCRIPTED: &str = "--engine takes fake:SCRIPT, or several scripts with commas between";

/// The scripts of scripted engines, the one to begin with first.
pub fn scripts(scripted: &str) -> anyhow::Result<Vec<PathBuf>> {
    let scripts = scripted
        .strip_prefix("fake:")
        .filter(|scripts| !scripts.is_empty());
    let scripts = scripts.ok_or_else(|| usage(SCRIPTED))?;
    Ok(scripts.split(',').map(PathBuf::from).collect())
}

/// Makes the folder that this call names for the prompt cache, unless it is there.
fn make_named_folder(engine: &EngineArgs) -> anyhow::Result<()> {
    let files = engine.prompt_cache_files(PathBuf::new(), true);
    let Some((folder, _)) = files.filter(|_| engine.prompt_cache_folder().is_some()) else {
        return Ok(());
    };
    tier::make_folder(&folder).with_context(|| {
        let what = if folder.exists() {
            "it is no folder"
        } else {
            "there is no such folder, and it can't be made"
        };
        format!(
            "--prompt-cache-dir {}: {what}; name another, or off",
            folder.display()
        )
    })
}

/// Where entries of the prompt cache go on disk, if they do.
fn prompt_cache_disk(opening: &Opening<'_>, model: &Path) -> Option<DiskOptions> {
    let (folder, limit) = opening
        .engine
        .prompt_cache_files(opening.paths.prompts(), opening.keeps_prompts)?;
    let model = identity::of_model(model)
        .inspect_err(
            |error| tracing::warn!(%error, "the model's files can't be told from others: no prompt cache on disk"),
        )
        .ok()?;
    // Rows go on to the bit only where products are computed as they were.
    let model = format!("{model} by products of {}", Kernels::products());
    Some(DiskOptions { folder, limit, model })
}

/// Closes an engine. Where writing the prompt cache to disk takes more than a second, a line on standard error tells how far
/// that is; Ctrl-C gives up the rest.
pub fn close(engine: &dyn Engine) {
    let finished = tokio::sync::Notify::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            engine.close();
            finished.notify_one();
        });
        match runtime {
            Ok(runtime) => runtime.block_on(accompany(engine, &finished)),
            Err(error) => tracing::warn!(%error, "closing is not accompanied"),
        }
    });
}

/// Tells how far an engine is that closes, until it has.
async fn accompany(engine: &dyn Engine, finished: &tokio::sync::Notify) {
    let mut line = StatusLine::new();
    let started = tokio::time::Instant::now();
    let mut snapshots = engine.snapshots();
    let mut most = 0;
    loop {
        let pending = snapshots.borrow_and_update().prompt_cache.disk.pending;
        most = most.max(pending);
        if pending > 0 && started.elapsed() >= Duration::from_secs(1) {
            let [done, all] = [most - pending, most].map(crate::size::shown);
            line.show(&format!(
                "keeping the prompt cache: {done} of {all} (^C leaves the rest)"
            ));
        }
        tokio::select! {
            biased;
            () = finished.notified() => break,
            _ = tokio::signal::ctrl_c() => engine.hurry(),
            changed = snapshots.changed() => {
                if changed.is_err() {
                    // Nothing more is told: the thread is about to end.
                    finished.notified().await;
                    break;
                }
            }
        }
    }
    line.clear();
}

/// A message about a model that says which one, unless it names its file already.
fn naming(path: &Path, message: String) -> String {
    let path = path.display().to_string();
    if message.contains(&path) {
        message
    } else {
        format!("can't load {path}: {message}")
    }
}

fn backend(device: Option<DeviceArg>) -> anyhow::Result<Backend> {
    let detected = Backend::detect();
    match device {
        None => Ok(detected),
        Some(DeviceArg::Cpu) => Ok(Backend::Cpu),
        Some(DeviceArg::Gpu) if detected == Backend::Gpu => Ok(Backend::Gpu),
        Some(DeviceArg::Gpu) => Err(usage(format!(
            "--device gpu: this build is linked with MLX for {}, which has no GPU here; leave --device out, or build \
             with MLX_CHAT_BACKEND=metal, cuda12 or cuda13",
            version::BACKEND
        ))
        .into()),
    }
}

/// The model in a few words: `llama, 134.5 M parameters, Q4_1 as float32`.
pub fn describe(info: &ModelInfo) -> String {
    let parameters = info.parameters as f64;
    let size = if parameters >= 1e9 {
        format!("{:.1} B", parameters / 1e9)
    } else {
        format!("{:.1} M", parameters / 1e6)
    };
    format!(
        "{}, {size} parameters, {} as {}",
        info.family, info.quantization, info.dtype
    )
}

/// Waits until the model is loaded; tells how far it is on standard error, where that is a terminal. Ctrl-C ends the
/// process.
pub async fn wait_until_ready(engine: &dyn Engine, interrupts: &mut Interrupts) -> anyhow::Result<()> {
    let mut line = StatusLine::new();
    let mut snapshots = engine.snapshots();
    let started = tokio::time::Instant::now();
    let mut meter = Meter::new();
    let outcome = loop {
        let state = snapshots.borrow_and_update().state.clone();
        match state {
            EngineState::Ready => break Ok(()),
            EngineState::Failed(message) => break Err(anyhow!(message)),
            EngineState::Closed => break Err(anyhow!("the engine was closed")),
            EngineState::Loading { stage, done, total } => {
                let elapsed = started.elapsed();
                meter.observe(done, elapsed);
                if elapsed >= Duration::from_millis(500) {
                    let counts = if total > 0 {
                        meter.text(total, " · ")
                    } else {
                        String::new()
                    };
                    line.show(&format!("{stage} {counts}"));
                }
            }
        }
        tokio::select! {
            biased;
            () = interrupts.next() => {
                line.clear();
                let fault = interrupted();
                tracing::info!("interrupted while the model was loading");
                say!("mlx-chat: {fault}");
                leave_at_once(fault.outcome.code());
            }
            changed = snapshots.changed() => {
                if changed.is_err() {
                    break Err(anyhow!("the engine's thread is gone"));
                }
            }
        }
    };
    line.clear();
    outcome
}

/// Ctrl-C, heard from the moment of its making on.
pub struct Interrupts(Signal);

impl Interrupts {
    /// Waits for the next one.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// A runtime for a command that waits for the engine and for Ctrl-C; to be made before the engine is. A second Ctrl-C
/// ends the process at once: the first one may wait for a chunk of a prompt, or for a reader of our output who takes no
/// more.
pub fn runtime() -> io::Result<(tokio::runtime::Runtime, Interrupts)> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&interrupted))?;
    signal_hook::flag::register(SIGINT, interrupted)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let inside = runtime.enter();
    let interrupts = signal(SignalKind::interrupt())?;
    drop(inside);
    Ok((runtime, Interrupts(interrupts)))
}

/// The next event of a workload; on Ctrl-C the engine is closed, which ends every request, and the fault says so.
pub async fn next_event(
    engine: &EngineHandle,
    events: &mut UnboundedReceiver<(RequestId, Event)>,
    interrupts: &mut Interrupts,
) -> Result<Option<(RequestId, Event)>, Fault> {
    tokio::select! {
        biased;
        () = interrupts.next() => {
            engine.hurry();
            engine.close();
            Err(interrupted())
        }
        event = events.recv() => Ok(event),
    }
}
