//! Slash commands: what a line that begins with `/` asks for. Pure; the view carries it out.

use std::path::PathBuf;

use crate::chat::{ExportFormat, Parameter, Settings, unquote};
use crate::near::nearest;
use crate::ui::keymap::{Action, BINDINGS, Group, Scope};
use crate::ui::keys;

/// A slash command.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// Its name, without the slash.
    pub name: &'static str,
    /// What it takes, in a word; empty: nothing.
    pub takes: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Words that it takes, where there are few.
    pub words: &'static [&'static str],
    does: Does,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Set(Parameter),
    Preset,
    SavePreset,
    Title,
    Export,
    ExportComparison,
    Import,
    New,
    Quit,
    Model,
}

const fn command(name: &'static str, takes: &'static str, help: &'static str, does: Does) -> Command {
    Command {
        name,
        takes,
        help,
        words: &[],
        does,
    }
}

/// The command that sets a setting.
const fn setting(parameter: Parameter, takes: &'static str) -> Command {
    command(parameter.name(), takes, parameter.help(), Does::Set(parameter))
}

/// All of them, in the order in which they are listed; actions can be asked for by their names, too.
pub static COMMANDS: &[Command] = &[
    setting(Parameter::System, "TEXT"),
    setting(Parameter::Temperature, "N"),
    setting(Parameter::TopP, "N"),
    setting(Parameter::TopK, "N"),
    setting(Parameter::MinP, "N"),
    setting(Parameter::Seed, "N"),
    setting(Parameter::MaxTokens, "N"),
    setting(Parameter::StopAt, "TEXT..."),
    Command {
        words: &["on", "off", "auto"],
        ..setting(Parameter::Thinking, "ON|OFF|AUTO")
    },
    command(
        "preset",
        "NAME",
        "make this pane as a preset has it: system prompt and sampling",
        Does::Preset,
    ),
    command(
        "save-preset",
        "NAME",
        "keep this pane's settings as a preset",
        Does::SavePreset,
    ),
    command(
        "new",
        "",
        "clear this pane for a new chat; the old is kept",
        Does::New,
    ),
    command("title", "TEXT", "what this conversation is called", Does::Title),
    command(
        "export",
        "FILE",
        "write this conversation to a .md, .json or .html file",
        Does::Export,
    ),
    command(
        "export-comparison",
        "FILE",
        "write the answers to the last prompt, of all panes that had it, to a file",
        Does::ExportComparison,
    ),
    command(
        "import",
        "FILE",
        "take in ChatGPT's conversations.json, or lists of messages",
        Does::Import,
    ),
    command("quit", "", "leave the program", Does::Quit),
    command(
        "model",
        "NAME",
        "go on with another model; no name: the list of models",
        Does::Model,
    ),
];

/// What a draft is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A prompt: this text.
    Text(&'a str),
    /// A command with its arguments.
    Command(&'a str),
}

/// What a line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// A setting is to be as in new panes.
    Reset(Parameter),
    /// These settings from the next prompt on, and what to say of them.
    Settings(Settings, String),
    /// Something to say.
    Tell(String),
    /// A new title.
    Title(String),
    /// Say the title.
    TellTitle,
    /// The preset of a name.
    Preset(String),
    /// The settings as a preset of a name.
    SavePreset(String),
    /// The conversation in a file.
    Export(PathBuf, ExportFormat),
    /// The comparison of answers in a file.
    ExportComparison(PathBuf, ExportFormat),
    /// The conversations of a file.
    Import(PathBuf),
    /// The end of the program.
    Quit,
    /// Another model, by its name.
    Model(String),
    /// An action.
    Act(Action),
}

/// Tells prompts from commands. Two slashes at the beginning are one in a prompt; a path isn't a command.
pub fn read(draft: &str) -> Line<'_> {
    let Some(rest) = draft.strip_prefix('/') else {
        return Line::Text(draft);
    };
    if rest.starts_with('/') {
        return Line::Text(rest);
    }
    let word = rest.split(char::is_whitespace).next().unwrap_or_default();
    if word.contains('/') {
        return Line::Text(draft);
    }
    Line::Command(draft)
}

