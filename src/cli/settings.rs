//! Settings take effect as flags: what the file or the environment says, and the command line doesn't, goes in front of it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches};

use super::args::EngineArgs;
use super::outcome::tell;
use super::{Cli, Command, command, themes};
use crate::config::paths::Paths;
use crate::config::settings::{SETTINGS, Setting};
use crate::config::{Config, Origin, Problem, Sources};
use crate::engine::prompt_cache::disk::tier;
use crate::sampling::Sampling;
use crate::ui::keys::{self, Change, Keymap};
use crate::ui::styles::theme::Themes;

/// The command line with the settings that apply to it.
pub struct Applied {
    /// The command line, with settings as if they were flags.
    pub cli: Cli,
    /// The settings, and what is wrong with them.
    pub config: Config,
    /// The keys.
    pub keymap: Keymap,
    /// The themes.
    pub themes: Themes,
}

/// The arguments of a command that say what a setting says.
pub fn flags(command: &clap::Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let long = arg.get_long().unwrap_or_default();
        SETTINGS
            .iter()
            .any(|setting| setting.flag == long || setting.short_for.is_some_and(|(flag, _)| flag == long))
    })
}

impl Applied {
    /// Reads the settings, and the command line once more with them; `matches` are those of the arguments alone.
    pub fn read(arguments: &[OsString], matches: &ArgMatches, paths: &Paths) -> anyhow::Result<Self> {
        let set = std::env::vars_os().filter(|(_, text)| !text.is_empty());
        let names: Vec<String> = set.filter_map(|(name, _)| name.into_string().ok()).collect();
        Self::read_with(arguments, matches, paths, &names, &|name| {
            std::env::var(name).ok()
        })
    }

    /// The same, with environment variables of these names, looked up by `var`.
    fn read_with(
        arguments: &[OsString],
        matches: &ArgMatches,
        paths: &Paths,
        names: &[String],
        var: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let (name, matches) = match matches.subcommand() {
            Some((name, matches)) => (Some(name), matches),
            None => (None, matches),
        };
        let given = given(matches);
        let mut config = Config::read(&Sources {
            file: &paths.config_file(),
            var,
            variables: names,
            flags: &given,
            actions: &keys::actions(),
            check: &check,
        });
        let keymap = keymap(&mut config);
        let looks = matches!(name, None | Some("config"));
        let themes = if looks {
            themes::read(paths, &mut config)
        } else {
            Themes::default()
        };
        let (front, rest) = arguments.split_at(arguments.len().min(1 + usize::from(name.is_some())));
        let said = front.iter().cloned().chain(said(&config, name));
        let with = command().try_get_matches_from(said.chain(rest.iter().cloned()));
        let matches = with.or_else(|error| {
            // Each was taken alone; that they can't be had together must not stop the program.
            let why = reason(&error);
            let what = format!("the settings can't be had together, none counts: {why}");
            config.problems.push(Problem::anywhere(what));
            command().try_get_matches_from(arguments)
        })?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        cli.mark(&config);
        cli.make_room(&mut config);
        config.sort_problems();
        Ok(Self {
            cli,
            config,
            keymap,
            themes,
        })
    }

    /// Makes the folder for prompts where the settings name one. Reading them makes nothing: that is done again whenever the
    /// file changes.
    pub fn make_folder(&mut self, paths: &Paths) {
        self.cli.make_folder(&mut self.config, paths);
        self.config.sort_problems();
    }

    /// Whether the command may keep prompts in files.
    pub fn keeps_prompts(&self) -> bool {
        use Command as C;
        matches!(
            self.cli.command,
            None | Some(C::Run(_) | C::Replay(_) | C::Bench(_))
        )
    }

    /// Whether the command uses settings.
    pub fn counts(&self) -> bool {
        use Command as C;
        matches!(
            self.cli.command,
            None | Some(C::Run(_) | C::Replay(_) | C::Bench(_) | C::Config(_))
        )
    }

    /// What is wrong with the settings, short enough for a line of the screen: the file by its name alone.
    pub fn notes(&self, paths: &Paths) -> Vec<String> {
        let folder = format!("{}/", paths.config.display());
        let told = self.config.told().into_iter();
        told.map(|problem| problem.replace(&folder, "")).collect()
    }

