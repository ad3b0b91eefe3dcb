//! How positions turn queries and keys, as config.json says it.

use super::Settings;
use crate::model::ModelError;
use crate::nn::RopeScaling;

/// One rope of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSettings {
    /// Features of a head.
    pub features: usize,
    /// The first of them, which turn; even.
    pub turned: usize,
    /// Pair `i` turns by `base^(-2i / turned)` radians per position.
    pub base: f64,
    /// How positions beyond those of training are reached.
    pub scaling: RopeScaling,
}

const KINDS: &str = "default, linear, llama3, yarn or longrope";

impl Settings {
    /// The rope of heads of so many features. Its base is `rope_theta`, or `base`; its scaling `rope_scaling`. Both may
    /// stand in `rope_parameters` instead.
    pub fn rope(&self, features: usize, base: f64) -> Result<RopeSettings, ModelError> {
        let scaling = match self.section("rope_parameters")? {
            Some(section) => Some(section),
            None => self.section("rope_scaling")?,
        };
        self.rope_of(features, base, scaling.as_ref())
    }

    /// The same, scaled as this section says.
    pub fn rope_of(
        &self,
        features: usize,
        base: f64,
        scaling: Option<&Settings>,
    ) -> Result<RopeSettings, ModelError> {
        let inside = |name: &str| match scaling {
            Some(scaling) => scaling.optional_positive(name),
            None => Ok(None),
        };
        let base = match (inside("rope_theta")?, self.optional_positive("rope_theta")?) {
            (Some(base), _) | (None, Some(base)) => base,
            (None, None) => base,
        };
        let holder = match scaling {
            Some(scaling) if scaling.has("partial_rotary_factor") => scaling,
            _ => self,
        };
        let part = holder.optional_positive("partial_rotary_factor")?.unwrap_or(1.0);
        // A fraction that was itself computed may be a hair below what it stands for.
        let turned = (features as f64 * part + 1e-6).floor();
        let turned = if part <= 1.0 { turned as usize } else { 0 };
        if turned == 0 || !turned.is_multiple_of(2) {
            let allowed = format!("a fraction that turns an even number of a head's {features} features");
            return Err(holder.wrong("partial_rotary_factor", allowed));
        }
        Ok(RopeSettings {
            features,
            turned,
            base,
            scaling: match scaling {
                Some(scaling) => self.scaling(scaling, turned)?,
                None => RopeScaling::None,
            },
        })
    }

    fn scaling(&self, section: &Settings, turned: usize) -> Result<RopeScaling, ModelError> {
        let named = if section.has("rope_type") {
            "rope_type"
        } else {
            "type"
        };
        let Some(kind) = section.values.get(named).and_then(|kind| kind.as_str()) else {
            return match section.has(named) {
                true => Err(section.wrong(named, KINDS)),
                false => Ok(RopeScaling::None),
            };
        };
        // Where Phi-3 and others keep what belongs into the section.
        let original = || {
            let name = "original_max_position_embeddings";
            match section.optional_positive(name)? {
                Some(positions) => Ok(Some(positions)),
                None => self.optional_positive(name),
            }
        };
        match kind {
            // The sections of "mrope" are one for text.
            "default" | "mrope" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear {
                factor: section.positive("factor")?,
            }),
            "llama3" => {
                let low_freq_factor = section.optional_positive("low_freq_factor")?.unwrap_or(1.0);
                let high_freq_factor = section.optional_positive("high_freq_factor")?.unwrap_or(4.0);
                if low_freq_factor >= high_freq_factor {
                    return Err(section.wrong("high_freq_factor", format!("more than {low_freq_factor}")));
                }
                Ok(RopeScaling::Llama3 {
                    factor: section.positive("factor")?,
                    low_freq_factor,
                    high_freq_factor,
                    original_max_positions: original()?.unwrap_or(8192.0),
                })
            }
            "yarn" => {
                let factor = section.positive("factor")?;
                Ok(RopeScaling::Yarn {
                    factor,
                    original_max_positions: original()?.unwrap_or(4096.0),
                    beta_fast: section.optional_positive("beta_fast")?.unwrap_or(32.0),
                    beta_slow: section.optional_positive("beta_slow")?.unwrap_or(1.0),
                    magnitude: match section.optional_positive("attention_factor")? {
                        Some(magnitude) => magnitude,
                        None => {
                            let over = section.number("mscale")?.unwrap_or(1.0);
                            let under = section.number("mscale_all_dim")?.unwrap_or(0.0);
                            yarn_magnitude(factor, over) / yarn_magnitude(factor, under)
                        }
                    },
                })
            }
            "longrope" | "su" => self.longrope(section, turned, original()?),
            // What a GGUF file's tensor of factors is presented as.
            "factors" if self.are_of_gguf() => Ok(RopeScaling::Factors {
                factors: section
                    .positives("factors", turned / 2)?
                    .ok_or_else(|| section.wrong("factors", "a list"))?,
                magnitude: 1.0,
            }),
            _ => Err(section.wrong(named, KINDS)),
        }
    }

    /// LongRoPE as mlx-lm has it: the long factors, whatever the length, so that what is cached never depends on how long a
    /// row comes to be. The short ones are for fewer positions than those of training, at which both do.
    fn longrope(
        &self,
        section: &Settings,
        turned: usize,
        original: Option<f64>,
    ) -> Result<RopeScaling, ModelError> {
        let (name, pairs) = ("long_factor", turned / 2);
        let factors = section.positives(name, pairs)?;
        let factors = factors.ok_or_else(|| section.wrong(name, format!("{pairs} positive numbers")))?;
        let magnitude = match section.optional_positive("attention_factor")? {
            Some(magnitude) => magnitude,
            None => {
                let original = original.unwrap_or(4096.0);
                let most = self.optional_positive("max_position_embeddings")?;
                longrope_magnitude(most.unwrap_or(131_072.0) / original, original)
            }
        };
        Ok(RopeScaling::Factors { factors, magnitude })
    }
}

/// `0.1 · scale · ln(factor) + 1` (Peng et al. 2023, section 3.4).
fn yarn_magnitude(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * scale * factor.ln() + 1.0
    }
}

/// `sqrt(1 + ln(factor) / ln(original))` (Ding et al. 2024).
fn longrope_magnitude(factor: f64, original: f64) -> f64 {
    if factor <= 1.0 || original <= 1.0 {
        1.0
    } else {
        (1.0 + factor.ln() / original.ln()).sqrt()
    }
}
