//! Every setting: its key in the file, what it takes, and the flag that says the same on the command line.

use toml::Value;

/// What a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text; empty: none.
    Text,
    /// A whole number.
    Count,
    /// A number.
    Number,
    /// true or false.
    Switch,
    /// Bytes, or a number with K, M or G; for some, `off`.
    Size,
    /// A folder's absolute path, or `off`.
    Folder,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key, as in `engine.max_batch`.
    pub key: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// The flag that says the same, without dashes at its front.
    pub flag: &'static str,
    /// Another flag that says it: the flag, and what it says.
    pub short_for: Option<(&'static str, &'static str)>,
    /// It counts only where this other setting says something, as for example so.
    pub needs: Option<(&'static str, &'static str)>,
}

const fn setting(key: &'static str, kind: Kind, flag: &'static str) -> Setting {
    Setting {
        key,
        kind,
        flag,
        short_for: None,
        needs: None,
    }
}

/// All settings, in the order of `default.toml`; keys for actions are apart.
pub const SETTINGS: &[Setting] = &[
    setting("model", Kind::Text, "model"),
    setting("system", Kind::Text, "system"),
    setting("thinking", Kind::Switch, "thinking"),
    setting("panes", Kind::Count, "panes"),
    setting("sampling.temperature", Kind::Number, "temperature"),
    setting("sampling.top_p", Kind::Number, "top-p"),
    setting("sampling.top_k", Kind::Count, "top-k"),
    setting("sampling.min_p", Kind::Number, "min-p"),
    setting("sampling.seed", Kind::Count, "seed"),
    setting("sampling.max_tokens", Kind::Count, "max-tokens"),
    setting("engine.max_batch", Kind::Count, "max-batch"),
    setting("engine.max_queued", Kind::Count, "max-queued"),
    setting("engine.prefill_chunk", Kind::Count, "prefill-chunk"),
    setting("engine.prefill_batch_tokens", Kind::Count, "prefill-batch-tokens"),
    setting("engine.mixed_prefill", Kind::Switch, "mixed-prefill"),
    Setting {
        needs: Some(("engine.mixed_prefill", "on")),
        ..setting("engine.mixed_token_budget", Kind::Count, "mixed-token-budget")
    },
    setting("engine.kv_budget", Kind::Size, "kv-budget"),
    setting("engine.kv_bits", Kind::Count, "kv-bits"),
    Setting {
        needs: Some(("engine.kv_bits", "8")),
        ..setting("engine.kv_group_size", Kind::Count, "kv-group-size")
    },
    setting("engine.threads", Kind::Count, "threads"),
    setting("prompt_cache.memory", Kind::Size, "prompt-cache"),
    setting("prompt_cache.disk", Kind::Size, "prompt-cache-disk"),
    setting("prompt_cache.folder", Kind::Folder, "prompt-cache-dir"),
    Setting {
        short_for: Some(("no-color", "none")),
        ..setting(
            "interface.color",
            Kind::Choice(&["auto", "truecolor", "256", "16", "none"]),
            "color",
        )
    },
    setting("interface.ascii", Kind::Switch, "ascii"),
    setting("interface.bell", Kind::Switch, "bell"),
    setting("interface.bell_when_done", Kind::Switch, "bell-when-done"),
    setting("interface.thoughts", Kind::Switch, "thoughts"),
    setting("interface.theme", Kind::Text, "theme"),
    setting(
        "interface.mouse",
        Kind::Choice(&["off", "wheel", "full"]),
        "mouse",
    ),
    setting("interface.copy_on_select", Kind::Switch, "copy-on-select"),
    setting("interface.screen_reader", Kind::Switch, "screen-reader"),
    setting("interface.vim", Kind::Switch, "vim"),
    setting(
        "interface.ambiguous_width",
        Kind::Choice(&["narrow", "wide"]),
        "ambiguous-width",
    ),
];

/// The word for: as the program decides.
pub const AUTO: &str = "auto";