/// The command of a name.
pub fn named(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// The actions that can be asked for by name, each with its name as a command and what it does.
pub fn actions() -> impl Iterator<Item = (Action, String, &'static str)> {
    let wanted = |action: &Action, group: Group, scope: Scope| {
        let edits = group == Group::Editing || matches!(action, Action::Send | Action::Newline);
        !edits && !scope.is_on_top() && scope != Scope::Reading
    };
    BINDINGS
        .iter()
        .filter(move |b| wanted(&b.action, b.group, b.scope))
        .filter_map(|b| {
            let what = b.help.split(" (also").next().unwrap_or_default();
            Some((b.action, keys::name(b.action)?.replace('_', "-"), what))
        })
}

/// What a command line asks for where these settings apply; or what is wrong with it.
pub fn parse(line: &str, settings: &Settings) -> Result<Asked, String> {
    let line = line.strip_prefix('/').unwrap_or(line);
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    if let Some(command) = named(name) {
        return run(command, argument, settings);
    }
    let wanted = name.replace('_', "-");
    if let Some((action, ..)) = actions().find(|(_, name, _)| *name == wanted) {
        if !argument.is_empty() {
            return Err(format!("/{name} takes nothing, found {:?}", shorten(argument)));
        }
        return Ok(Asked::Act(action));
    }
    Err(unknown(name))
}

fn unknown(name: &str) -> String {
    let send = "two slashes at the beginning send it as text";
    if name.is_empty() {
        return format!("a command's name is missing after the slash; {send}");
    }
    let names: Vec<String> = COMMANDS
        .iter()
        .map(|command| command.name.to_owned())
        .chain(actions().map(|(_, name, _)| name))
        .collect();
    let near = nearest(name, names.iter().map(String::as_str));
    let near = near.map_or(String::new(), |near| format!("is /{near} meant? "));
    format!("there is no command /{}; {near}{send}", shorten(name))
}

fn run(command: &Command, argument: &str, settings: &Settings) -> Result<Asked, String> {
    let name = command.name;
    let line = argument.lines().count() <= 1;
    if !line && !matches!(command.does, Does::Set(Parameter::System)) {
        return Err(format!(
            "/{name} takes one line; two slashes at the beginning send it as text"
        ));
    }
    if command.takes.is_empty() && !argument.is_empty() {
        return Err(format!("/{name} takes nothing, found {:?}", shorten(argument)));
    }
    let wants = |what: &str, example: &str| Err(format!("/{name} takes {what}, like /{name} {example}"));
    match (command.does, argument) {
        (Does::New, _) => Ok(Asked::Act(Action::NewConversation)),
        (Does::Quit, _) => Ok(Asked::Quit),
        (Does::Model, "") => Ok(Asked::Act(Action::Models)),
        (Does::Model, name) => Ok(Asked::Model(unquote(name))),
        (Does::Title, "") => Ok(Asked::TellTitle),
        (Does::Title, title) => match unquote(title) {
            title if title.trim().is_empty() => wants("a title", "\"On rivers\""),
            title => Ok(Asked::Title(title)),
        },
        (Does::Export, path) => {
            let (path, format) = file(name, path)?;
            Ok(Asked::Export(path, format))
        }
        (Does::ExportComparison, path) => {
            let (path, format) = file(name, path)?;
            Ok(Asked::ExportComparison(path, format))
        }
        (Does::Import, "") => wants("a file", "conversations.json"),
        (Does::Import, path) => Ok(Asked::Import(unquote(path).into())),
        (Does::Preset, "") => Ok(Asked::Act(Action::Presets)),
        (Does::Preset, preset) => Ok(Asked::Preset(unquote(preset))),
        (Does::SavePreset, "") => wants("a name", "brief"),
        (Does::SavePreset, preset) => Ok(Asked::SavePreset(unquote(preset))),
        (Does::Set(parameter), "") => Ok(Asked::Tell(value(parameter, settings))),
        (
            Does::Set(
                parameter @ (Parameter::Temperature | Parameter::TopP | Parameter::TopK | Parameter::MinP),
            ),
            "auto",
        ) => Ok(Asked::Reset(parameter)),
        (Does::Set(parameter), text) => {
            let mut new = settings.clone();
            let unquoted = unquote(text);
            let text = match parameter {
                Parameter::System => &unquoted,
                _ => text,
            };
            parameter
                .set(&mut new, text)
                .map_err(|why| match why.starts_with(name) {
                    true => format!("/{why}"),
                    false => format!("/{name}: {why}"),
                })?;
            let told = format!("{}, from the next prompt on", value(parameter, &new));
            Ok(Asked::Settings(new, told))
        }
    }
}

/// A file with the kind of document that its ending names.
fn file(name: &str, path: &str) -> Result<(PathBuf, ExportFormat), String> {
    let path = PathBuf::from(unquote(path));
    let format = ExportFormat::of_file(&path).ok_or_else(|| {
        let found = match shorten(&path.to_string_lossy()) {
            path if path.is_empty() => String::new(),
            path => format!("; found {path:?}"),
        };
        format!("/{name} takes a file that ends in .md, .json or .html, like /{name} talk.md{found}")
    })?;
    Ok((path, format))
}

/// A setting and its value, in words.
fn value(parameter: Parameter, settings: &Settings) -> String {
    let text = parameter.value(settings);
    match (parameter, text.as_str()) {
        (Parameter::System, "off") => "no system prompt".into(),
        (Parameter::System, text) => format!("system prompt: {}", crate::ui::pane::one_line(text)),
        (Parameter::Temperature, "0") => "temperature 0 (greedy)".into(),
        (Parameter::TopK, "0") => "top-k 0 (all)".into(),
        (Parameter::MaxTokens, "auto") => format!("max-tokens auto ({})", Settings::MAX_TOKENS),
        (Parameter::StopAt, "off") => "answers end by themselves".into(),
        (Parameter::StopAt, texts) => format!("answers end at {texts}"),
        (parameter, text) => format!("{} {text}", parameter.name()),
    }
}

fn shorten(text: &str) -> String {
    crate::ui::cells::shorten(&crate::ui::pane::one_line(text), 40, "...")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Settings {
        match parse(line, &Settings::default()) {
            Ok(Asked::Settings(settings, _)) => settings,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn wrong(line: &str) -> String {
        parse(line, &Settings::default()).unwrap_err()
    }

    #[test]
    fn what_begins_with_a_slash_is_a_command_unless_it_is_a_path_or_has_two() {
        assert_eq!(read("/system be brief"), Line::Command("/system be brief"));
        assert_eq!(read("//system be brief"), Line::Text("/system be brief"));
        assert_eq!(
            read("/etc/hosts holds what?"),
            Line::Text("/etc/hosts holds what?")
        );
        assert_eq!(read("/unknown"), Line::Command("/unknown"));
        assert_eq!(read("a /b"), Line::Text("a /b"));
        assert_eq!(read("/"), Line::Command("/"));
    }

    #[test]
    fn each_setting_is_set() {
        assert_eq!(settings("/system be\nbrief").system.as_deref(), Some("be\nbrief"));
        assert_eq!(settings("/system off").system, None);
        assert_eq!(settings("/temperature 0.7").sampling.temperature, 0.7);
        assert_eq!(settings("/top-p 0.9").sampling.top_p, 0.9);
        assert_eq!(settings("/top-k 40").sampling.top_k, 40);
        assert_eq!(settings("/min-p 0.1").sampling.min_p, 0.1);
        assert_eq!(settings("/seed 7").sampling.seed, Some(7));
        assert_eq!(settings("/seed auto").sampling.seed, None);
        assert_eq!(settings("/max-tokens 12").max_tokens, Some(12));
        assert_eq!(settings("/max-tokens auto").max_tokens, None);
        assert_eq!(settings("/thinking off").thinking, Some(false));
        assert_eq!(settings("/thinking auto").thinking, None);
        assert_eq!(settings("/stop-at END").stop, ["END"]);
        assert_eq!(settings("/stop-at off").stop, [""; 0]);
        assert_eq!(settings("/stop-at \"x\"").stop, ["x"]);
        assert_eq!(settings("/stop-at 'two words' \\\"").stop, ["two words", "\""]);
        assert_eq!(settings("/stop-at \"off\"").stop, ["off"]);
    }

    #[test]
    fn a_setting_without_a_value_tells_the_one_that_applies() {
        let told = |line: &str| match parse(line, &settings("/temperature 0.5")) {
            Ok(Asked::Tell(told)) => told,
            other => panic!("{other:?}"),
        };
        assert_eq!(told("/temperature"), "temperature 0.5");
        assert_eq!(told("/system"), "no system prompt");
        assert_eq!(told("/top-k"), "top-k 0 (all)");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, part) in [
            ("/temperature warm", "a number, like 0.7; found \"warm\""),
            (
                "/temperature -1",
                "temperature is -1, but must be 0 (greedy) or a positive number",
            ),
            ("/top-p 2", "between 0 and 1"),
            ("/top-k -1", "a number"),
            ("/max-tokens 0", "at least 1"),
            ("/thinking maybe", "on, off or auto, found \"maybe\""),
            ("/export talk.pdf", "like /export talk.md; found \"talk.pdf\""),
            ("/export", ".md, .json or .html"),
            ("/export-comparison a", "like /export-comparison talk.md"),
            ("/import", "takes a file, like /import conversations.json"),
            ("/save-preset", "takes a name"),
            ("/quit now", "takes nothing, found \"now\""),
            ("/zoom in", "takes nothing"),
            ("/seed 1\n2", "takes one line"),
            ("/stop-at \"x", "/stop-at: the quote \" isn't closed"),
            ("/temprature 1", "there is no command /temprature; "),
            ("/xyzzy", "two slashes at the beginning send it as text"),
            ("/", "name is missing"),
        ] {
            assert!(wrong(line).contains(part), "{line}: {}", wrong(line));
        }
    }

    #[test]
    fn a_name_that_is_nearly_right_is_guessed() {
        assert!(
            wrong("/temp 1").contains("is /temperature meant?"),
            "{}",
            wrong("/temp 1")
        );
    }

    #[test]
    fn actions_are_asked_for_by_their_names() {
        for name in ["/new-pane", "/new_pane"] {
            assert_eq!(parse(name, &Settings::default()), Ok(Asked::Act(Action::NewPane)));
        }
        assert_eq!(parse("/help", &Settings::default()), Ok(Asked::Act(Action::Help)));
        assert_eq!(
            parse("/settings", &Settings::default()),
            Ok(Asked::Act(Action::Settings))
        );
        assert_eq!(
            parse("/preset", &Settings::default()),
            Ok(Asked::Act(Action::Presets))
        );
        let names: Vec<String> = actions().map(|(_, name, _)| name).collect();
        assert!(
            COMMANDS
                .iter()
                .all(|command| !names.contains(&command.name.to_owned()))
        );
    }

    #[test]
    fn a_model_is_asked_for_by_its_name_and_the_list_without_one() {
        let asked = |line: &str| parse(line, &Settings::default());
        assert_eq!(asked("/model tiny 2"), Ok(Asked::Model("tiny 2".into())));
        assert_eq!(asked("/model"), Ok(Asked::Act(Action::Models)));
    }

    #[test]
    fn exports_go_by_the_files_ending() {
        for (file, format) in [
            ("a.md", ExportFormat::Markdown),
            ("b.JSON", ExportFormat::Json),
            ("c d.html", ExportFormat::Html),
        ] {
            for line in [format!("/export {file}"), format!("/export {file:?}")] {
                let asked = parse(&line, &Settings::default());
                assert_eq!(asked, Ok(Asked::Export(file.into(), format)));
            }
        }
    }
}
