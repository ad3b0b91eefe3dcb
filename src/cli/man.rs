//! `man`: the manual page.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::outcome::Stdout;

/// Prints the manual page, all commands included: `mlx-chat man | man -l -`
#[derive(Debug, Args)]
pub struct ManArgs {}

/// What the command line doesn't tell of itself: a part's title, names and what they are.
const MORE: &[(&str, &[(&str, &str)])] = &[
    (
        "FILES",
        &[
            (
                "$XDG_CONFIG_HOME/mlx-chat/config.toml",
                "Settings; ~/.config where the variable is not set. `mlx-chat config --default` prints it with every setting \
                 explained. Presets and themes are in folders beside it.",
            ),
            (
                "$XDG_STATE_HOME/mlx-chat/",
                "Conversations (sessions/), the panes of last time and the log; ~/.local/state where the variable is not set.",
            ),
            (
                "$XDG_CACHE_HOME/mlx-chat/",
                "The prompt cache, and MLX; ~/.cache where the variable is not set.",
            ),
            (
                "$XDG_DATA_HOME/mlx-chat/models/",
                "Models; ~/.local/share where the variable is not set.",
            ),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            (
                "MLX_CHAT_*",
                "A setting of the file, by its tables and its name in capitals: MLX_CHAT_ENGINE_MAX_BATCH for max_batch of \
                 [engine].",
            ),
            (
                "MLX_CHAT_LOG",
                "What goes to the log: debug, or mlx_chat::engine=trace.",
            ),
            (
                "NO_COLOR, COLORTERM, TERM",
                "Which colors are used, unless --color says it.",
            ),
            ("VISUAL, EDITOR", "The editor for drafts and settings."),
            (
                "HF_HOME, HF_ENDPOINT, HF_TOKEN",
                "The model hub's shared cache, its address, and who asks.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "All went well."),
            ("1", "Something failed; standard error says what."),
            ("2", "The command line was wrong."),
            ("130", "It was interrupted. Another signal: 128 and its number."),
        ],
    ),
];

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
    for (title, entries) in MORE {
        let mut section = Roff::new();
        section.control("SH", [*title]);
        for (name, what) in *entries {
            section.control("TP", []);
            section.text([bold(*name)]);
            section.text([roman(*what)]);
        }
        section.to_writer(&mut page)?;
    }
    main.render_version_section(&mut page)?;
    Stdout::lock().write_all(&page)?;
    Ok(ExitCode::SUCCESS)
}
