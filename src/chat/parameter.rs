//! The settings of a pane one by one: their names and values in words, how they are set, and where they come from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pane::Settings;
use super::quotes;
use crate::sampling::Sampling;

/// One of a pane's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Parameter {
    /// Instructions that open the conversation.
    System,
    /// How varied answers are.
    Temperature,
    /// The share of the likeliest tokens that is kept.
    TopP,
    /// How many of the likeliest tokens are kept.
    TopK,
    /// How likely a token must be beside the likeliest.
    MinP,
    /// What random draws begin with.
    Seed,
    /// The most tokens of an answer.
    MaxTokens,
    /// Whether the model thinks first.
    Thinking,
    /// What ends an answer.
    StopAt,
}

use Parameter as P;

impl Parameter {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 9] = [
        P::System,
        P::Temperature,
        P::TopP,
        P::TopK,
        P::MinP,
        P::Seed,
        P::MaxTokens,
        P::Thinking,
        P::StopAt,
    ];

    /// Those of sampling.
    pub const SAMPLING: [Self; 5] = [P::Temperature, P::TopP, P::TopK, P::MinP, P::Seed];

    /// Its name as a command has it.
    pub const fn name(self) -> &'static str {
        match self {
            P::System => "system",
            P::Temperature => "temperature",
            P::TopP => "top-p",
            P::TopK => "top-k",
            P::MinP => "min-p",
            P::Seed => "seed",
            P::MaxTokens => "max-tokens",
            P::Thinking => "thinking",
            P::StopAt => "stop-at",
        }
    }

    /// What it does, and the words that it takes beside a value.
    pub const fn help(self) -> &'static str {
        match self {
            P::System => "what the model is told first in this pane; off: nothing",
            P::Temperature => "0 is greedy, higher is more varied",
            P::TopP => "keep the most likely tokens up to this probability; 1: all",
            P::TopK => "keep this many most likely tokens; 0: all",
            P::MinP => "keep tokens this fraction as likely as the first; 0: all",
            P::Seed => "makes random draws repeatable; auto: another one each time",
            P::MaxTokens => "the most tokens of an answer; auto: as there is room",
            P::Thinking => "whether the model thinks before it answers",
            P::StopAt => "texts that end answers, quoted where they hold spaces; off: none",
        }
    }

    /// Its value as [`Parameter::set`] takes it.
    pub fn value(self, settings: &Settings) -> String {
        let sampling = &settings.sampling;
        let auto = |value: Option<String>| value.unwrap_or_else(|| "auto".into());
        match self {
            P::System => match settings.system.as_deref() {
                None | Some("") => "off".into(),
                Some(text) => text.to_owned(),
            },
            P::Temperature => sampling.temperature.to_string(),
            P::TopP => sampling.top_p.to_string(),
            P::TopK => sampling.top_k.to_string(),
            P::MinP => sampling.min_p.to_string(),
            P::Seed => auto(sampling.seed.map(|seed| seed.to_string())),
            P::MaxTokens => auto(settings.max_tokens.map(|most| most.to_string())),
            P::Thinking => auto(
                settings
                    .thinking
                    .map(|on| if on { "on" } else { "off" }.to_owned()),
            ),
            P::StopAt => match settings.stop.as_slice() {
                [] => "off".into(),
                texts => quotes::join(texts),
            },
        }
    }

    /// Sets it to what a person wrote; what is wrong with that, where it can't be.
    pub fn set(self, settings: &mut Settings, text: &str) -> Result<(), String> {
        let mut new = settings.clone();
        let sampling = &mut new.sampling;
        match (self, text) {
            (P::System, "off" | "") => new.system = None,
            (P::System, text) => new.system = Some(text.to_owned()),
            (P::StopAt, "off" | "") => new.stop.clear(),
            (P::StopAt, text) => {
                new.stop = quotes::split(text).map_err(|why| format!("stop-at: {why}"))?;
                if new.stop.iter().any(String::is_empty) {
                    return Err("stop-at takes texts that are not empty, like END; off: none".into());
                }
            }
            (P::Temperature, text) => {
                sampling.temperature = self.number(text, "0.7")?;
                if sampling.temperature > Sampling::HOTTEST {
                    return Err(format!(
                        "temperature is {}, but above {hottest} all tokens are about as likely: 0 to {hottest}",
                        short(text),
                        hottest = Sampling::HOTTEST
                    ));
                }
            }
            (P::TopP, text) => sampling.top_p = self.number(text, "0.95")?,
            (P::MinP, text) => sampling.min_p = self.number(text, "0.05")?,
            (P::TopK, text) => sampling.top_k = self.number(text, "40")?,
            (P::Seed, "auto" | "") => sampling.seed = None,
            (P::Seed, text) => sampling.seed = Some(self.number(text, "7, or auto")?),
            (P::MaxTokens, "auto" | "") => new.max_tokens = None,
            (P::MaxTokens, text) => match self.number(text, "512, or auto")? {
                0 => return Err("max-tokens is 0, but must be at least 1".into()),
                most => new.max_tokens = Some(most),
            },
            (P::Thinking, "on") => new.thinking = Some(true),
            (P::Thinking, "off") => new.thinking = Some(false),
            (P::Thinking, "auto" | "") => new.thinking = None,
            (P::Thinking, other) => {
                return Err(format!(
                    "thinking takes on, off or auto, found {:?}",
                    short(other)
                ));
            }
        }
        check(&new.sampling)?;
        *settings = new;
        Ok(())
    }

    /// Takes it over from other settings.
    pub fn copy(self, from: &Settings, to: &mut Settings) {
        let (sampling, other) = (&mut to.sampling, &from.sampling);
        match self {
            P::System => to.system.clone_from(&from.system),
            P::Temperature => sampling.temperature = other.temperature,
            P::TopP => sampling.top_p = other.top_p,
            P::TopK => sampling.top_k = other.top_k,
            P::MinP => sampling.min_p = other.min_p,
            P::Seed => sampling.seed = other.seed,
            P::MaxTokens => to.max_tokens = from.max_tokens,
            P::Thinking => to.thinking = from.thinking,
            P::StopAt => to.stop.clone_from(&from.stop),
        }
    }

    fn number<T: std::str::FromStr>(self, text: &str, example: &str) -> Result<T, String> {
        text.parse().map_err(|_| {
            format!(
                "{} takes a number, like {example}; found {:?}",
                self.name(),
                short(text)
            )
        })
    }
}

