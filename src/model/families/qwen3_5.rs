//! Qwen3.5, dense or with experts: what Qwen3-Next is made of. Its files name and join weights otherwise, and hold a vision
//! model beside the text.

use super::qwen3_next::read_hybrid;
use crate::model::ModelError;
use crate::model::architecture::Architecture;
use crate::model::settings::Settings;

pub(super) fn read(settings: &Settings) -> Result<Architecture, ModelError> {
    let mut architecture = read_hybrid(settings, 100_000.0)?;
    architecture.passed_over = &["vision_tower.", "model.visual.", "mtp.", "language_model.mtp."];
    Ok(architecture)
}
