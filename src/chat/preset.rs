//! Presets: a name for a system prompt and a way of sampling. Those of the program come with it; a person's own are in
//! TOML files of the same form.

use serde::Deserialize;
use toml::Spanned;

use super::pane::Settings;
use super::parameter::{Parameter, Source, Sources};

/// The program's own presets.
const OWN: &str = include_str!("../../assets/presets.toml");

/// What a preset may say; what it leaves out is as in new panes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    about: Option<String>,
    system: Option<String>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
    seed: Option<u64>,
    max_tokens: Option<usize>,
    thinking: Option<bool>,
    stop_at: Option<String>,
}

/// A preset.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// What it is called.
    pub name: String,
    /// What it is good for, in a line; may be empty.
    pub about: String,
    /// The file that it is from; none for the program's own.
    pub file: Option<String>,
    written: Written,
}

impl Preset {
    /// What a pane's settings are with it, and where each comes from, where new panes have `defaults`.
    pub fn settings(&self, defaults: &Settings) -> (Settings, Sources) {
        let (mut settings, mut sources) = (defaults.clone(), Sources::default());
        for (parameter, text) in self.says() {
            // It was read as what it is.
            if parameter.set(&mut settings, &text).is_ok() {
                sources.put(parameter, Source::Preset(self.name.clone()));
            }
        }
        (settings, sources)
    }

    /// What it says, each as [`Parameter::set`] takes it.
    fn says(&self) -> Vec<(Parameter, String)> {
        let w = &self.written;
        let number = |n: Option<f32>| n.map(|n| n.to_string());
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        let all = [
            (Parameter::System, w.system.clone()),
            (Parameter::Temperature, number(w.temperature)),
            (Parameter::TopP, number(w.top_p)),
            (Parameter::TopK, w.top_k.map(|n| n.to_string())),
            (Parameter::MinP, number(w.min_p)),
            (Parameter::Seed, w.seed.map(|n| n.to_string())),
            (Parameter::MaxTokens, w.max_tokens.map(|n| n.to_string())),
            (Parameter::Thinking, w.thinking.map(switch)),
            (Parameter::StopAt, w.stop_at.clone()),
        ];
        all.into_iter()
            .filter_map(|(parameter, text)| Some((parameter, text?)))
            .collect()
    }
}

/// The program's own presets, in their order.
pub fn own_presets() -> Vec<Preset> {
    // A test holds that nothing is wrong with them.
    read_presets(OWN, None).unwrap_or_default()
}

/// Reads a file of presets: a table each. What is wrong is told with the line.
pub fn read_presets(text: &str, file: Option<&str>) -> Result<Vec<Preset>, String> {
    let name_of = file.unwrap_or("presets.toml");
    let line = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let wrong = |error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        format!("{name_of}:{}: {}", line(at), error.message().trim())
    };
    let tables: toml::map::Map<String, toml::Value> = toml::from_str(text).map_err(wrong)?;
    let mut read: std::collections::BTreeMap<String, Spanned<Written>> =
        toml::from_str(text).map_err(wrong)?;
    let mut presets = Vec::new();
    for name in tables.keys() {
        let Some(written) = read.remove(name) else {
            continue;
        };
        let at = written.span().start;
        let written = written.into_inner();
        let preset = Preset {
            name: name.clone(),
            about: written.about.clone().unwrap_or_default(),
            file: file.map(str::to_owned),
            written,
        };
        let mut tried = Settings::default();
        for (parameter, text) in preset.says() {
            parameter
                .set(&mut tried, &text)
                .map_err(|why| format!("{name_of}:{}: preset {name:?}: {why}", line(at)))?;
        }
        presets.push(preset);
    }
    Ok(presets)
}

/// Settings as a file with one preset, which [`read_presets`] reads again.
pub fn write_preset(name: &str, settings: &Settings) -> String {
    let mut table = toml::map::Map::new();
    for parameter in Parameter::ALL {
        let text = parameter.value(settings);
        let number = |text: &str| {
            let whole = text.parse().map(toml::Value::Integer).ok();
            whole.or_else(|| text.parse().map(toml::Value::Float).ok())
        };
        let value = match (parameter, text.as_str()) {
            (Parameter::System | Parameter::StopAt, "off") | (_, "auto") => None,
            (Parameter::System | Parameter::StopAt, text) => Some(text.into()),
            (Parameter::Thinking, text) => Some(toml::Value::Boolean(text == "on")),
            (_, text) => number(text),
        };
        if let Some(value) = value {
            table.insert(parameter.name().replace('-', "_"), value);
        }
    }
    let mut file = toml::map::Map::new();
    file.insert(name.to_owned(), toml::Value::Table(table));
    toml::to_string(&file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_presets_are_sound() {
        let own = read_presets(OWN, None).unwrap();
        assert!(own.len() >= 5);
        for preset in own {
            assert!(!preset.about.is_empty(), "{}", preset.name);
            assert!(
                preset.settings(&Settings::default()).0 != Settings::default() || preset.name == "greedy"
            );
        }
    }

    #[test]
    fn what_a_preset_leaves_out_is_as_in_new_panes() {
        let presets = read_presets(
            "[brief]\nsystem = 'Be brief.'\ntemperature = 0.5\n",
            Some("a.toml"),
        )
        .unwrap();
        let mut defaults = Settings::default();
        Parameter::TopK.set(&mut defaults, "40").unwrap();
        let (settings, sources) = presets[0].settings(&defaults);
        assert_eq!(settings.system.as_deref(), Some("Be brief."));
        assert_eq!(
            (settings.sampling.temperature, settings.sampling.top_k),
            (0.5, 40)
        );
        assert_eq!(sources.of(Parameter::System), &Source::Preset("brief".into()));
        assert_eq!(sources.of(Parameter::TopK), &Source::Start);
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        for (text, part) in [
            (
                "[a]\nsystem = 'x'\ntemprature = 1\n",
                "mine.toml:3: unknown field",
            ),
            (
                "[a]\n\n[b]\ntop_p = 2.0\n",
                "mine.toml:3: preset \"b\": top_p is 2",
            ),
            ("[a\n", "mine.toml:1: "),
            ("[a]\ntemperature = 'warm'\n", "mine.toml:2: "),
            ("a = 1\n", "mine.toml:1: "),
        ] {
            let why = read_presets(text, Some("mine.toml")).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn settings_that_were_saved_are_read_again() {
        let mut settings = Settings::default();
        for (parameter, text) in [
            (Parameter::System, "be\n\"brief\""),
            (Parameter::Temperature, "0.7"),
            (Parameter::TopK, "40"),
            (Parameter::Seed, "7"),
            (Parameter::Thinking, "on"),
        ] {
            parameter.set(&mut settings, text).unwrap();
        }
        let file = write_preset("my own", &settings);
        let read = read_presets(&file, Some("x")).unwrap();
        assert_eq!(read[0].name, "my own");
        assert_eq!(read[0].settings(&Settings::default()).0, settings, "{file}");
    }
}
