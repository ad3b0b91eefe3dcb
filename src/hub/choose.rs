//! Which files of a repository are needed: plain decisions over their paths.

use std::collections::BTreeMap;

use super::repo_error::RepoError;

/// What a folder with safetensors is read with, beside the weights.
const SETTINGS: [&str; 11] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

/// Names the shards of the weights.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Quantizations by preference where none is named: four bits that lose little, then larger, then smaller ones.
const PREFERRED: [&str; 20] = [
    "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL", "MXFP4", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q6_K",
    "Q8_0", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "BF16", "F16", "F32", "FP16",
];

/// The files of a repository that make up the model asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// Their paths, the first part of a split file first.
    pub files: Vec<String>,
    /// For GGUF, what the file is called among its like: `Q4_K_M`; none for a folder with safetensors.
    pub label: Option<String>,
    /// What the user should know: that there was a choice.
    pub note: Option<String>,
}

/// One GGUF model of a repository: a file, or all parts of a split one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GgufModel {
    /// The quantization that the name tells, in upper case; the whole name where it tells none.
    pub label: String,
    /// Paths, in the order of the parts.
    pub files: Vec<String>,
    /// Parts that the names promise and that aren't there.
    pub missing: usize,
}

/// The files needed from a repository that has `paths`, by what the user picked.
pub(super) fn choose(paths: &[&str], pick: Option<&str>) -> Result<Choice, RepoError> {
    let weights = safetensors(paths);
    let models = gguf_models(paths);
    match pick {
        None if !weights.is_empty() && paths.contains(&"config.json") => {
            let mut files: Vec<String> = SETTINGS
                .iter()
                .chain([&INDEX])
                .filter(|name| paths.contains(name))
                .map(|name| name.to_string())
                .collect();
            files.extend(weights.iter().map(|name| name.to_string()));
            let note = (!models.is_empty()).then(|| {
                let labels = labels(&models).join(", ");
                format!("the safetensors are taken; there are GGUF files, too: {labels}")
            });
            Ok(Choice {
                files,
                label: None,
                note,
            })
        }
        Some(pick) if models.is_empty() && !weights.is_empty() && paths.contains(&"config.json") => {
            Err(RepoError::NothingToPick { pick: pick.into() })
        }
        _ => choose_gguf(models, pick).and_then(|choice| {
            choice.ok_or_else(|| {
                let mut others: Vec<String> = paths.iter().take(8).map(|path| path.to_string()).collect();
                if paths.len() > others.len() {
                    others.push("…".into());
                }
                RepoError::NoModel { files: others }
            })
        }),
    }
}

/// The GGUF model picked, or the one to prefer; none where there is no GGUF file at all.
pub(super) fn choose_gguf(models: Vec<GgufModel>, pick: Option<&str>) -> Result<Option<Choice>, RepoError> {
    let choices = labels(&models);
    let chosen = match pick {
        Some(pick) => {
            let same = |text: &str| text.eq_ignore_ascii_case(pick);
            let named = |model: &GgufModel| {
                model.files.iter().any(|file| {
                    file == pick
                        || file.rsplit('/').next() == Some(pick)
                        || stem(file).eq_ignore_ascii_case(pick)
                })
            };
            let exact: Vec<&GgufModel> = models
                .iter()
                .filter(|model| same(&model.label) || named(model))
                .collect();
            match (exact.as_slice(), models.is_empty()) {
                (_, true) => return Ok(None),
                ([one], _) => *one,
                ([], _) => {
                    return Err(RepoError::NoSuchPick {
                        pick: pick.into(),
                        choices,
                    });
                }
                (several, _) => {
                    return Err(RepoError::Ambiguous {
                        pick: pick.into(),
                        files: several
                            .iter()
                            .filter_map(|model| model.files.first().cloned())
                            .collect(),
                    });
                }
            }
        }
        None => {
            let rank = |model: &GgufModel| {
                let place = PREFERRED.iter().position(|name| *name == model.label);
                (model.missing > 0, place.unwrap_or(PREFERRED.len()))
            };
            match models.iter().min_by_key(|model| rank(model)) {
                Some(model) => model,
                None => return Ok(None),
            }
        }
    };
    if chosen.missing > 0 {
        return Err(RepoError::MissingParts {
            file: chosen.files.first().cloned().unwrap_or_default(),
            missing: chosen.missing,
        });
    }
    let note = (pick.is_none() && models.len() > 1).then(|| {
        format!(
            "there are several quantizations: {}; {} is taken. Put another one behind the name: REPOSITORY:{}",
            choices.join(", "),
            chosen.label,
            choices.iter().find(|label| **label != chosen.label).unwrap_or(&chosen.label),
        )
    });
    Ok(Some(Choice {
        files: chosen.files.clone(),
        label: Some(chosen.label.clone()),
        note,
    }))
}