    /// Tells on standard error what is wrong with the settings.
    pub fn warn(&self) {
        for problem in self.config.told() {
            tracing::warn!(%problem, "settings");
            tell(format_args!("warning: {problem}"));
        }
    }
}

impl Cli {
    /// Notes which wishes are the settings', where that makes a difference.
    fn mark(&mut self, config: &Config) {
        let set = |key| config.entry(key).is_some_and(|entry| entry.said().is_some());
        let answer = match &mut self.command {
            None => Some(&mut self.chat.answer),
            Some(Command::Run(args)) => Some(&mut args.answer),
            Some(_) => None,
        };
        if let Some(answer) = answer {
            answer.thinking_by_setting = set("thinking");
        }
        if let Some(engine) = self.engine() {
            let set = SETTINGS.iter().filter(|setting| set(setting.key));
            engine.by_setting = set.map(|setting| setting.flag).collect();
        }
    }

    /// Leaves the settings' token budget out where it is too small for the rows that may run, and tells so: settings never
    /// stop the program, as flags do.
    fn make_room(&mut self, config: &mut Config) {
        const BUDGET: &str = "engine.mixed_token_budget";
        if config.entry(BUDGET).is_none_or(|entry| entry.said().is_none()) {
            return;
        }
        if let Some(engine) = self.engine()
            && let Some(why) = engine.budget_too_small()
        {
            engine.mixed_token_budget = None;
            config.refuse(BUDGET, &why);
        }
    }

    /// Leaves the settings' folder for prompts out where there is none and none can be made, and tells so.
    fn make_folder(&mut self, config: &mut Config, paths: &Paths) {
        const FOLDER: &str = "prompt_cache.folder";
        if config.entry(FOLDER).is_none_or(|entry| entry.said().is_none()) {
            return;
        }
        if let Some(engine) = self.engine()
            && let Some((folder, _)) = engine.prompt_cache_files(paths.prompts(), false)
            && let Err(error) = tier::make_folder(&folder)
        {
            engine.prompt_cache_dir = None;
            let folder = folder.display();
            config.refuse(
                FOLDER,
                &format!("there is no folder {folder}, and it can't be made: {error}"),
            );
        }
    }

    /// How the command's engine is to be set up.
    fn engine(&mut self) -> Option<&mut EngineArgs> {
        match &mut self.command {
            None => Some(&mut self.engine),
            Some(Command::Run(args)) => Some(&mut args.engine),
            Some(Command::Replay(args)) => Some(&mut args.engine),
            Some(Command::Bench(args)) => Some(&mut args.engine),
            Some(_) => None,
        }
    }
}

/// The settings that flags on the command line say: the flag and its text.
fn given(matches: &ArgMatches) -> BTreeMap<&'static str, (String, String)> {
    let raw = |flag: &str| {
        let id = flag.replace('-', "_");
        matches.try_contains_id(&id).ok()?;
        let said = matches.value_source(&id) == Some(ValueSource::CommandLine);
        let raw = matches.get_raw(&id).filter(|_| said)?;
        Some(
            raw.map(|text| text.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" "),
        )
    };
    let mut given = BTreeMap::new();
    for setting in SETTINGS {
        if let Some(text) = raw(setting.flag) {
            given.insert(setting.key, (setting.flag.to_owned(), text));
        }
        if let Some((flag, says)) = setting.short_for
            && raw(flag).is_some()
        {
            given.insert(setting.key, (flag.to_owned(), says.to_owned()));
        }
    }
    given
}

/// What file and environment say, as flags of a subcommand.
fn said(config: &Config, name: Option<&str>) -> Vec<OsString> {
    let command = Cli::command();
    let command = match name {
        Some(name) => command.find_subcommand(name),
        None => Some(&command),
    };
    let taken: Vec<&str> = command
        .into_iter()
        .flat_map(flags)
        .filter_map(Arg::get_long)
        .collect();
    let stands = |key| {
        let entry = config.entry(key);
        entry.is_some_and(|entry| matches!(entry.origin, Origin::Flag(_)) || entry.said().is_some())
    };
    config
        .entries
        .iter()
        .filter(|entry| taken.contains(&entry.setting.flag))
        .filter(|entry| entry.setting.needs.is_none_or(|(key, _)| stands(key)))
        .filter_map(|entry| Some(format!("--{}={}", entry.setting.flag, entry.said()?).into()))
        .collect()
}

