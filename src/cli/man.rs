//! `man`: the manual page.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use clap_mangen::Man;
use clap_mangen::roff::Roff;

use super::outcome::Stdout;

/// Prints the manual page, all commands included: `mlx-chat man | man -l -`
#[derive(Debug, Args)]
pub struct ManArgs {}

/// Runs the command.
pub fn run() -> anyhow::Result<ExitCode> {
    let mut command = super::command();
    command.build();
    let mut page = Vec::new();
    let main = Man::new(command.clone());
    main.render_title(&mut page)?;
    main.render_name_section(&mut page)?;
    main.render_synopsis_section(&mut page)?;
    main.render_description_section(&mut page)?;
    main.render_options_section(&mut page)?;
    for command in command
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        let mut heading = Roff::new();
        heading.control("SH", [command.get_bin_name().unwrap_or_default()]);
        heading.to_writer(&mut page)?;
        let part = Man::new(command.clone());
        part.render_synopsis_section(&mut page)?;
        part.render_description_section(&mut page)?;
        part.render_options_section(&mut page)?;
    }
    main.render_version_section(&mut page)?;
    Stdout::lock().write_all(&page)?;
    Ok(ExitCode::SUCCESS)
}
