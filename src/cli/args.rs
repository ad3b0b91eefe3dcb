//! Flags that several commands share.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::kv_config;
use super::outcome::{Fault, usage};
use crate::cache::{DEFAULT_GROUP_SIZE, KvQuantization, KvScheme, KvSchemes};
use crate::engine::EngineOptions;
use crate::engine::options::{MixedPrefill, PromptCacheLimit};
use crate::sampling::Sampling;
use crate::size;

/// Which model.
#[derive(Debug, Clone, Args)]
pub struct ModelArg {
    /// The model: a name that `mlx-chat models list` shows, a .gguf file, a folder, or a repository of Hugging Face,
    /// `owner/name[@REVISION][:QUANTIZATION]` [default: the one that the list calls default]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Use what is on this machine, and open no network connection
    #[arg(long)]
    pub offline: bool,
}

/// The device that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceArg {
    /// The processor.
    Cpu,
    /// The graphics processor.
    Gpu,
}

/// How the engine batches.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// The most answers that are made at once
    #[arg(long, value_name = "ROWS", default_value_t = 8, value_parser = at_least_one, allow_negative_numbers = true)]
    pub max_batch: usize,

    /// The most prompts that wait for their turn; more are refused
    #[arg(long, value_name = "REQUESTS", default_value_t = 64, value_parser = at_least_one, allow_negative_numbers = true)]
    pub max_queued: usize,

    /// The most tokens of one prompt that are read before running answers get their next token [default: 2048, less on a slow device]
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one, allow_negative_numbers = true)]
    pub prefill_chunk: Option<usize>,

    /// The most tokens of all prompts that are read before running answers get their next token [default: 2048, less on a slow device]
    #[arg(long, value_name = "TOKENS", value_parser = at_least_one, allow_negative_numbers = true)]
    pub prefill_batch_tokens: Option<usize>,

    /// Read prompts in pieces along with the steps of running answers, instead of letting these wait for whole chunks
    #[arg(long, value_name = "ON|OFF", num_args = 0..=1, require_equals = true, default_missing_value = "on", default_value = "off", value_parser = parse_switch, action = ArgAction::Set)]
    pub mixed_prefill: bool,

    /// The most tokens of a step with --mixed-prefill, those of prompts and of answers together, at least `--max-batch` [default: 256, on a
    /// slow device 7 more than `--max-batch`]
    #[arg(long, value_name = "TOKENS", requires = "mixed_prefill", value_parser = at_least_one, allow_negative_numbers = true)]
    pub mixed_token_budget: Option<usize>,

    /// The most memory for keys and values (what running requests have read and written): bytes, or a number with K, M or G
    /// (powers of 1024) [default: half of what the weights leave]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    pub kv_budget: Option<u64>,

    /// The most memory for prompts and answers that may be gone on with, so that they aren't read again, or `off` [default: a quarter of the KV budget]
    #[arg(long, value_name = "SIZE|off", value_parser = parse_prompt_cache, allow_negative_numbers = true)]
    pub prompt_cache: Option<PromptCacheLimit>,

    /// Keep what the prompt cache in memory lets go of, and all of it at exit, in files in this folder, or `off`
    /// [default: `prompts` in the cache folder, in the terminal; elsewhere off, unless a size is given]
    #[arg(long, value_name = "DIR|off", value_parser = parse_prompt_cache_dir)]
    pub prompt_cache_dir: Option<PromptCacheDir>,

    /// The most bytes of these files, of all models together, or `off` [default: 4G]
    #[arg(long, value_name = "SIZE|off", value_parser = parse_prompt_cache, allow_negative_numbers = true)]
    pub prompt_cache_disk: Option<PromptCacheLimit>,

    /// Hold keys and values in so many bits, 4 or 8, in every layer that --kv-config doesn't name [default: in full precision]
    #[arg(long, value_name = "BITS", value_parser = parse_kv_bits, allow_negative_numbers = true)]
    pub kv_bits: Option<usize>,

    /// Elements that share a scale with --kv-bits: 32, 64 or 128, a divisor of a head's features
    #[arg(long, value_name = "ELEMENTS", requires = "kv_bits", value_parser = parse_kv_group_size, allow_negative_numbers = true, default_value_t = DEFAULT_GROUP_SIZE)]
    pub kv_group_size: usize,

    /// A file that says how layers hold keys and values, JSON or TOML: `{"layers": {"0-3": "full", "4": {"bits": 4, "group_size": 64}}}`
    #[arg(long, value_name = "FILE")]
    pub kv_config: Option<PathBuf>,

    /// Read each step's tokens before the next step is built; slower
    #[arg(long)]
    pub no_pipeline: bool,

    /// Evaluate forward, head and sampling one by one, so that each shows its own time; slower
    #[arg(long)]
    pub attribution: bool,

    /// The device that computes [default: gpu where MLX has one, else cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceArg>,

    /// Threads that compute on the CPU; more than there are cores make it slower [default: all cores]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// Flags that the settings say, and not this call. What is set counts where there is something to count for; what is asked for
    /// now must be possible.
    #[arg(skip)]
    pub by_setting: Vec<&'static str>,
}

