//! Which layers hold keys and values how: what `--kv-config FILE` asks for, and what reports tell was applied.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::cache::{DEFAULT_GROUP_SIZE, KvQuantization, KvScheme, LayersHeld};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KvConfig {
    /// By number, from 0, or by first and last: `"3"`, `"4-7"`.
    #[serde(deserialize_with = "entries")]
    layers: Vec<(String, Entry)>,
}

/// The entries of a map as they are written: the same name twice is kept, to be told.
fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Entry)>, D::Error> {
    struct AsWritten;

    impl<'de> Visitor<'de> for AsWritten {
        type Value = Vec<(String, Entry)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("layers by their numbers")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_map(AsWritten)
}

/// How some layers hold.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected \"full\", or bits and a group_size")]
enum Entry {
    Named(Named),
    Quantized(Quantized),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Named {
    Full,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quantized {
    bits: usize,
    group_size: Option<usize>,
}

/// The layers that a file names. A file whose name ends in `.json` is JSON, in `.toml` TOML; another is JSON where it begins
/// with a brace.
pub fn read(path: &Path) -> Result<BTreeMap<usize, KvScheme>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("can't be read: {error}"))?;
    let extension = path.extension().and_then(|extension| extension.to_str());
    let json = match extension {
        Some("json") => true,
        Some("toml") => false,
        _ => text.trim_start().starts_with('{'),
    };
    parse(&text, json)
}

/// What was applied: an object for layers next to each other that hold alike; `bits` and `group_size` where these are quantized.
pub fn applied(held: &[LayersHeld]) -> Value {
    let layers = |run: &LayersHeld| {
        let mut told = json!({"first": run.first, "last": run.last, "kind": run.kind});
        if let Some(KvScheme::Quantized(by)) = run.scheme {
            told["bits"] = json!(by.bits);
            told["group_size"] = json!(by.group_size);
        }
        told["bytes_per_token"] = json!(run.bytes_per_token);
        told
    };
    held.iter().map(layers).collect()
}

fn parse(text: &str, json: bool) -> Result<BTreeMap<usize, KvScheme>, String> {
    // serde would take a list for the struct.
    if json && !text.trim_start().starts_with('{') {
        let start: String = text.chars().take(20).collect();
        return Err(format!("expected an object with \"layers\", found {start:?}"));
    }
    let config: KvConfig = if json {
        serde_json::from_str(text).map_err(|error| error.to_string())?
    } else {
        toml::from_str(text).map_err(|error| error.to_string())?
    };
    let mut layers = BTreeMap::new();
    for (name, entry) in config.layers {
        let scheme = match entry {
            Entry::Named(Named::Full) => KvScheme::Full,
            Entry::Quantized(Quantized { bits, group_size }) => {
                let by = KvQuantization::new(bits, group_size.unwrap_or(DEFAULT_GROUP_SIZE));
                KvScheme::Quantized(by.map_err(|error| format!("layers {name}: {error}"))?)
            }
        };
        for layer in numbers(&name)? {
            if layers.insert(layer, scheme).is_some() {
                return Err(format!("layer {layer} is named twice"));
            }
        }
    }
    Ok(layers)
}

/// The layers that a name is of.
fn numbers(name: &str) -> Result<RangeInclusive<usize>, String> {
    /// More than any model has: a larger number is a slip.
    const MOST: usize = 10_000;
    let (first, last) = name.split_once('-').unwrap_or((name, name));
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|&layer| layer < MOST);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "{name:?} names no layers: expected a number from 0, or the first and the last as in \"4-7\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(bits: usize, group_size: usize) -> KvScheme {
        KvScheme::Quantized(KvQuantization { bits, group_size })
    }

    #[test]
    fn layers_are_named_one_by_one_or_from_first_to_last_in_either_format() {
        let json = r#"{"layers": {"0": "full", "1-2": {"bits": 4, "group_size": 32}, "5": {"bits": 8}}}"#;
        let toml = "[layers]\n0 = \"full\"\n1-2 = { bits = 4, group_size = 32 }\n5 = { bits = 8 }\n";
        let expected = BTreeMap::from([
            (0, KvScheme::Full),
            (1, by(4, 32)),
            (2, by(4, 32)),
            (5, by(8, 64)),
        ]);
        assert_eq!(parse(json, true).unwrap(), expected);
        assert_eq!(parse(toml, false).unwrap(), expected);
    }

    #[test]
    fn what_can_not_be_meant_is_refused_with_what_was_wrong() {
        let refused = |text: &str| parse(text, true).unwrap_err();
        for (text, reason) in [
            (
                r#"{"layers": {"0": {"bits": 3}}}"#,
                "layers 0: keys and values can't be quantized to 3 bits",
            ),
            (
                r#"{"layers": {"0": {"bits": 4, "group_size": 48}}}"#,
                "in groups of 48",
            ),
            (
                r#"{"layers": {"0-2": "full", "2": {"bits": 4}}}"#,
                "layer 2 is named twice",
            ),
            (
                r#"{"layers": {"2": "full", "2": {"bits": 4}}}"#,
                "layer 2 is named twice",
            ),
            ("[]", "expected an object with \"layers\", found \"[]\""),
            (
                r#"{"layers": [4]}"#,
                "invalid type: sequence, expected layers by their numbers",
            ),
            (r#"{"layers": {"3-1": "full"}}"#, "\"3-1\" names no layers"),
            (r#"{"layers": {"all": "full"}}"#, "\"all\" names no layers"),
            (r#"{"layers": {"0-99999999999": "full"}}"#, "names no layers"),
            (
                r#"{"layers": {"0": "half"}}"#,
                "expected \"full\", or bits and a group_size",
            ),
            (
                r#"{"layers": {"0": {"bits": 4, "mode": "nf4"}}}"#,
                "expected \"full\", or bits and a group_size",
            ),
            (r#"{"layer": {}}"#, "unknown field `layer`"),
            ("{", "EOF"),
        ] {
            let found = refused(text);
            assert!(found.contains(reason), "{text}: {found}");
        }
    }
}
