//! `doctor`: what a bug report needs.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::outcome::Stdout;
use super::version;
use crate::config::paths::Paths;
use crate::engine::memory::{host_memory, readings};
use crate::nn::Backend;
use crate::nn::kernels::Kernels;
use crate::text::sanitize::line_for_terminal;

/// Says what runs: versions, device, memory, paths, terminal
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &DoctorArgs, paths: &Paths) -> anyhow::Result<ExitCode> {
    let report = report(paths);
    let mut out = Stdout::lock();
    if args.json {
        writeln!(out, "{report}")?;
    } else {
        print(&report, &mut out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder of the libmlx that this process has loaded, where the system tells.
fn loaded_libmlx() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find(|line| line.contains("/libmlx."))?;
    let path = std::path::Path::new(path.get(path.find('/')?..)?);
    Some(path.parent()?.display().to_string())
}

fn report(paths: &Paths) -> Value {
    let variable = |name: &str| std::env::var(name).ok();
    let (readings, host) = (readings(), host_memory());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "mlx": version::MLX,
        "backend": version::BACKEND,
        "libmlx": loaded_libmlx().unwrap_or_else(|| version::LIBDIR.to_owned()),
        "device": match Backend::detect() {
            Backend::Cpu => "cpu".to_owned(),
            Backend::Gpu | Backend::GpuFloat32 => Backend::gpu_in_words(),
        },
        "kernels": Kernels::new(None).map_or_else(|error| error.to_string(), |kernels| kernels.to_string()),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "architecture": std::env::consts::ARCH,
        "system": std::env::consts::OS,
        "host_memory_bytes": host.total,
        "host_memory_available_bytes": host.available,
        "device_memory_bytes": readings.total(),
        "default_kv_budget_without_weights_bytes": readings.default_kv_budget(0),
        "paths": {
            "config": paths.config, "models": paths.models(), "sessions": paths.sessions(),
            "log": paths.log_file(), "cache": paths.cache, "prompt_cache": paths.prompts(),
        },
        "terminal": {
            "stdin": std::io::stdin().is_terminal(),
            "stdout": std::io::stdout().is_terminal(),
            "TERM": variable("TERM"), "COLORTERM": variable("COLORTERM"), "NO_COLOR": variable("NO_COLOR"),
            "LANG": variable("LANG"), "LC_ALL": variable("LC_ALL"), "TMUX": variable("TMUX").is_some(),
            "SSH_CONNECTION": variable("SSH_CONNECTION").is_some(),
        },
    })
}

fn print(report: &Value, out: &mut impl Write) -> io::Result<()> {
    for (name, value) in report.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(inner) => {
                writeln!(out, "{name}:")?;
                for (name, value) in inner {
                    writeln!(out, "  {name}: {}", plain(value))?;
                }
            }
            None => writeln!(out, "{name}: {}", plain(value))?,
        }
    }
    Ok(())
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => line_for_terminal(text),
        other => other.to_string(),
    }
}
