//! `config`: which settings apply, and where each comes from.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use toml::Value;

use super::outcome::Stdout;
use super::settings::Applied;
use crate::config::paths::Paths;
use crate::config::{DEFAULTS, KeyEntry, Origin};
use crate::ui::keys::Keymap;

/// Prints every setting with its value and where that comes from: flag, environment, file or default
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print the path of the settings file
    #[arg(long, conflicts_with = "default")]
    pub path: bool,

    /// Print the defaults, with a line on each setting
    #[arg(long)]
    pub default: bool,
}

/// Runs the command.
pub fn run(args: &ConfigArgs, applied: &Applied, paths: &Paths) -> anyhow::Result<ExitCode> {
    let mut out = Stdout::lock();
    if args.path {
        writeln!(out, "{}", paths.config_file().display())?;
    } else if args.default {
        write!(out, "{DEFAULTS}")?;
    } else {
        write!(out, "{}", listing(applied))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What applies, as TOML, each with its origin as a comment.
fn listing(applied: &Applied) -> String {
    let mut out = String::new();
    let mut within = "";
    for entry in &applied.config.entries {
        let (table, name) = entry
            .setting
            .key
            .rsplit_once('.')
            .unwrap_or(("", entry.setting.key));
        if table != within {
            out.push_str(&format!("\n[{table}]\n"));
            within = table;
        }
        out.push_str(&line(name, &entry.value, &entry.origin));
    }
    out.push_str("\n[keys]\n");
    let usual: BTreeMap<String, Vec<String>> = Keymap::default().listed().collect();
    for (action, keys) in applied.keymap.listed() {
        let changed = applied.config.keys.iter().find(|entry| entry.action == action);
        // What was refused doesn't count.
        let usual = usual.get(&action) == Some(&keys);
        let counts = |entry: &&KeyEntry| !usual || entry.keys == keys;
        let origin = changed
            .filter(counts)
            .map_or(&Origin::Default, |entry| &entry.origin);
        let keys = keys.into_iter().map(Value::String).collect();
        out.push_str(&line(&action, &Value::Array(keys), origin));
    }
    out
}

fn line(name: &str, value: &Value, origin: &Origin) -> String {
    let setting = format!("{name} = {value}");
    // A path may hold anything; a comment ends with its line.
    let origin: String = origin.to_string().chars().filter(|c| !c.is_control()).collect();
    format!("{setting:<39} # {origin}\n")
}
