//! How text is cut into words before byte-level BPE, by the names that `tokenizer.ggml.pre` gives to it.
//!
//! The patterns are those of the models' own tokenizers. Which name stands for which, and which of them want
//! a BOS or take whole words, is a convention of llama.cpp's converter.

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
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    r"A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}",
    r"\u{295}-\u{2AF}\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}",
    r"\u{38E}-\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}",
    r"\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}",
    r"\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}",
    r"\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}",
    r"\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}",
    r"\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}",
    r"\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}",
    r"\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}",
    r"\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}",
    r"\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}",
    r"\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}",
    r"\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}",
    r"]+",
);
const DEEPSEEK_PUNCTUATION: &str =
    r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+";
/// Chinese, Korean and what lies between, as DeepSeek's first models list it.
const DEEPSEEK_HAN: &str = r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+";
/// Chinese and Japanese, as DeepSeek V3 lists it.
const CHINESE_JAPANESE: &str = r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+";
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
