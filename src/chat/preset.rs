//! Presets: a name for a system prompt and a way of sampling. Those of the program come with it; a person's own are in
//! TOML files of the same form.

use toml::Value;

use super::pane::Settings;
use super::parameter::{Parameter, Source, Sources};
use super::quotes;
use crate::config::file;

/// The program's own presets.
const OWN: &str = include_str!("../../assets/presets.toml");

/// A preset. What it says nothing of is as in new panes.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// What it is called.
    pub name: String,
    /// What it is good for, in a line; may be empty.
    pub about: String,
    /// The file that it is from; none for the program's own.
    pub file: Option<String>,
    /// What it says, each as [`Parameter::set`] takes it.
    says: Vec<(Parameter, String)>,
}

impl Preset {
    /// What a pane's settings are with it, and where each comes from, where new panes have `defaults`.
    pub fn settings(&self, defaults: &Settings) -> (Settings, Sources) {
        let (mut settings, mut sources) = (defaults.clone(), Sources::default());
        for (parameter, text) in &self.says {
            // It was read as what it is.
            if parameter.set(&mut settings, text).is_ok() {
                sources.put(*parameter, Source::Preset(self.name.clone()));
            }
        }
        (settings, sources)
    }

    /// Takes a key of its table.
    fn take(&mut self, key: &str, value: &Value) -> Result<(), String> {
        if key == "about" {
            self.about = text(value).ok_or("about takes a text in quotes")?.to_owned();
            return Ok(());
        }
        let known = Parameter::ALL.into_iter().find(|known| written(*known) == key);
        let parameter = known.ok_or_else(|| {
            let all: Vec<String> = Parameter::ALL.into_iter().map(written).collect();
            format!("there is no setting {key:?}: there are about, {}", all.join(", "))
        })?;
        let text = said(parameter, value)?;
        // A file has its own spelling of names.
        let spelled = |why: String| why.replace(parameter.name(), &written(parameter));
        parameter.set(&mut Settings::default(), &text).map_err(spelled)?;
        self.says.push((parameter, text));
        Ok(())
    }
}

