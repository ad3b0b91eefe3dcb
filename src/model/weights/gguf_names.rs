//! What GGUF files call the tensors of each architecture, and what Hugging Face checkpoints do.

/// Names of one architecture's tensors.
#[derive(Debug)]
pub(super) struct Names {
    /// As `general.architecture` has it.
    pub architecture: &'static str,
    /// Modules of a block, theirs and ours, in lists that architectures share. A tensor whose name ends without `.weight`
    /// or `.bias`, on either side, is listed in full.
    blocks: &'static [&'static [(&'static str, &'static str)]],
    /// Whether rows of queries and keys are interleaved, for the RoPE that pairs neighbours.
    pub interleaved: bool,
    /// Whether value heads of linear attention lie one of each key head after the other, instead of by key head.
    pub tiled: bool,
}

/// Modules outside of blocks, in every architecture.
const OUTSIDE: [(&str, &str); 3] = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];

const ATTENTION: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
];

const HEAD_NORMS: &[(&str, &str)] = &[
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
];

const NORM_BEFORE_MLP: &[(&str, &str)] = &[("ffn_norm", "post_attention_layernorm")];

const NORMS_AROUND: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

const MLP: &[(&str, &str)] = &[
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

const EXPERTS: &[(&str, &str)] = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.switch_mlp.gate_proj"),
    ("ffn_up_exps", "mlp.switch_mlp.up_proj"),
    ("ffn_down_exps", "mlp.switch_mlp.down_proj"),
];

const SHARED_EXPERT: &[(&str, &str)] = &[
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

/// Phi-3: what is one matrix there is one here.
const JOINED: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_up", "mlp.gate_up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The gated delta rule. Its decay is stored as `-exp(A_log)`, its convolution as `[channels, kernel]`.
const LINEAR_ATTENTION: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("attn_qkv", "linear_attn.in_proj_qkv"),
    ("attn_gate", "linear_attn.in_proj_z"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_a", "linear_attn.A_log"),
    ("ssm_dt.bias", "linear_attn.dt_bias"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
];

/// Qwen3-Next: decay and update come from one matrix, by key head; early files have all other projections in one, too.
const JOINED_GATES: &[(&str, &str)] = &[
    ("ssm_ba", "linear_attn.in_proj_ba"),
    ("ssm_in", "linear_attn.in_proj_qkvz"),
];

const GATES: &[(&str, &str)] = &[
    ("ssm_alpha", "linear_attn.in_proj_a"),
    ("ssm_beta", "linear_attn.in_proj_b"),
];

/// Every architecture whose files are read.
const ALL: &[Names] = &[
    Names {
        architecture: "llama",
        blocks: &[ATTENTION, NORM_BEFORE_MLP, MLP],
        interleaved: true,
        tiled: false,
    },
    Names {
        architecture: "smollm3",
        blocks: &[ATTENTION, NORM_BEFORE_MLP, MLP],
        interleaved: true,
        tiled: false,
    },
    Names {
        architecture: "qwen2",
        blocks: &[ATTENTION, NORM_BEFORE_MLP, MLP],
        interleaved: false,
        tiled: false,
    },
    Names {
        architecture: "qwen3",
        blocks: &[ATTENTION, HEAD_NORMS, NORM_BEFORE_MLP, MLP],
        interleaved: false,
        tiled: false,
    },
    Names {
        architecture: "qwen3moe",
        blocks: &[ATTENTION, HEAD_NORMS, NORM_BEFORE_MLP, EXPERTS],
        interleaved: false,
        tiled: false,
    },
    Names {
        architecture: "gemma3",
        blocks: &[ATTENTION, HEAD_NORMS, NORMS_AROUND, MLP],
        interleaved: false,
        tiled: false,
    },
    Names {
        architecture: "phi3",
        blocks: &[JOINED, NORM_BEFORE_MLP],
        interleaved: false,
        tiled: false,
    },
    Names {
        architecture: "qwen3next",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            LINEAR_ATTENTION,
            JOINED_GATES,
            EXPERTS,
            SHARED_EXPERT,
        ],
        interleaved: false,
        tiled: false,
    },
    Names {
        architecture: "qwen35",
        blocks: &[ATTENTION, HEAD_NORMS, LINEAR_ATTENTION, GATES, MLP],
        interleaved: false,
        tiled: true,
    },
    Names {
        architecture: "qwen35moe",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            LINEAR_ATTENTION,
            GATES,
            EXPERTS,
            SHARED_EXPERT,
        ],
        interleaved: false,
        tiled: true,
    },
];

/// The names of an architecture.
pub(super) fn of(architecture: &str) -> Option<&'static Names> {
    ALL.iter().find(|names| names.architecture == architecture)
}

/// The architectures that have names, for messages.
pub(super) fn supported() -> String {
    let names: Vec<&str> = ALL.iter().map(|names| names.architecture).collect();
    names.join(", ")
}

/// What `.weight` and `.bias` follow, and they themselves; nothing follows other names.
fn split(name: &str) -> (&str, &str) {
    for ending in [".weight", ".bias"] {
        if let Some(module) = name.strip_suffix(ending) {
            return (module, ending);
        }
    }
    (name, "")
}

impl Names {
    fn modules(&self) -> impl Iterator<Item = &(&'static str, &'static str)> {
        self.blocks.iter().copied().flatten()
    }

