//! Settings of the file and the environment, and the commands that tell of them.

use super::program::{Output, Program};

/// Answers without an end, so that a limit shows.
const SCRIPT: &str = "
tick_ms = 1

[[answer]]
match = 'long'
text = 'word '
endless = true
";

fn with_file(text: &str) -> Program {
    let program = Program::new();
    std::fs::create_dir_all(program.path("config/mlx-chat")).unwrap();
    program.file("config/mlx-chat/config.toml", text);
    program
}

/// Words that `run` answers with: a word and the space behind it are a token each.
fn words(program: &Program, variable: Option<(&str, &str)>, flags: &[&str]) -> (usize, Output) {
    let engine = format!("fake:{}", program.file("script.toml", SCRIPT));
    let args = [&["run", "--engine", &engine], flags, &["a long one"]].concat();
    let mut command = program.command(&args);
    command.envs(variable);
    let output = super::program::finish(command.spawn().unwrap());
    (output.stdout.split_whitespace().count(), output)
}

#[test]
fn flags_come_before_variables_and_these_before_the_file() {
    let program = with_file("[sampling]\nmax_tokens = 6\n");
    let variable = Some(("MLX_CHAT_SAMPLING_MAX_TOKENS", "10"));
    let (file, output) = words(&program, None, &[]);
    assert_eq!((file, output.code), (3, 0), "{output:?}");
    assert_eq!(words(&program, variable, &[]).0, 5);
    assert_eq!(words(&program, variable, &["--max-tokens", "14"]).0, 7);
}

#[test]
fn what_is_wrong_in_the_file_is_told_and_stops_nothing() {
    let program = with_file("[sampling]\nmax_token = 3\ntemperature = -1\nmax_tokens = 8\n[\n");
    let (count, output) = words(&program, None, &[]);
    assert_eq!((count, output.code), (4, 0), "{output:?}");
    for line in [
        "config.toml:2: sampling.max_token: there is no such setting; is sampling.max_tokens meant?",
        "config.toml:3: sampling.temperature: temperature is -1",
        "config.toml:5: ",
    ] {
        assert!(output.stderr.contains(line), "{line:?}: {}", output.stderr);
    }
    let (_, output) = words(&program, Some(("MLX_CHAT_SAMPLING_MAX_TOKEN", "3")), &[]);
    let line =
        "MLX_CHAT_SAMPLING_MAX_TOKEN: no setting has this variable; is MLX_CHAT_SAMPLING_MAX_TOKENS meant?";
    assert!(output.stderr.contains(line), "{}", output.stderr);
}

#[test]
fn a_wish_for_thoughts_counts_where_the_model_can() {
    let program = with_file("thinking = true\n[sampling]\nmax_tokens = 4\n");
    let (count, output) = words(&program, None, &[]);
    assert_eq!((count, output.code), (2, 0), "{output:?}");
    assert_eq!(words(&program, None, &["--thinking", "on"]).1.code, 2);
}

#[test]
fn config_prints_what_applies_and_where_from() {
    let program = with_file("panes = 3\n[keys]\nnew_pane = ['ctrl-n']\n");
    let mut command = program.command(&["config", "--max-batch", "4", "--no-color"]);
    command.env("MLX_CHAT_SYSTEM", "be \"brief\"");
    let output = super::program::finish(command.spawn().unwrap());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let parsed: toml::Table = output.stdout.parse().unwrap();
    assert_eq!(parsed["engine"]["max_batch"].as_integer(), Some(4));
    assert_eq!(parsed["system"].as_str(), Some("be \"brief\""));
    let line = |name: &str| {
        let start = format!("{name} = ");
        output
            .stdout
            .lines()
            .find(|line| line.starts_with(&start))
            .unwrap()
    };
    for (name, origin) in [
        ("panes", "config.toml:1"),
        ("system", "# MLX_CHAT_SYSTEM"),
        ("max_batch", "# --max-batch"),
        ("color", "# --no-color"),
        ("threads", "# default"),
        ("new_pane", "config.toml:3"),
        ("zoom", "# default"),
    ] {
        assert!(line(name).ends_with(origin), "{}", line(name));
    }
    assert!(line("new_pane").starts_with("new_pane = [\"ctrl-n\"]"));
}