/// Where the prompt cache goes on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptCacheDir {
    /// Nowhere.
    Off,
    /// To this folder.
    Folder(PathBuf),
}

/// Bytes of the prompt cache on disk where nothing else is said.
const DISK_LIMIT: u64 = 4 << 30;

impl EngineArgs {
    /// How the model's layers are to hold keys and values.
    pub fn kv_schemes(&self) -> Result<KvSchemes, Fault> {
        let uniform = match self.kv_bits {
            None => KvScheme::Full,
            Some(bits) => KvQuantization::new(bits, self.kv_group_size)
                .map(KvScheme::Quantized)
                .map_err(|error| usage(error.to_string()))?,
        };
        let layers = match &self.kv_config {
            None => BTreeMap::new(),
            Some(path) => kv_config::read(path)
                .map_err(|message| usage(format!("--kv-config {}: {message}", path.display())))?,
        };
        Ok(KvSchemes { uniform, layers })
    }

    /// The folder of the prompt cache's files and the most bytes of them; nothing where there are to be none. Where no flag
    /// asks for them, they are in `folder` if `wanted`.
    pub fn prompt_cache_files(&self, folder: PathBuf, wanted: bool) -> Option<(PathBuf, u64)> {
        let limit = match self.prompt_cache_disk {
            Some(PromptCacheLimit::Off) => return None,
            Some(PromptCacheLimit::Bytes(bytes)) => bytes,
            Some(PromptCacheLimit::Default) | None => DISK_LIMIT,
        };
        let folder = match &self.prompt_cache_dir {
            Some(PromptCacheDir::Off) => return None,
            Some(PromptCacheDir::Folder(folder)) => folder.clone(),
            None if wanted || self.prompt_cache_disk.is_some() => folder,
            None => return None,
        };
        (self.prompt_cache != Some(PromptCacheLimit::Off)).then_some((folder, limit))
    }

    /// Why prompts could never ride along beside as many rows as may run; nothing where they can.
    pub fn budget_too_small(&self) -> Option<String> {
        let budget = self.mixed_token_budget.filter(|_| self.mixed_prefill)?;
        (budget < self.max_batch).then(|| {
            format!(
                "{budget} tokens of a step leave prompts no room beside the rows that may run, {} (--max-batch): it must be at \
                 least as many",
                self.max_batch
            )
        })
    }

    /// Whether the settings say this flag, and not this call.
    pub fn is_set(&self, flag: &str) -> bool {
        self.by_setting.contains(&flag)
    }

    /// The folder that this call names for the prompt cache.
    pub fn prompt_cache_folder(&self) -> Option<&PromptCacheDir> {
        self.prompt_cache_dir
            .as_ref()
            .filter(|_| !self.is_set("prompt-cache-dir"))
    }