/// Whether the command line takes what a setting would say.
fn check(setting: &Setting, text: &str) -> Result<(), String> {
    let mut line = vec!["mlx-chat".to_owned(), format!("--{}={text}", setting.flag)];
    let needed = setting
        .needs
        .and_then(|(key, says)| Some((Setting::named(key)?, says)));
    line.extend(needed.map(|(setting, says)| format!("--{}={says}", setting.flag)));
    let parsed = Cli::command()
        .try_get_matches_from(line)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => match cli.chat.answer.sampling(Sampling::default()) {
            Ok(_) => Ok(()),
            Err(fault) => Err(fault.message),
        },
        Err(error) => {
            let why = reason(&error);
            let found = if why.starts_with("expected ") {
                format!(", found {text}")
            } else {
                String::new()
            };
            Err(why + &found)
        }
    }
}

/// Why the command line doesn't take a value, without the rest of its message.
fn reason(error: &clap::Error) -> String {
    if let Some(source) = std::error::Error::source(error) {
        return source.to_string();
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// The keys that the settings ask for; what is wrong with them goes to the other problems.
fn keymap(config: &mut Config) -> Keymap {
    let change = |entry: &crate::config::KeyEntry| Change {
        action: entry.action.clone(),
        keys: entry.keys.clone(),
    };
    let changes: Vec<Change> = config.keys.iter().map(change).collect();
    let (keymap, troubles) = Keymap::with(&changes);
    for trouble in troubles {
        if let Some(entry) = config.keys.get(trouble.change) {
            let what = format!("keys.{}: {}", entry.action, trouble.message);
            config.problems.push(Problem::at(entry.origin.clone(), what));
        }
    }
    keymap
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str], file: &str) -> Applied {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::from_env(|_| Some(folder.path().into())).unwrap();
        std::fs::create_dir_all(&paths.config).unwrap();
        std::fs::write(paths.config_file(), file).unwrap();
        let arguments: Vec<OsString> = line.iter().map(Into::into).collect();
        let matches = command().try_get_matches_from(&arguments).unwrap();
        Applied::read_with(&arguments, &matches, &paths, &[], &|_| None).unwrap()
    }

    /// A value for each setting that is not its default.
    const ANOTHER: &str = "
        model = 'm'
        system = 'brief'
        thinking = true
        panes = 3
        [sampling]
        temperature = 0.5
        top_p = 0.25
        top_k = 7
        min_p = 0.125
        seed = 11
        max_tokens = 99
        [engine]
        max_batch = 3
        max_queued = 5
        prefill_chunk = 17
        prefill_batch_tokens = 19
        mixed_prefill = true
        mixed_token_budget = 23
        kv_budget = '1M'
        kv_bits = 4
        kv_group_size = 32
        threads = 2
        [prompt_cache]
        memory = '2M'
        disk = '3M'
        folder = '/tmp'
        [interface]
        color = '16'
        ascii = true
        bell = false
        bell_when_done = true
        thoughts = true
        theme = 'light'
        mouse = 'full'
        copy_on_select = false
        screen_reader = true
        vim = true
        ambiguous_width = 'wide'
    ";

    #[test]
    fn every_setting_of_the_file_takes_effect_as_its_flag_does() {
        let applied = read(&["mlx-chat"], ANOTHER);
        assert_eq!(applied.config.told(), [""; 0]);
        assert!(
            applied.config.entries.iter().all(|entry| entry.said().is_some()),
            "another value for each"
        );
        let words = "-m m --system brief --thinking on --panes 3 --temperature 0.5 --top-p 0.25 --top-k 7 --min-p 0.125 \
            --seed 11 --max-tokens 99 --max-batch 3 --max-queued 5 --prefill-chunk 17 --prefill-batch-tokens 19 \
            --mixed-prefill --mixed-token-budget 23 --kv-budget 1M --kv-bits 4 --kv-group-size 32 --threads 2 \
            --prompt-cache 2M --prompt-cache-disk 3M --prompt-cache-dir /tmp --color 16 --ascii --bell off \
            --bell-when-done on --thoughts on --theme light --mouse full --copy-on-select off --screen-reader --vim \
            --ambiguous-width wide";
        let words: Vec<&str> = std::iter::once("mlx-chat")
            .chain(words.split_whitespace())
            .collect();
        let mut flags = read(&words, "");
        flags.cli.mark(&applied.config);
        assert_eq!(format!("{:?}", applied.cli), format!("{:?}", flags.cli));
    }

    #[test]
    fn the_defaults_that_are_written_down_are_those_of_the_flags() {
        let written = read(&["mlx-chat"], crate::config::DEFAULTS);
        assert_eq!(written.config.told(), [""; 0]);
        let mut plain = read(&["mlx-chat"], "");
        plain.cli.mark(&written.config);
        assert_eq!(format!("{:?}", written.cli), format!("{:?}", plain.cli));
        assert_eq!(written.keymap, Keymap::default());
    }

    #[test]
    fn flags_come_before_the_file() {
        let line = ["mlx-chat", "run", "--max-batch", "6", "--mixed-prefill=off", "hi"];
        let applied = read(&line, ANOTHER);
        let Some(Command::Run(args)) = applied.cli.command else {
            panic!()
        };
        assert_eq!((args.engine.max_batch, args.engine.mixed_prefill), (6, false));
        assert_eq!(
            (args.engine.max_queued, args.model.model.as_deref()),
            (5, Some("m"))
        );
        assert_eq!(args.prompt.as_deref(), Some("hi"));
        let applied = read(&["mlx-chat", "--no-color"], ANOTHER);
        assert!(applied.cli.chat.look.no_color);
    }

    #[test]
    fn what_another_setting_needs_counts_only_with_it() {
        let applied = read(
            &["mlx-chat"],
            "[engine]\nmixed_token_budget = 23\nkv_group_size = 32",
        );
        assert_eq!(applied.config.told(), [""; 0]);
        assert_eq!(
            (
                applied.cli.engine.mixed_token_budget,
                applied.cli.engine.kv_group_size
            ),
            (None, 64)
        );
        let applied = read(
            &["mlx-chat", "--mixed-prefill"],
            "[engine]\nmixed_token_budget = 23",
        );
        assert_eq!(applied.cli.engine.mixed_token_budget, Some(23));
    }

    #[test]
    fn a_budget_too_small_for_the_rows_that_may_run_is_told_with_its_line_and_does_not_count() {
        let line = ["mlx-chat", "--mixed-prefill", "--max-batch", "24"];
        let applied = read(&line, "[engine]\nmixed_token_budget = 23");
        assert_eq!(applied.cli.engine.mixed_token_budget, None);
        let told = applied.config.told();
        let [problem] = &told[..] else { panic!("{told:?}") };
        assert!(
            problem.contains(
                "config.toml:2: engine.mixed_token_budget: 23 tokens of a step leave prompts no room"
            ),
            "{problem}"
        );
        assert!(problem.ends_with("\"auto\" counts instead"), "{problem}");
        let entry = applied.config.entry("engine.mixed_token_budget").unwrap();
        assert_eq!((&entry.origin, entry.said()), (&Origin::Default, None));
    }

    #[test]
    fn what_is_out_of_range_is_told_with_its_line_and_does_not_count() {
        for (setting, value, why) in [
            ("max_tokens", "0", "expected a whole number from 1, found 0;"),
            ("temperature", "-1.0", "positive"),
            ("top_p", "1.5", "between 0 and 1"),
            (
                "top_k",
                "-3",
                "expected a whole number from 0 to 4294967295, found -3;",
            ),
            ("seed", "'x'", "whole number"),
        ] {
            let applied = read(&["mlx-chat"], &format!("[sampling]\n{setting} = {value}\n"));
            let told = applied.config.told();
            let [problem] = &told[..] else {
                panic!("{setting}: {told:?}")
            };
            let place = format!("config.toml:2: sampling.{setting}: ");
            assert!(problem.contains(&place) && problem.contains(why), "{problem}");
            assert!(problem.ends_with("\"auto\" counts instead"), "{problem}");
        }
        for (table, setting, value) in [
            ("engine", "kv_bits", "5"),
            ("engine", "kv_group_size", "7"),
            ("engine", "threads", "0"),
            ("engine", "kv_budget", "'much'"),
            ("prompt_cache", "memory", "'12Q'"),
            ("prompt_cache", "folder", "'relative'"),
            ("interface", "color", "'some'"),
            ("interface", "bell", "'loud'"),
        ] {
            let applied = read(&["mlx-chat"], &format!("[{table}]\n{setting} = {value}\n"));
            assert_eq!(applied.config.told().len(), 1, "{setting}");
            assert!(applied.config.told()[0].contains(&format!("config.toml:2: {table}.{setting}: ")));
        }
    }

    #[test]
    fn a_theme_is_read_beside_the_settings_and_what_is_wrong_in_it_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::from_env(|_| Some(folder.path().into())).unwrap();
        std::fs::create_dir_all(paths.config.join("themes")).unwrap();
        let mine = "text = '#aabbcc'\n[syntax]\nname = 'loud'\nkeyword = 3\n";
        std::fs::write(paths.config.join("themes/mine.toml"), mine).unwrap();
        let arguments = ["mlx-chat".into()];
        let matches = command().try_get_matches_from(&arguments).unwrap();
        let read = |file: &str| {
            std::fs::write(paths.config_file(), file).unwrap();
            Applied::read_with(&arguments, &matches, &paths, &[], &|_| None).unwrap()
        };
        let applied = read("[interface]\ntheme = 'mine'\n");
        let problems = applied.notes(&paths);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("themes/mine.toml:3: syntax.name: expected a color"));
        assert!(problems[1].starts_with("themes/mine.toml:4: syntax.keyword: expected a color"));
        let look = applied.cli.chat.look.look(applied.keymap, applied.themes);
        let mut right = crate::ui::styles::theme::Theme::default();
        right.set("text", "#aabbcc").unwrap();
        assert_eq!(
            (look.theme.as_str(), look.themes.get("mine", None)),
            ("mine", right)
        );
        std::fs::remove_file(paths.config.join("themes/mine.toml")).unwrap();
        let applied = read("[interface]\ntheme = 'mine'\n");
        let [problem] = &applied.notes(&paths)[..] else {
            panic!()
        };
        assert!(
            problem.starts_with("config.toml:2: interface.theme: there is no theme \"mine\""),
            "{problem}"
        );
        assert!(problem.ends_with("; \"terminal\" counts instead"), "{problem}");
        assert_eq!(applied.cli.chat.look.theme, "terminal");
    }

    #[test]
    fn a_folder_for_prompts_that_can_not_be_made_is_told_with_its_line_and_does_not_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let settings = format!("[prompt_cache]\nfolder = '{}/x'\n", file.path().display());
        let paths = Paths::from_env(|_| Some("/nowhere".into())).unwrap();
        let mut applied = read(&["mlx-chat"], &settings);
        assert!(applied.config.told().is_empty() && applied.cli.engine.prompt_cache_dir.is_some());
        applied.make_folder(&paths);
        assert_eq!(applied.cli.engine.prompt_cache_dir, None);
        let told = applied.config.told();
        let [problem] = &told[..] else { panic!("{told:?}") };
        assert!(
            problem.contains("config.toml:2: prompt_cache.folder: there is no folder /"),
            "{problem}"
        );
        assert!(
            problem.contains("it can't be made: ") && problem.ends_with("\"auto\" counts instead"),
            "{problem}"
        );
        let mut applied = read(&["mlx-chat", "--prompt-cache", "off"], &settings);
        applied.make_folder(&paths);
        assert_eq!(applied.config.told(), [""; 0], "nothing goes there");
    }

    #[test]
    fn what_is_wrong_in_the_file_is_told_in_the_order_of_its_lines() {
        let file = "panes = 0\n[keys]\nnew_pane = ['ctrl-nn']\n[interface]\ntheme = 'none'\nvim =\n[engine]\nfoo = 1\n";
        let applied = read(&["mlx-chat"], file);
        let line = |problem: &String| {
            problem
                .split_once("config.toml:")?
                .1
                .split_once(':')?
                .0
                .parse()
                .ok()
        };
        let lines: Vec<usize> = applied.config.told().iter().filter_map(line).collect();
        assert_eq!(lines, [1, 3, 5, 6, 8], "{:?}", applied.config.told());
        assert!(
            applied.config.told()[1].ends_with("; \"f4\" counts instead"),
            "{:?}",
            applied.config.told()
        );
    }

    #[test]
    fn commands_without_a_settings_flag_are_left_alone() {
        for line in [
            &["mlx-chat", "doctor"][..],
            &["mlx-chat", "models", "list"],
            &["mlx-chat", "man"],
        ] {
            assert!(!read(line, ANOTHER).counts());
        }
    }
}
