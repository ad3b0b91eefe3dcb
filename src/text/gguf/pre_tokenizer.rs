//! How text is cut into words before byte-level BPE, by the names that `tokenizer.ggml.pre` gives to it.
//!
//! The patterns are those of the models' own tokenizers. Which name stands for which, and which of them want a BOS
//! or take whole words, is a convention of llama.cpp's converter.

use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::text::TextError;

/// GPT-2's words.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's words.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's words.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 3.5's words: marks belong to letters.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-4o's words: they begin with capitals and end with small letters.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's words (Tekken): as GPT-4o's, without contractions.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Kimi K2's words: as GPT-4o's, Han characters apart.
const KIMI_K2: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The words of DeepSeek V3, what is left once digits and Chinese and Japanese are taken out.
const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// The letters of scripts with two cases, as DeepSeek LLM lists them.
const DEEPSEEK_LETTERS: &str = "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_PUNCTUATION: &str = "\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+";
/// Chinese, Korean and what lies between, as DeepSeek's first models list it.
const DEEPSEEK_HAN: &str = "[一-龥\u{800}-一가-\u{d7ff}]+";
/// Chinese and Japanese, as DeepSeek V3 lists it.
const CHINESE_JAPANESE: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
/// BLOOM's words.
const BLOOM: &str = " ?[^(\\s|.,!?…。，、।۔،)]+";
/// One digit at a time.
const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = r"\p{N}{1,3}";

/// A way of cutting text into words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    /// What `tokenizer.ggml.pre` calls it.
    names: &'static [&'static str],
    /// Each cuts what the one before left: matches apart, and what lies between.
    patterns: &'static [&'static str],
    /// Text is composed (Unicode NFC) first.
    pub(super) composes: bool,
    /// A word that is a token is that token, whatever the merges say.
    pub(super) whole_words: bool,
    /// A text begins with BOS where the file doesn't say otherwise.
    pub(super) wants_bos: bool,
}

/// Names and patterns, without any of the flags.
const fn of(names: &'static [&'static str], patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer {
        names,
        patterns,
        composes: false,
        whole_words: false,
        wants_bos: false,
    }
}

impl PreTokenizer {
    const fn composed(self) -> Self {
        Self {
            composes: true,
            ..self
        }
    }

    const fn whole_words(self) -> Self {
        Self {
            whole_words: true,
            ..self
        }
    }

    const fn with_bos(self) -> Self {
        Self {
            wants_bos: true,
            ..self
        }
    }
}

static KNOWN: &[PreTokenizer] = &[
    of(
        &["default"],
        &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    ),
    of(
        &[
            "gpt-2",
            "phi-2",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "jais",
            "trillion",
            "granite-docling",
        ],
        &[GPT2],
    ),
    of(&["mpt", "olmo"], &[GPT2]).composed(),
    of(
        &[
            "smollm",
            "starcoder",
            "refact",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[DIGIT, GPT2],
    ),
    of(&["command-r"], &[DIGIT, GPT2]).composed(),
    of(
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        &[LLAMA3],
    )
    .whole_words()
    .with_bos(),
    of(&["smaug-bpe", "dbrx", "glm4", "chatglm-bpe"], &[LLAMA3]),
    of(&["qwen2", "megrez", "f2llmv2"], &[QWEN2]).composed(),
    of(
        &[
            "deepseek-r1-qwen",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
            "kormo",
        ],
        &[QWEN2],
    ),
    of(&["qwen35"], &[QWEN35]).composed(),
    of(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    of(&["tekken"], &[TEKKEN]).whole_words().with_bos(),
    of(&["kimi-k2"], &[KIMI_K2]),
    of(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            DEEPSEEK_PUNCTUATION,
            r"\s+$",
            DEEPSEEK_HAN,
            r"\p{N}+",
        ],
    ),
    of(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_HAN, DIGIT],
    ),
    of(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[THREE_DIGITS, CHINESE_JAPANESE, DEEPSEEK_V3],
    ),
    of(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    of(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    of(&["viking"], &[BLOOM, DIGIT]),
    of(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
    ),
    of(
        &["seed-coder"],
        &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
    ),
];

impl PreTokenizer {
    /// The one that a file names.
    pub(super) fn named(name: &str) -> Result<&'static Self, TextError> {
        let found = KNOWN.iter().find(|known| known.names.contains(&name));
        found.ok_or_else(|| TextError::UnknownPreTokenizer {
            found: name.to_owned(),
            known: KNOWN
                .iter()
                .flat_map(|known| known.names)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// Its cuts, and the writing of bytes as characters behind them.
    pub(super) fn build(&self) -> Result<PreTokenizerWrapper, TextError> {
        let split = |pattern: &&str| {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map(PreTokenizerWrapper::from)
        };
        let steps: Result<Vec<_>, _> = self.patterns.iter().map(split).collect();
        let mut steps = steps.map_err(|error| TextError::Vocabulary {
            what: format!("the pattern of {:?}: {error}", self.names),
        })?;
        steps.push(ByteLevel::new(false, false, false).into());
        Ok(Sequence::new(steps).into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_is_there_once_and_its_patterns_compile() {
        let mut names = HashSet::new();
        for known in KNOWN {
            known.build().unwrap();
            for name in known.names {
                assert!(names.insert(name), "{name}");
                assert_eq!(PreTokenizer::named(name).unwrap(), known);
            }
        }
    }
}
