//! What runs: `--version`, `--help`, `doctor`, the log file.

use std::os::unix::fs::PermissionsExt;

use super::program::{Program, finish};

#[test]
fn version_names_ours_mlxs_and_the_backend() {
    let output = Program::new().run(&["--version"]);
    assert_eq!(output.code, 0);
    let rest = output
        .stdout
        .strip_prefix(concat!("mlx-chat ", env!("CARGO_PKG_VERSION"), " (MLX "));
    let (mlx, backend) = rest
        .unwrap()
        .trim_end()
        .strip_suffix(')')
        .unwrap()
        .split_once(", ")
        .unwrap();
    assert!(mlx.split('.').all(|part| part.parse::<u32>().is_ok()), "{mlx}");
    assert!(["metal", "cpu", "cuda12", "cuda13"].contains(&backend));
}

#[test]
fn help_names_every_command() {
    let output = Program::new().run(&["--help"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for command in ["run", "replay", "bench", "models", "doctor"] {
        assert!(output.stdout.contains(&format!("\n  {command} ")), "{command}");
        assert_eq!(Program::new().run(&[command, "--help"]).code, 0);
    }
}

#[test]
fn unknown_commands_and_flags_are_usage_errors() {
    let program = Program::new();
    program.run(&["dance"]).fails(2, &["dance"]);
    program.run(&["--dance"]).fails(2, &["--dance"]);
    program.run(&["--panes", "10"]).fails(2, &["--panes"]);
}

#[test]
fn doctor_says_what_a_bug_report_needs() {
    let program = Program::new();
    let output = program.run(&["doctor", "--json"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let report = &output.json()[0];
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    for name in ["mlx", "backend", "device", "kernels", "architecture", "system"] {
        assert!(report[name].is_string(), "{name}");
    }
    for name in [
        "host_memory_bytes",
        "host_memory_available_bytes",
        "device_memory_bytes",
        "default_kv_budget_without_weights_bytes",
        "cores",
    ] {
        assert!(report[name].as_u64().unwrap() > 0, "{name}");
    }
    let kernels = report["kernels"].as_str().unwrap();
    let [isa, products, threads] = kernels.splitn(3, ", ").collect::<Vec<_>>()[..] else {
        panic!("{kernels}");
    };
    assert!(
        ["portable", "AVX2", "AVX-512", "NEON"].contains(&isa),
        "{kernels}"
    );
    assert!(
        ["products of floats", "products of integers"].contains(&products),
        "{kernels}"
    );
    let plural = if report["cores"] == 1 { "" } else { "s" };
    assert_eq!(threads, format!("{} thread{plural}", report["cores"]));
    let log = program.path("state/mlx-chat/mlx-chat.log");
    assert_eq!(report["paths"]["log"], log.to_str().unwrap());
    assert_eq!(report["terminal"]["stdout"], false);
    let plain = program.run(&["doctor"]);
    assert!(plain.stdout.contains("\npaths:\n  config: "), "{}", plain.stdout);
    assert!(!plain.stdout.contains('\u{1b}'));
}

#[test]
fn a_reader_who_leaves_ends_a_report_quietly() {
    for args in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["--help"],
        &["models", "list"],
    ] {
        let program = Program::new();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = program.command(args);
        command.stdout(writer);
        drop(reader);
        let output = finish(command.spawn().unwrap());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_takes_nothing_is_told_of() {
    let program = Program::new();
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["--version"],
        &["doctor"],
        &["config"],
        &["man"],
        &["completions", "bash"],
        &["models", "list"],
    ] {
        let mut command = program.command(args);
        command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let output = finish(command.spawn().unwrap());
        output.fails(1, &["can't write to standard output: No space left"]);
        assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_standard_error_that_takes_nothing_costs_no_answer_and_no_code() {
    let program = Program::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    std::fs::create_dir_all(program.path("config/mlx-chat")).unwrap();
    program.file("config/mlx-chat/config.toml", "nonsense = 1");
    for (args, code) in [
        (&["run", "--thinking", "-m", "/there/is/none", "hi"][..], 2),
        (&["run", "-m", "/there/is/none", "hi"], 1),
        (&["sessions", "show", "none"], 1),
        (&["models", "rm", "none"], 1),
        (&["config"], 0),
    ] {
        let mut command = program.command(args);
        command.stderr(full());
        assert_eq!(command.status().unwrap().code(), Some(code), "{args:?}");
    }
}

#[test]
fn flags_before_a_command_count_as_behind_it() {
    let program = Program::new();
    program
        .run(&["-m", "/there/is/none", "--max-batch", "2", "run", "hi"])
        .fails(1, &["/there/is/none"]);
    program
        .run(&["--panes", "2", "run", "hi"])
        .fails(2, &["'--panes'", "Usage: mlx-chat run"]);
}

#[test]
fn the_log_file_is_private_and_begins_with_the_version() {
    let program = Program::new();
    program.run(&["doctor"]);
    let log = program.path("state/mlx-chat/mlx-chat.log");
    let first = std::fs::read_to_string(&log).unwrap();
    let version = Program::new().run(&["--version"]).stdout;
    let version = version.trim_end().strip_prefix("mlx-chat ").unwrap();
    assert!(first.lines().next().unwrap().contains(version), "{first}");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&log), 0o600);
    assert_eq!(mode(log.parent().unwrap()), 0o700);
}

#[test]
fn a_failure_is_in_the_log_file_too() {
    let program = Program::new();
    program
        .run(&["run", "-m", "/there/is/none", "hi"])
        .fails(1, &["/there/is/none"]);
    let log = std::fs::read_to_string(program.path("state/mlx-chat/mlx-chat.log")).unwrap();
    assert!(log.contains("ERROR") && log.contains("/there/is/none"), "{log}");
}

#[test]
fn without_a_log_file_the_program_goes_on_and_says_so() {
    let program = Program::new();
    program.file("state", "a file where a folder should be");
    let output = program.run(&["doctor", "--json"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("no log file") && output.json().len() == 1);
}

#[cfg(target_os = "linux")]
#[test]
fn without_xdg_variables_files_go_below_the_home_folder() {
    let program = Program::new();
    let mut command = program.command(&["doctor", "--json"]);
    for name in ["DATA", "STATE", "CACHE", "CONFIG"] {
        command.env_remove(format!("XDG_{name}_HOME"));
    }
    let output = finish(command.spawn().unwrap());
    let home = program.path("home");
    assert_eq!(
        output.json()[0]["paths"]["log"],
        home.join(".local/state/mlx-chat/mlx-chat.log").to_str().unwrap()
    );
    assert!(home.join(".local/state/mlx-chat/mlx-chat.log").is_file());
}