#[test]
fn what_config_prints_can_be_the_file() {
    let program = with_file("");
    let printed = program.run(&["config"]).stdout;
    program.file("config/mlx-chat/config.toml", printed);
    let output = program.run(&["config"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    program.file(
        "config/mlx-chat/config.toml",
        program.run(&["config", "--default"]).stdout,
    );
    assert_eq!(program.run(&["config"]).stderr, "");
}

#[test]
fn config_names_its_file() {
    let program = Program::new();
    let path = program.path("config/mlx-chat/config.toml");
    let output = program.run(&["config", "--path"]);
    assert_eq!(output.stdout.trim_end(), path.to_str().unwrap());
}

#[test]
fn keys_that_two_actions_want_are_told() {
    let program = with_file("[keys]\nzoom = ['f8', 'f12']\n");
    let output = program.run(&["config"]);
    let told = "config.toml:2: keys.zoom: \"f8\" is the key for close_pane already, which keeps it";
    assert!(output.stderr.contains(told), "{}", output.stderr);
    assert!(output.stdout.contains("zoom = [\"f12\"]"), "{}", output.stdout);
}

#[test]
fn shells_complete_commands_and_flags() {
    let program = Program::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = program.run(&["completions", shell]);
        assert_eq!(output.code, 0, "{output:?}");
        for word in ["replay", "max-batch", "completions"] {
            assert!(output.stdout.contains(word), "{shell}: {word}");
        }
    }
    program.run(&["completions", "dos"]).fails(2, &["dos"]);
}

#[test]
fn bash_completes_below_commands() {
    let program = Program::new();
    let script = program.file("script", program.run(&["completions", "bash"]).stdout);
    for (words, expected) in [
        (&["mlx-chat", "mod"][..], "models"),
        (&["mlx-chat", "models", "li"], "list"),
        (&["mlx-chat", "sessions", "exp"], "export"),
        (&["mlx-chat", "run", "--think"], "--thinking"),
        (&["mlx-chat", "completions", "ba"], "bash"),
    ] {
        let [before, last] = [words.len() - 2, words.len() - 1].map(|at| words[at]);
        let asked = format!(
            "source {script}; COMP_WORDS=({}); COMP_CWORD={}; _mlx__chat mlx-chat {last} {before}; \
             echo \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1,
        );
        let output = std::process::Command::new("bash")
            .args(["--norc", "-c", &asked])
            .output()
            .unwrap();
        let found = String::from_utf8_lossy(&output.stdout);
        assert!(
            found.split_whitespace().any(|word| word == expected),
            "{words:?}: {found}"
        );
    }
}

#[test]
fn the_manual_page_has_every_command() {
    let output = Program::new().run(&["man"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.contains(".TH mlx-chat 1"), "{}", output.stdout);
    for section in ["FILES", "ENVIRONMENT", "EXIT STATUS"] {
        assert!(output.stdout.contains(section), "{section}");
    }
    for command in [
        "run",
        "replay",
        "bench",
        "models",
        "doctor",
        "config",
        "completions",
        "man",
    ] {
        let heading = format!("mlx\\-chat {command}");
        let plain = format!("mlx-chat {command}");
        assert!(
            output.stdout.contains(&heading) || output.stdout.contains(&plain),
            "{command}"
        );
    }
}

#[test]
fn a_tip_for_an_unknown_flag_is_one_that_it_is_near_to() {
    let program = Program::new();
    for (typed, tip) in [
        ("--tmperature", Some("--temperature")),
        ("--kvbudget", Some("--kv-budget")),
        ("--tempo", None),
    ] {
        let told = program.run(&[typed, "1"]);
        assert_eq!(told.code, 2, "{told:?}");
        assert!(told.stderr.contains(&format!("'{typed}'")), "{told:?}");
        let tips = told.stderr.matches("a similar argument").count();
        assert_eq!(tips, usize::from(tip.is_some()), "{told:?}");
        assert!(tip.is_none_or(|tip| told.stderr.contains(tip)), "{told:?}");
        assert!(tip.is_some() || !told.stderr.contains("--theme"), "{told:?}");
    }
}

#[test]
fn a_pipe_in_the_settings_files_place_is_told_and_a_refused_key_comes_from_nowhere() {
    let program = Program::new();
    std::fs::create_dir_all(program.path("config/mlx-chat")).unwrap();
    let path = program.path("config/mlx-chat/config.toml");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let output = program.run(&["config"]);
    assert_eq!(output.code, 0);
    assert!(
        output.stderr.contains("it can't be read: it is no file"),
        "{}",
        output.stderr
    );
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "[keys]\nsend = \"ctrl-j\"\nzoom = \"f12\"\n").unwrap();
    let output = program.run(&["config"]);
    let line = |name: &str| {
        let begins = format!("{name} = ");
        output
            .stdout
            .lines()
            .find(|line| line.starts_with(&begins))
            .unwrap()
    };
    assert!(line("send").ends_with("# default"), "{}", line("send"));
    assert!(line("zoom").ends_with("config.toml:3"), "{}", line("zoom"));
}