fn labels(models: &[GgufModel]) -> Vec<String> {
    models.iter().map(|model| model.label.clone()).collect()
}

/// The weights at the top of a repository: the shards if there is an index, else the one file, else all.
fn safetensors<'a>(paths: &[&'a str]) -> Vec<&'a str> {
    let all = || {
        paths
            .iter()
            .copied()
            .filter(|path| !path.contains('/') && path.ends_with(".safetensors"))
    };
    let shards: Vec<&str> = all()
        .filter(|path| path.strip_suffix(".safetensors").and_then(part_of).is_some())
        .collect();
    if paths.contains(&INDEX) && !shards.is_empty() {
        return shards;
    }
    match all().find(|path| *path == "model.safetensors") {
        Some(one) => vec![one],
        // Some repositories hold the same weights once more in their makers' own layout.
        None => all().filter(|path| !path.starts_with("consolidated")).collect(),
    }
}

/// The GGUF models among paths, by label and path; what only belongs to a model is left out.
pub(super) fn gguf_models(paths: &[&str]) -> Vec<GgufModel> {
    let mut groups: BTreeMap<(String, usize), BTreeMap<usize, String>> = BTreeMap::new();
    for path in paths
        .iter()
        .filter(|path| path.to_ascii_lowercase().ends_with(".gguf"))
    {
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        if name.contains("mmproj") || name.contains("imatrix") {
            continue;
        }
        let stem = stem_path(path);
        let (whole, part, of) = part_of(stem).unwrap_or((stem, 1, 1));
        groups
            .entry((whole.to_string(), of))
            .or_default()
            .insert(part, path.to_string());
    }
    let model = |((whole, of), parts): ((String, usize), BTreeMap<usize, String>)| GgufModel {
        label: label_of(&whole),
        missing: of.saturating_sub(parts.len()),
        files: parts.into_values().collect(),
    };
    let mut models: Vec<GgufModel> = groups.into_iter().map(model).collect();
    models.sort_by(|a, b| (&a.label, &a.files).cmp(&(&b.label, &b.files)));
    models
}

/// A path without `.gguf`.
fn stem_path(path: &str) -> &str {
    path.get(..path.len().saturating_sub(5)).unwrap_or(path)
}

/// The name of a file without folder, `.gguf` and number of its part.
fn stem(path: &str) -> &str {
    let stem = stem_path(path);
    let whole = part_of(stem).map_or(stem, |(whole, ..)| whole);
    whole.rsplit('/').next().unwrap_or(whole)
}

/// Splits `name-00002-of-00005` into `name`, 2 and 5.
fn part_of(stem: &str) -> Option<(&str, usize, usize)> {
    let (rest, of) = stem.rsplit_once("-of-")?;
    let (whole, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<usize>().ok()).flatten()
    };
    let (part, of) = (number(part)?, number(of)?);
    (part >= 1 && part <= of).then_some((whole, part, of))
}

/// The quantization that a file's name, else its folder, tells; else the name itself.
fn label_of(whole: &str) -> String {
    let (folder, name) = whole.rsplit_once('/').unwrap_or(("", whole));
    let told = |text: &str| {
        text.rsplit(['-', '.', '/'])
            .map(str::to_ascii_uppercase)
            .find(|word| is_quantization(word))
    };
    told(name)
        .or_else(|| told(folder))
        .unwrap_or_else(|| name.to_string())
}