    /// Our name of the file's tensor; its own if it has no counterpart, so that it is reported.
    pub fn ours(&self, theirs: &str) -> String {
        let renamed = || {
            let Some(rest) = theirs.strip_prefix("blk.") else {
                let (module, ending) = split(theirs);
                let (_, ours) = OUTSIDE.iter().find(|(name, _)| *name == module)?;
                return Some(format!("{ours}{ending}"));
            };
            let (layer, rest) = rest.split_once('.')?;
            let whole = self.modules().find(|(name, _)| *name == rest);
            let (ours, ending) = match whole {
                Some((_, ours)) => (ours, ""),
                None => {
                    let (module, ending) = split(rest);
                    (&self.modules().find(|(name, _)| *name == module)?.1, ending)
                }
            };
            Some(format!("model.layers.{layer}.{ours}{ending}"))
        };
        renamed().unwrap_or_else(|| theirs.to_owned())
    }

    /// The file's name of our tensor.
    pub fn theirs(&self, ours: &str) -> String {
        let renamed = || {
            let Some(rest) = ours.strip_prefix("model.layers.") else {
                let (module, ending) = split(ours);
                let (theirs, _) = OUTSIDE.iter().find(|(_, name)| *name == module)?;
                return Some(format!("{theirs}{ending}"));
            };
            let (layer, rest) = rest.split_once('.')?;
            let (module, ending) = split(rest);
            let (theirs, _) = self.modules().find(|(_, name)| *name == module)?;
            Some(format!("blk.{layer}.{theirs}{ending}"))
        };
        renamed().unwrap_or_else(|| ours.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_both_ways_in_every_architecture() {
        for (architecture, theirs, ours) in [
            ("llama", "token_embd.weight", "model.embed_tokens.weight"),
            ("llama", "output_norm.weight", "model.norm.weight"),
            ("llama", "output.weight", "lm_head.weight"),
            (
                "llama",
                "blk.7.attn_q.weight",
                "model.layers.7.self_attn.q_proj.weight",
            ),
            (
                "llama",
                "blk.12.ffn_norm.weight",
                "model.layers.12.post_attention_layernorm.weight",
            ),
            (
                "qwen2",
                "blk.0.attn_k.bias",
                "model.layers.0.self_attn.k_proj.bias",
            ),
            (
                "qwen3",
                "blk.0.attn_q_norm.weight",
                "model.layers.0.self_attn.q_norm.weight",
            ),
            (
                "qwen3moe",
                "blk.1.ffn_gate_inp.weight",
                "model.layers.1.mlp.gate.weight",
            ),
            (
                "qwen3moe",
                "blk.1.ffn_up_exps.weight",
                "model.layers.1.mlp.switch_mlp.up_proj.weight",
            ),
            (
                "gemma3",
                "blk.3.ffn_norm.weight",
                "model.layers.3.pre_feedforward_layernorm.weight",
            ),
            (
                "gemma3",
                "blk.3.post_attention_norm.weight",
                "model.layers.3.post_attention_layernorm.weight",
            ),
            (
                "gemma3",
                "blk.3.post_ffw_norm.weight",
                "model.layers.3.post_feedforward_layernorm.weight",
            ),
            (
                "phi3",
                "blk.0.attn_qkv.weight",
                "model.layers.0.self_attn.qkv_proj.weight",
            ),
            (
                "phi3",
                "blk.0.ffn_up.weight",
                "model.layers.0.mlp.gate_up_proj.weight",
            ),
            ("phi3", "rope_factors_long.weight", "rope_factors_long.weight"),
            (
                "qwen3next",
                "blk.0.ssm_ba.weight",
                "model.layers.0.linear_attn.in_proj_ba.weight",
            ),
            ("qwen3next", "blk.0.ssm_a", "model.layers.0.linear_attn.A_log"),
            (
                "qwen3next",
                "blk.0.ssm_dt.bias",
                "model.layers.0.linear_attn.dt_bias",
            ),
            (
                "qwen35",
                "blk.0.ssm_alpha.weight",
                "model.layers.0.linear_attn.in_proj_a.weight",
            ),
            (
                "qwen35",
                "blk.0.attn_qkv.weight",
                "model.layers.0.linear_attn.in_proj_qkv.weight",
            ),
            (
                "qwen35moe",
                "blk.0.ffn_down_shexp.weight",
                "model.layers.0.mlp.shared_expert.down_proj.weight",
            ),
        ] {
            let names = of(architecture).unwrap();
            assert_eq!(names.ours(theirs), ours, "{architecture}");
            assert_eq!(names.theirs(ours), theirs, "{architecture}");
        }
    }

    #[test]
    fn a_tensor_of_another_architecture_keeps_its_name() {
        let llama = of("llama").unwrap();
        for name in [
            "blk.0.ffn_gate_inp.weight",
            "blk.0.ssm_a",
            "v.blk.0.attn_q.weight",
            "blk.x",
        ] {
            assert_eq!(llama.ours(name), name);
        }
    }

    #[test]
    fn no_two_modules_of_an_architecture_share_a_name() {
        for names in ALL {
            let theirs: std::collections::HashSet<_> = names.modules().map(|(theirs, _)| theirs).collect();
            let ours: std::collections::HashSet<_> = names.modules().map(|(_, ours)| ours).collect();
            let count = names.modules().count();
            assert_eq!(
                (theirs.len(), ours.len()),
                (count, count),
                "{}",
                names.architecture
            );
        }
    }
}
