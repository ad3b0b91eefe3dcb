//! Parses the command line, dispatches, and turns the outcome into an exit code.

fn main() -> std::process::ExitCode {
    mlx_chat::cli::main()
}