impl Setting {
    /// The setting with this key.
    pub fn named(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The environment variable that sets it, as `MLX_CHAT_ENGINE_MAX_BATCH`.
    pub fn variable(&self) -> String {
        variable(self.key)
    }

    /// Whether a value leaves the decision to the program.
    pub fn leaves_open(&self, value: &Value) -> bool {
        match self.kind {
            Kind::Text => value.as_str() == Some(""),
            _ => value.as_str() == Some(AUTO),
        }
    }

    /// A value of the file as the flag takes it; or what was expected. `open`: whether `"auto"` is one, too.
    pub fn flag_text(&self, value: &Value, open: bool) -> Result<String, String> {
        let wrong = || {
            let named = matches!(self.kind, Kind::Choice(words) if words.contains(&AUTO));
            let or = if open && !named { ", or \"auto\"" } else { "" };
            format!("expected {}{or}, found {}", self.kind.noun(), shown(value))
        };
        match (self.kind, value) {
            (_, Value::String(text)) if open && text == AUTO => Ok(text.clone()),
            (Kind::Text, Value::String(text)) | (Kind::Size, Value::String(text)) => Ok(text.clone()),
            (Kind::Folder, Value::String(text)) => {
                let usable = text == "off" || std::path::Path::new(text).is_absolute();
                usable.then(|| text.clone()).ok_or_else(wrong)
            }
            (Kind::Choice(words), Value::String(text)) => words
                .contains(&text.as_str())
                .then(|| text.clone())
                .ok_or_else(wrong),
            (Kind::Count | Kind::Size | Kind::Number, Value::Integer(number)) => Ok(number.to_string()),
            (Kind::Number, Value::Float(number)) => Ok(number.to_string()),
            (Kind::Switch, Value::Boolean(on)) => Ok(if *on { "on" } else { "off" }.to_owned()),
            _ => Err(wrong()),
        }
    }

    /// What a variable or a flag says, as a value of the file; text stays text where it is nothing better.
    pub fn value_of(&self, text: &str) -> Value {
        let parsed = match self.kind {
            Kind::Count => text.parse().ok().map(Value::Integer),
            Kind::Number => text.parse().ok().map(Value::Float),
            Kind::Switch => match text {
                "on" | "true" | "1" => Some(Value::Boolean(true)),
                "off" | "false" | "0" => Some(Value::Boolean(false)),
                _ => None,
            },
            Kind::Text | Kind::Size | Kind::Folder | Kind::Choice(_) => None,
        };
        parsed.unwrap_or_else(|| Value::String(text.to_owned()))
    }
}

/// What the variables of settings begin with.
pub const PREFIX: &str = "MLX_CHAT_";

/// Variables that begin so, too, and are no settings, or the beginning of them: of the build, the log, the tests.
pub const OTHERS: [&str; 9] = [
    "MLX_CHAT_BACKEND",
    "MLX_CHAT_CACHE_DIR",
    "MLX_CHAT_FUZZ_SECONDS",
    "MLX_CHAT_LIBCLANG",
    "MLX_CHAT_LOG",
    // What cargo hands on from the build.
    "MLX_CHAT_MLX_",
    "MLX_CHAT_RECORD",
    "MLX_CHAT_SIMULATION_SECONDS",
    "MLX_CHAT_TEST_",
];

/// The environment variable for a key of the file.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

impl Kind {
    /// What it takes, in words.
    pub fn noun(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Count => "a whole number".into(),
            Self::Number => "a number".into(),
            Self::Switch => "true or false".into(),
            Self::Size => "a size like \"512M\"".into(),
            Self::Folder => "a folder's whole path, or \"off\"".into(),
            Self::Choice(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                format!("one of {}", quoted.join(", "))
            }
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Table(_) => "a table".into(),
        Value::Array(_) => "a list".into(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_flags_and_variables_are_each_one_settings_alone() {
        for of in [
            |s: &Setting| s.key.to_owned(),
            |s: &Setting| s.flag.to_owned(),
            Setting::variable,
        ] {
            let all: std::collections::BTreeSet<String> = SETTINGS.iter().map(of).collect();
            assert_eq!(all.len(), SETTINGS.len());
        }
        let is_other = |setting: &Setting| OTHERS.iter().any(|other| setting.variable().starts_with(other));
        assert!(!SETTINGS.iter().any(is_other));
    }

    #[test]
    fn what_a_setting_needs_is_a_setting() {
        for (key, _) in SETTINGS.iter().filter_map(|setting| setting.needs) {
            assert!(Setting::named(key).is_some(), "{key}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_type_is_told_with_what_was_expected() {
        let batch = Setting::named("engine.max_batch").unwrap();
        let error = batch.flag_text(&Value::String("many".into()), false).unwrap_err();
        assert_eq!(error, "expected a whole number, found \"many\"");
        let chunk = Setting::named("engine.prefill_chunk").unwrap();
        assert_eq!(
            chunk.flag_text(&Value::String("auto".into()), true),
            Ok("auto".into())
        );
        let folder = Setting::named("prompt_cache.folder").unwrap();
        assert!(folder.flag_text(&Value::String("here".into()), true).is_err());
    }
}