    /// A flag of this call that asks for a prompt cache, without dashes at its front.
    pub fn prompt_cache_flag(&self) -> Option<&'static str> {
        let limited =
            |limit: Option<PromptCacheLimit>| limit.is_some_and(|limit| limit != PromptCacheLimit::Off);
        let asked = [
            ("prompt-cache", limited(self.prompt_cache)),
            ("prompt-cache-disk", limited(self.prompt_cache_disk)),
            ("prompt-cache-dir", self.prompt_cache_dir.is_some()),
        ];
        let said = asked.into_iter().find(|(flag, asks)| *asks && !self.is_set(flag));
        said.map(|(flag, _)| flag)
    }

    /// Refuses flags that can't be had together.
    pub fn check(&self) -> Result<(), Fault> {
        if let Some(why) = self.budget_too_small() {
            return Err(usage(format!("--mixed-token-budget: {why}")));
        }
        let said = |flag| !self.is_set(flag);
        let in_memory = self.prompt_cache != Some(PromptCacheLimit::Off) || !said("prompt-cache");
        let on_disk = self.prompt_cache_disk.filter(|_| said("prompt-cache-disk"));
        let on_disk = on_disk.map(|limit| limit != PromptCacheLimit::Off);
        let folder = self
            .prompt_cache_folder()
            .map(|folder| *folder != PromptCacheDir::Off);
        let [cancels, cancelled] = match (in_memory, on_disk, folder) {
            (false, Some(true), _) => ["--prompt-cache off", "--prompt-cache-disk"],
            (false, _, Some(true)) => ["--prompt-cache off", "--prompt-cache-dir"],
            (_, Some(false), Some(true)) => ["--prompt-cache-disk off", "--prompt-cache-dir"],
            (_, Some(true), Some(false)) => ["--prompt-cache-dir off", "--prompt-cache-disk"],
            _ => return Ok(()),
        };
        Err(usage(format!(
            "{cancels} keeps nothing that {cancelled} could be for: leave one of them out"
        )))
    }

    /// The engine's settings, but for the prompt cache on disk.
    pub fn options(&self) -> EngineOptions {
        EngineOptions {
            max_batch: self.max_batch,
            max_queued: self.max_queued,
            prefill_chunk: self.prefill_chunk,
            prefill_batch_tokens: self.prefill_batch_tokens,
            mixed_prefill: match self.mixed_token_budget {
                _ if !self.mixed_prefill => MixedPrefill::Off,
                Some(tokens) => MixedPrefill::Tokens(tokens),
                None => MixedPrefill::Default,
            },
            kv_budget: self.kv_budget,
            prompt_cache: self.prompt_cache.unwrap_or(PromptCacheLimit::Default),
            pipeline: !self.no_pipeline,
            attribution: self.attribution,
            ..EngineOptions::default()
        }
    }
}

/// How answers are made.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Answers")]
pub struct AnswerArgs {
    /// What the model is told before everything else
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,

    /// Whether the model thinks before it answers, where its chat template has a switch [default: as the template says]
    #[arg(long, value_name = "ON|OFF", value_parser = parse_switch)]
    pub thinking: Option<bool>,

    /// Whether that is from the settings, and not of this call: it counts where the model has the switch.
    #[arg(skip)]
    pub thinking_by_setting: bool,

    /// 0 always takes the likeliest token; higher is more varied [default: what the model's makers recommend, else 0]
    #[arg(long, value_name = "T", value_parser = parse_number, allow_negative_numbers = true)]
    pub temperature: Option<f32>,

    /// Keep the most likely tokens up to this probability in all [default: as recommended, else 1]
    #[arg(long, value_name = "P", value_parser = parse_number, allow_negative_numbers = true)]
    pub top_p: Option<f32>,

    /// Keep this many most likely tokens; 0 keeps all [default: as recommended, else 0]
    #[arg(long, value_name = "K", value_parser = parse_top_k, allow_negative_numbers = true)]
    pub top_k: Option<u32>,

    /// Keep tokens at least this fraction as likely as the most likely one [default: as recommended, else 0]
    #[arg(long, value_name = "P", value_parser = parse_number, allow_negative_numbers = true)]
    pub min_p: Option<f32>,

    /// Makes answers repeatable: the same number draws the same tokens
    #[arg(long, value_name = "N", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,

    /// The most tokens of an answer [default: 1024, less where the context has no room for as many]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
}