/// Whether an upper-case word is what quantizations are called: `Q4_K_M`, `IQ2_XXS`, `BF16`.
fn is_quantization(word: &str) -> bool {
    let after_digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    matches!(
        word,
        "F16" | "F32" | "BF16" | "FP16" | "FP32" | "MXFP4" | "MXFP4_MOE" | "NVFP4"
    ) || ["Q", "IQ", "TQ"].iter().any(|head| {
        word.strip_prefix(head)
            .is_some_and(|rest| after_digit(rest) && (rest.contains('_') || rest.len() == 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str], pick: Option<&str>) -> Vec<String> {
        choose(paths, pick).unwrap().files
    }

    #[test]
    fn of_a_safetensors_repository_only_what_is_read_is_taken() {
        let paths = [
            ".gitattributes",
            "README.md",
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "model.safetensors.index.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "consolidated.safetensors",
            "original/params.json",
            "onnx/model.onnx",
            "pytorch_model.bin",
            "chat_template.jinja",
        ];
        assert_eq!(
            files(&paths, None),
            [
                "config.json",
                "generation_config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "chat_template.jinja",
                "model.safetensors.index.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
            ]
        );
        assert_eq!(
            files(
                &["config.json", "consolidated.safetensors", "model.safetensors"],
                None
            ),
            ["config.json", "model.safetensors"]
        );
        assert_eq!(
            files(
                &["config.json", "weights.00.safetensors", "weights.01.safetensors"],
                None
            )
            .len(),
            3
        );
    }

    #[test]
    fn of_several_quantizations_four_bits_are_preferred_and_the_note_lists_all() {
        let paths = [
            "README.md",
            "M-Q8_0.gguf",
            "M.Q4_K_M.gguf",
            "M-Q2_K.gguf",
            "mmproj-M-f16.gguf",
        ];
        let choice = choose(&paths, None).unwrap();
        assert_eq!(choice.files, ["M.Q4_K_M.gguf"]);
        let note = choice.note.unwrap();
        assert!(note.contains("Q2_K, Q4_K_M, Q8_0; Q4_K_M is taken"), "{note}");
        assert_eq!(choose(&["m-q8_0.gguf"], None).unwrap().note, None);
    }

    #[test]
    fn a_quantization_or_a_file_can_be_picked() {
        let paths = ["M-Q8_0.gguf", "M-Q4_K_M.gguf", "sub/M-Q4_K_S.gguf"];
        assert_eq!(files(&paths, Some("q8_0")), ["M-Q8_0.gguf"]);
        for pick in ["Q4_K_S", "sub/M-Q4_K_S.gguf", "M-Q4_K_S.gguf", "M-Q4_K_S"] {
            assert_eq!(files(&paths, Some(pick)), ["sub/M-Q4_K_S.gguf"], "{pick}");
        }
        let error = choose(&paths, Some("Q4")).unwrap_err().to_string();
        assert!(
            error.contains("'Q4'") && error.contains("Q4_K_M, Q4_K_S, Q8_0"),
            "{error}"
        );
    }

    #[test]
    fn a_pick_that_fits_several_files_is_refused_with_their_names() {
        let error = choose(&["a-Q4_0.gguf", "b-Q4_0.gguf"], Some("Q4_0"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("a-Q4_0.gguf, b-Q4_0.gguf"), "{error}");
    }

    #[test]
    fn all_parts_of_a_split_file_are_taken_in_order_and_a_missing_one_is_an_error() {
        let paths = [
            "BF16/M-00002-of-00003.gguf",
            "BF16/M-00001-of-00003.gguf",
            "BF16/M-00003-of-00003.gguf",
        ];
        let choice = choose(&paths, Some("bf16")).unwrap();
        assert_eq!(choice.label.as_deref(), Some("BF16"));
        assert_eq!(choice.files.len(), 3);
        assert!(choice.files.is_sorted());
        let error = choose(&paths[..2], None).unwrap_err().to_string();
        assert!(error.contains("1 of its parts"), "{error}");
        let whole = choose(&[paths[0], "M-F32.gguf"], None).unwrap();
        assert_eq!(
            whole.files,
            ["M-F32.gguf"],
            "a whole file goes before an incomplete one"
        );
    }

    #[test]
    fn a_repository_without_a_model_we_read_says_what_it_has() {
        let error = choose(&["pytorch_model.bin", "config.json"], None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("pytorch_model.bin") && error.contains(".safetensors"),
            "{error}"
        );
        assert!(choose(&[], Some("Q4_0")).is_err());
    }

    #[test]
    fn labels_are_told_by_name_or_folder() {
        for (whole, label) in [
            ("M-UD-Q4_K_XL", "Q4_K_XL"),
            ("Qwen3-0.6B-f16", "F16"),
            ("M.IQ2_XXS", "IQ2_XXS"),
            ("Q6_K/whatever", "Q6_K"),
            ("gpt-oss-20b-mxfp4", "MXFP4"),
            ("Qwen", "Qwen"),
        ] {
            assert_eq!(label_of(whole), label);
        }
    }
}