/// A setting's key in a file.
fn written(parameter: Parameter) -> String {
    parameter.name().replace('-', "_")
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A value as [`Parameter::set`] takes it.
fn said(parameter: Parameter, value: &Value) -> Result<String, String> {
    let name = written(parameter);
    match (parameter, value) {
        (Parameter::System, value) => text(value)
            .map(str::to_owned)
            .ok_or_else(|| format!("{name} takes a text in quotes, found {value}")),
        (Parameter::StopAt, Value::String(text)) => Ok(quotes::join(std::slice::from_ref(text))),
        (Parameter::StopAt, Value::Array(texts)) if texts.iter().all(|one| text(one).is_some()) => {
            let texts: Vec<String> = texts.iter().filter_map(text).map(str::to_owned).collect();
            Ok(quotes::join(&texts))
        }
        (Parameter::StopAt, value) => Err(format!(
            "{name} takes a text in quotes, or a list of some, found {value}"
        )),
        (_, Value::Boolean(on)) => Ok(if *on { "on" } else { "off" }.to_owned()),
        (_, Value::String(text)) => Ok(text.clone()),
        (_, Value::Integer(number)) => Ok(number.to_string()),
        (_, Value::Float(number)) => Ok(number.to_string()),
        (_, value) => Err(format!("{name} takes no such value: {value}")),
    }
}

/// The program's own presets, in their order.
pub fn own_presets() -> Vec<Preset> {
    // A test holds that nothing is wrong with them.
    read_presets(OWN.as_bytes(), None).0
}

/// Reads a file of presets: a table each. What is wrong is left out, and told with its line.
pub fn read_presets(bytes: &[u8], name: Option<&str>) -> (Vec<Preset>, Vec<String>) {
    let file_name = name.unwrap_or("presets.toml");
    let told = |line: usize, what: &str| format!("{file_name}:{line}: {what}");
    let text = match file::text(bytes) {
        Ok(text) => text,
        Err(fault) => return (Vec::new(), vec![told(fault.number, &fault.message)]),
    };
    let (lines, faults) = file::read(text);
    let faults = faults.iter();
    let mut problems: Vec<String> = faults.map(|fault| told(fault.number, &fault.message)).collect();
    let mut presets: Vec<Preset> = Vec::new();
    for line in lines {
        let (called, key) = match (line.path.as_slice(), &line.value) {
            ([called], Value::Table(_)) => (called, None),
            ([called, key @ ..], _) if !key.is_empty() => (called, Some(key.join("."))),
            _ => {
                let what = format!("{}: it stands in no preset: a line [NAME] begins one", line.key);
                problems.push(told(line.number, &what));
                continue;
            }
        };
        let at = presets.iter().position(|preset| preset.name == *called);
        let at = at.unwrap_or_else(|| {
            presets.push(Preset {
                name: called.clone(),
                about: String::new(),
                file: name.map(str::to_owned),
                says: Vec::new(),
            });
            presets.len() - 1
        });
        if let (Some(key), Some(preset)) = (key, presets.get_mut(at))
            && let Err(why) = preset.take(&key, &line.value)
        {
            problems.push(told(line.number, &format!("preset {called:?}: {key}: {why}")));
        }
    }
    (presets, problems)
}

/// Settings as a file with one preset, which [`read_presets`] reads again.
pub fn write_preset(name: &str, settings: &Settings) -> String {
    let mut table = toml::map::Map::new();
    for parameter in Parameter::ALL {
        let text = parameter.value(settings);
        let number = |text: &str| {
            let whole = text.parse().map(Value::Integer).ok();
            whole.or_else(|| text.parse().map(Value::Float).ok())
        };
        let value = match (parameter, text.as_str()) {
            (Parameter::System | Parameter::StopAt, "off") | (_, "auto") => None,
            (Parameter::System, text) => Some(text.into()),
            (Parameter::StopAt, _) => Some(match settings.stop.as_slice() {
                [only] => only.as_str().into(),
                texts => texts.to_vec().into(),
            }),
            (Parameter::Thinking, text) => Some(Value::Boolean(text == "on")),
            (_, text) => number(text),
        };
        if let Some(value) = value {
            table.insert(written(parameter), value);
        }
    }
    let mut file = toml::map::Map::new();
    file.insert(name.to_owned(), Value::Table(table));
    toml::to_string(&file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_presets_are_sound() {
        let (own, problems) = read_presets(OWN.as_bytes(), None);
        assert_eq!(problems, [""; 0]);
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
        let (presets, _) = read_presets(
            b"[brief]\nsystem = 'Be brief.'\ntemperature = 0.5\n",
            Some("a.toml"),
        );
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
    fn what_is_wrong_is_told_with_file_line_and_key() {
        for (text, part) in [
            (
                "[a]\nsystem = 'x'\ntemprature = 1\n",
                "mine.toml:3: preset \"a\": temprature: there is no setting \"temprature\": there are about, system",
            ),
            (
                "[a]\n\n[b]\ntop_p = 2.0\n",
                "mine.toml:4: preset \"b\": top_p: top_p is 2",
            ),
            ("[a\n", "mine.toml:1: "),
            (
                "[a]\ntemperature = 'warm'\n",
                "mine.toml:2: preset \"a\": temperature: temperature takes a number, like 0.7; found \"warm\"",
            ),
            (
                "[a]\nsystem = 5\n",
                "mine.toml:2: preset \"a\": system: system takes a text in quotes",
            ),
            ("[a]\nstop_at = ['x', 1]\n", "or a list of some"),
            ("[a]\nseed = [1]\n", "seed takes no such value"),
            ("[a.b]\nc = 1\n", "preset \"a\": b.c: there is no setting"),
            ("a = 1\n", "mine.toml:1: a: it stands in no preset"),
        ] {
            let (_, problems) = read_presets(text.as_bytes(), Some("mine.toml"));
            let [why] = &problems[..] else {
                panic!("{text}: {problems:?}")
            };
            assert!(why.contains(part), "{why}");
        }
        let (none, problems) = read_presets(b"[a]\nseed = 1\n\xff", Some("mine.toml"));
        assert!(
            none.is_empty() && problems[0].starts_with("mine.toml:3: it is no text"),
            "{problems:?}"
        );
    }

    #[test]
    fn one_bad_key_leaves_the_rest_of_the_file_as_it_is() {
        let text =
            "[first]\ntop_k = 7\ntemperature = 'warm'\nseed = 3\n[second]\nsystem = 'Be brief.'\n[third]\n";
        let (presets, problems) = read_presets(text.as_bytes(), None);
        let names: Vec<&str> = presets.iter().map(|preset| preset.name.as_str()).collect();
        assert_eq!(names, ["first", "second", "third"]);
        assert_eq!(problems.len(), 1);
        let (settings, sources) = presets[0].settings(&Settings::default());
        assert_eq!((settings.sampling.top_k, settings.sampling.seed), (7, Some(3)));
        assert_eq!(sources.of(Parameter::Temperature), &Source::Start);
    }

    #[test]
    fn a_preset_or_a_key_that_is_there_twice_is_told_and_the_rest_counts() {
        let text = "[a]\nseed = 1\nseed = 2\n[b]\ntop_k = 4\n[a]\nseed = 3\ntop_k = 5\n[c]\nseed = 6\n[c]\n";
        let (presets, problems) = read_presets(text.as_bytes(), Some("mine.toml"));
        let told = [
            "mine.toml:3: seed: it is set a second time",
            "mine.toml:6: [a]: it is there a second time",
            "mine.toml:7: seed: it is set a second time",
            "mine.toml:11: [c]: it is there a second time",
        ];
        assert_eq!(problems.len(), told.len(), "{problems:?}");
        for (problem, start) in problems.iter().zip(told) {
            assert!(problem.starts_with(start), "{problem}");
        }
        let read: Vec<_> = presets
            .iter()
            .map(|preset| {
                let sampling = preset.settings(&Settings::default()).0.sampling;
                (preset.name.as_str(), sampling.seed, sampling.top_k)
            })
            .collect();
        assert_eq!(read, [("a", Some(1), 5), ("b", None, 4), ("c", Some(6), 0)]);
    }

    #[test]
    fn a_line_that_is_no_toml_leaves_the_others_as_they_are() {
        let (presets, problems) = read_presets(b"[a]\ntop_k =\nseed = 3\n", None);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(presets[0].settings(&Settings::default()).0.sampling.seed, Some(3));
    }

    #[test]
    fn texts_that_end_answers_are_taken_as_they_are() {
        let text = "[a]\nstop_at = \"two words\"\n[b]\nstop_at = ['\"', \"it's\", 'off']\n";
        let (presets, problems) = read_presets(text.as_bytes(), None);
        assert_eq!(problems, [""; 0]);
        let stops = |at: usize| presets[at].settings(&Settings::default()).0.stop;
        assert_eq!(stops(0), ["two words"]);
        assert_eq!(stops(1), ["\"", "it's", "off"]);
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
            (Parameter::StopAt, "END '\"' 'two words'"),
        ] {
            parameter.set(&mut settings, text).unwrap();
        }
        let file = write_preset("my own", &settings);
        let (read, problems) = read_presets(file.as_bytes(), Some("x"));
        assert_eq!(problems, [""; 0]);
        assert_eq!(read[0].name, "my own");
        assert_eq!(read[0].settings(&Settings::default()).0, settings, "{file}");
    }
}