impl AnswerArgs {
    /// The sampler's settings, checked: what is not said is as `recommended`.
    pub fn sampling(&self, recommended: Sampling) -> Result<Sampling, Fault> {
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(recommended.temperature),
            top_p: self.top_p.unwrap_or(recommended.top_p),
            top_k: self.top_k.unwrap_or(recommended.top_k),
            min_p: self.min_p.unwrap_or(recommended.min_p),
            seed: self.seed,
        };
        sampling.check().map_err(|error| usage(error.to_string()))?;
        if sampling.temperature > Sampling::HOTTEST {
            return Err(usage(format!(
                "--temperature is {}, but above {hottest} all tokens are about as likely: 0 to {hottest}",
                sampling.temperature,
                hottest = Sampling::HOTTEST
            )));
        }
        Ok(sampling)
    }
}

/// Parses `on` or `off`.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

/// Parses a count that must not be 0.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "expected a whole number from 1".into())
}

fn parse_top_k(text: &str) -> Result<u32, String> {
    let parsed = text.parse();
    parsed.map_err(|_| format!("expected a whole number from 0 to {}", u32::MAX))
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = text.parse();
    parsed.map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

/// Parses a number; one that a float32 can't hold is none.
fn parse_number(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if number.is_infinite() => Err("it is more than a float32 can hold".into()),
        Ok(number) => Ok(number),
        Err(_) => Err("expected a number".into()),
    }
}

fn parse_kv_bits(text: &str) -> Result<usize, String> {
    let bits = text.parse().map_err(|_| "expected 4 or 8")?;
    let checked = KvQuantization::new(bits, DEFAULT_GROUP_SIZE).map_err(|error| error.to_string())?;
    Ok(checked.bits)
}

fn parse_kv_group_size(text: &str) -> Result<usize, String> {
    let group_size = text.parse().map_err(|_| "expected 32, 64 or 128")?;
    let checked = KvQuantization::new(8, group_size).map_err(|error| error.to_string())?;
    Ok(checked.group_size)
}

/// The most threads that can be asked for: past what a machine can start, the system ends the program.
const MOST_THREADS: usize = 1024;

/// Parses a number of threads.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    let count = at_least_one(text).ok().filter(|count| *count <= MOST_THREADS);
    count.ok_or_else(|| format!("expected a whole number from 1 to {MOST_THREADS}"))
}

fn parse_prompt_cache(text: &str) -> Result<PromptCacheLimit, String> {
    match text {
        "off" => Ok(PromptCacheLimit::Off),
        _ => size::parse(text)
            .map(PromptCacheLimit::Bytes)
            .map_err(|message| format!("{message}, or off")),
    }
}