/// What is wrong with a way of sampling, by the names that settings have here.
pub(super) fn check(sampling: &Sampling) -> Result<(), String> {
    sampling.check().map_err(|bad| bad.to_string().replace('_', "-"))
}

/// The beginning of a text, on a line.
fn short(text: &str) -> String {
    let line = super::turn::one_line(text);
    let short: String = line.chars().take(40).collect();
    if short.len() < line.len() {
        short + "..."
    } else {
        short
    }
}

/// Where a setting's value comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// It is as in new panes: [`Origins`] says where that comes from.
    #[default]
    Start,
    /// It was set in this pane.
    Set,
    /// A preset brought it, by its name.
    Preset(String),
    /// The conversation's log has it.
    Stored,
}

/// Where each of a pane's settings comes from; those that aren't there are as in new panes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources(BTreeMap<Parameter, Source>);

impl Sources {
    /// All of them are the log's.
    pub(super) fn stored() -> Self {
        Self(P::ALL.into_iter().map(|p| (p, Source::Stored)).collect())
    }

    /// Where one comes from.
    pub fn of(&self, parameter: Parameter) -> &Source {
        self.0.get(&parameter).unwrap_or(&Source::Start)
    }

    /// Those that differ were set here, unless they are as in new panes again.
    pub(super) fn note(&mut self, before: &Settings, after: &Settings, defaults: &Settings) {
        let value = |parameter: Parameter, of| parameter.value(of);
        for parameter in P::ALL {
            let after = value(parameter, after);
            if after == value(parameter, before) {
                continue;
            }
            let start = after == value(parameter, defaults);
            self.put(parameter, if start { Source::Start } else { Source::Set });
        }
    }

    /// Says where one comes from.
    pub fn put(&mut self, parameter: Parameter, source: Source) {
        match source {
            Source::Start => self.0.remove(&parameter),
            source => self.0.insert(parameter, source),
        };
    }
}

/// Where the settings of new panes come from, in words: a flag, a line of the settings file, the model's makers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<Parameter, String>);

/// Where a setting comes from of which nobody said anything.
const DEFAULT: &str = "default";

impl Origins {
    /// Where a setting comes from that the model's makers recommend.
    pub const MAKERS: &str = "the model's makers";

    /// Those of which something is known.
    pub fn new(known: impl IntoIterator<Item = (Parameter, String)>) -> Self {
        Self(known.into_iter().collect())
    }

    /// Another model's makers recommend to sample as new panes do now; what flags or the file said stays.
    pub(super) fn recommend(&mut self, defaults: &Settings) {
        let nothing = Settings::default();
        for parameter in P::SAMPLING {
            if ![DEFAULT, Self::MAKERS].contains(&self.of(parameter)) {
                continue;
            }
            if parameter.value(defaults) == parameter.value(&nothing) {
                self.0.remove(&parameter);
            } else {
                self.0.insert(parameter, Self::MAKERS.to_owned());
            }
        }
    }

    /// Where one comes from.
    pub fn of(&self, parameter: Parameter) -> &str {
        self.0.get(&parameter).map_or(DEFAULT, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_set_to_the_value_that_it_tells() {
        let mut settings = Settings::default();
        for (parameter, text) in [
            (P::System, "be\nbrief"),
            (P::Temperature, "0.5"),
            (P::TopP, "0.25"),
            (P::TopK, "7"),
            (P::MinP, "0.125"),
            (P::Seed, "11"),
            (P::MaxTokens, "99"),
            (P::Thinking, "off"),
            (P::StopAt, "END 'two words' '\"'"),
        ] {
            let before = parameter.value(&settings);
            parameter.set(&mut settings, text).unwrap();
            assert_eq!(parameter.value(&settings), text);
            let mut other = Settings::default();
            parameter.copy(&settings, &mut other);
            assert_eq!(parameter.value(&other), text);
            let mut again = settings.clone();
            parameter.set(&mut again, &before).unwrap();
            assert_eq!(parameter.value(&again), before, "{parameter:?}");
        }
    }

    #[test]
    fn what_cannot_be_set_is_told_and_changes_nothing() {
        for (parameter, text, part) in [
            (P::Temperature, "warm", "takes a number, like 0.7; found \"warm\""),
            (P::Temperature, "-1", "0 (greedy) or a positive number"),
            (P::TopP, "2", "between 0 and 1"),
            (P::TopK, "-1", "a number"),
            (P::MaxTokens, "0", "at least 1"),
            (P::Thinking, "maybe", "on, off or auto"),
            (P::StopAt, "\"x", "stop-at: the quote \" isn't closed"),
            (P::StopAt, "''", "not empty"),
        ] {
            let mut settings = Settings::default();
            let why = parameter.set(&mut settings, text).unwrap_err();
            assert!(why.contains(part), "{why}");
            assert_eq!(settings, Settings::default());
        }
    }
}
