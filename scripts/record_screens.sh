#!/usr/bin/env bash
# Plays a short session with the real program in a pseudo-terminal, on a scripted engine (tests/terminal/recording.rs), prints
# its screens, and writes them into README.md. Arguments go to cargo: `scripts/record_screens.sh --release`.
set -euo pipefail
cd "$(dirname "$0")/.."
MLX_CHAT_RECORD=1 cargo test "$@" --test terminal readme_shows -- --nocapture