fn parse_prompt_cache_dir(text: &str) -> Result<PromptCacheDir, String> {
    match text {
        "" => Err("it must name a folder, or be off".into()),
        "off" => Ok(PromptCacheDir::Off),
        folder => Ok(PromptCacheDir::Folder(folder.into())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        engine: EngineArgs,
    }

    #[test]
    fn prompts_are_kept_on_disk_where_that_is_usual_or_asked_for() {
        let files = |flags: &str, wanted| {
            let flags = Flags::parse_from(["mlx-chat"].into_iter().chain(flags.split_whitespace()));
            flags.engine.prompt_cache_files("usual".into(), wanted)
        };
        let usual = |limit| Some((PathBuf::from("usual"), limit));
        assert_eq!(files("", true), usual(DISK_LIMIT));
        assert_eq!(files("", false), None);
        assert_eq!(files("--prompt-cache-disk 1K", false), usual(1024));
        assert_eq!(
            files("--prompt-cache-dir here", false),
            Some(("here".into(), DISK_LIMIT))
        );
        assert_eq!(
            files("--prompt-cache-dir here --prompt-cache-disk 1K", true),
            Some(("here".into(), 1024))
        );
        for off in [
            "--prompt-cache off",
            "--prompt-cache-dir off --prompt-cache-disk 1K",
            "--prompt-cache-dir here --prompt-cache-disk off",
        ] {
            assert_eq!(files(off, true), None, "{off}");
        }
    }

    #[test]
    fn flags_that_cancel_each_other_are_refused_where_the_call_says_both() {
        let checked = |flags: &str, by_setting: &[&'static str]| {
            let flags = Flags::parse_from(["mlx-chat"].into_iter().chain(flags.split_whitespace()));
            let engine = EngineArgs {
                by_setting: by_setting.to_vec(),
                ..flags.engine
            };
            engine.check().map_err(|fault| fault.message)
        };
        for (flags, told) in [
            (
                "--prompt-cache off --prompt-cache-disk 1K",
                "--prompt-cache off keeps nothing that --prompt-cache-disk",
            ),
            (
                "--prompt-cache off --prompt-cache-dir here",
                "--prompt-cache off keeps nothing that --prompt-cache-dir",
            ),
            (
                "--prompt-cache-disk off --prompt-cache-dir here",
                "--prompt-cache-disk off keeps nothing",
            ),
            (
                "--prompt-cache-disk 1K --prompt-cache-dir off",
                "--prompt-cache-dir off keeps nothing",
            ),
        ] {
            let refused = checked(flags, &[]).unwrap_err();
            assert!(refused.starts_with(told), "{refused}");
            let both = flags
                .split_whitespace()
                .filter_map(|flag| flag.strip_prefix("--"));
            for set in ["prompt-cache", "prompt-cache-disk", "prompt-cache-dir"] {
                let one_is_set = both.clone().any(|flag| flag == set);
                assert_eq!(checked(flags, &[set]).is_ok(), one_is_set, "{flags}, {set} set");
            }
        }
        for flags in [
            "",
            "--prompt-cache off --prompt-cache-disk off --prompt-cache-dir off",
            "--prompt-cache 1K --prompt-cache-disk 1K --prompt-cache-dir here",
        ] {
            assert_eq!(checked(flags, &[]), Ok(()), "{flags}");
        }
    }

    #[test]
    fn a_step_has_room_for_a_prompt_beside_all_rows_that_may_run() {
        let checked = |flags: &str| {
            let flags = Flags::parse_from(["mlx-chat"].into_iter().chain(flags.split_whitespace()));
            flags.engine.check().map_err(|fault| fault.message)
        };
        let refused = checked("--mixed-prefill --mixed-token-budget 7").unwrap_err();
        assert!(refused.starts_with("--mixed-token-budget: 7 tokens"), "{refused}");
        assert!(refused.contains("may run, 8 (--max-batch)"), "{refused}");
        assert_eq!(checked("--mixed-prefill --mixed-token-budget 8"), Ok(()));
        assert_eq!(
            checked("--mixed-prefill --mixed-token-budget 7 --max-batch 7"),
            Ok(())
        );
    }

    #[test]
    fn numbers_are_those_of_a_float32() {
        assert_eq!(parse_number("-0.5"), Ok(-0.5));
        assert!(parse_number("nan").unwrap().is_nan(), "refused with its range");
        assert!(parse_number("1e300").unwrap_err().contains("float32"));
        assert!(parse_number("warm").is_err());
    }

    #[test]
    fn the_prompt_cache_can_be_off() {
        assert_eq!(parse_prompt_cache("off"), Ok(PromptCacheLimit::Off));
        assert_eq!(parse_prompt_cache("1K"), Ok(PromptCacheLimit::Bytes(1024)));
        assert!(parse_prompt_cache("on").unwrap_err().ends_with("or off"));
    }

    #[test]
    fn a_switch_is_on_or_off() {
        assert_eq!(parse_switch("on"), Ok(true));
        assert_eq!(parse_switch("off"), Ok(false));
        assert!(parse_switch("yes").is_err());
    }

    #[test]
    fn what_is_no_count_is_refused_with_what_is_expected() {
        assert_eq!((at_least_one("3"), parse_threads("1024")), (Ok(3), Ok(1024)));
        assert_eq!((parse_top_k("0"), parse_seed("0")), (Ok(0), Ok(0)));
        for wrong in ["x", "-3", "1.5", "", "99999999999999999999"] {
            let refused = [
                at_least_one(wrong).unwrap_err(),
                parse_threads(wrong).unwrap_err(),
                parse_top_k(wrong).unwrap_err(),
                parse_seed(wrong).unwrap_err(),
            ];
            assert!(
                refused
                    .iter()
                    .all(|why| why.starts_with("expected a whole number from "))
            );
        }
        assert!(at_least_one("0").is_err() && parse_threads("1025").is_err());
        assert_eq!(parse_kv_bits("x"), Err("expected 4 or 8".into()));
    }
}
