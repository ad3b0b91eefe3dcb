use super::*;

/// Settings read from a file's text, with variables, where every value will do.
fn read(text: &str, variables: &[(&str, &str)]) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, text).unwrap();
    let var = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Config::read(&Sources {
        file: &file,
        var: &var,
        variables: &variables
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect::<Vec<_>>(),
        flags: &BTreeMap::from([("panes", ("panes".to_owned(), "7".to_owned()))]),
        actions: &["new_pane".to_owned(), "send".to_owned(), "retry".to_owned()],
        check: &|_, text| {
            if text == "13" {
                Err("it brings bad luck".into())
            } else {
                Ok(())
            }
        },
    })
}

fn shown(config: &Config, key: &str) -> (String, String) {
    let entry = config.entry(key).unwrap();
    let origin = entry.origin.to_string();
    let origin = origin.rsplit('/').next().unwrap().to_owned();
    (entry.value.to_string(), origin)
}

fn pair(value: &str, origin: &str) -> (String, String) {
    (value.into(), origin.into())
}

#[test]
fn every_setting_has_a_default_that_is_written_down() {
    let (lines, faults) = file::read(DEFAULTS);
    assert_eq!(faults, []);
    let written: Vec<&str> = lines.iter().map(|line| line.key.as_str()).collect();
    let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    let settings: Vec<&str> = written
        .iter()
        .copied()
        .filter(|key| !key.starts_with(KEYS))
        .collect();
    assert_eq!(settings, known);
    assert_eq!(Config::defaults().entries.len(), SETTINGS.len());
    for line in DEFAULTS.lines().filter(|line| line.contains(" = ")) {
        assert!(
            line.contains(" # ") || line.starts_with('#') || line.contains('['),
            "no word on {line}"
        );
    }
}

#[test]
fn flags_come_before_variables_these_before_the_file_and_that_before_defaults() {
    let text = "panes = 3\n[engine]\nmax_batch = 4\nmax_queued = 5\n";
    let variables = [("MLX_CHAT_PANES", "4"), ("MLX_CHAT_ENGINE_MAX_BATCH", "6")];
    let config = read(text, &variables);
    assert_eq!(config.told(), [""; 0]);
    assert_eq!(shown(&config, "panes"), pair("7", "--panes"));
    assert_eq!(
        shown(&config, "engine.max_batch"),
        pair("6", "MLX_CHAT_ENGINE_MAX_BATCH")
    );
    assert_eq!(shown(&config, "engine.max_queued"), pair("5", "config.toml:4"));
    assert_eq!(shown(&config, "engine.threads"), pair("\"auto\"", "default"));
}

/// What is wrong, the file by its name alone.
fn told(config: &Config) -> Vec<String> {
    let problems = config.told().into_iter();
    problems
        .map(|p| p.rsplit('/').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_wrong_value_is_told_and_what_came_before_counts() {
    let config = read(
        "[engine]\nmax_batch = 'x'\nmax_queued = 13\n",
        &[("MLX_CHAT_ENGINE_THREADS", "many")],
    );
    assert_eq!(
        told(&config),
        [
            "config.toml:2: engine.max_batch: expected a whole number, found \"x\"; 8 counts instead",
            "config.toml:3: engine.max_queued: it brings bad luck; 64 counts instead",
            "MLX_CHAT_ENGINE_THREADS: engine.threads: expected a whole number, or \"auto\", found \"many\"; \"auto\" counts instead",
        ]
    );
    assert_eq!(shown(&config, "engine.max_batch"), pair("8", "default"));
}

#[test]
fn an_unknown_key_is_told_with_the_one_that_may_be_meant() {
    let config = read(
        "max_batch = 4\n[engine]\nmax_bach = 3\nfoo = 1\n[keys]\nnew_pan = []\n[empty]\n",
        &[],
    );
    assert_eq!(
        told(&config),
        [
            "config.toml:1: max_batch: there is no such setting; is engine.max_batch meant?",
            "config.toml:3: engine.max_bach: there is no such setting; is engine.max_batch meant?",
            "config.toml:4: engine.foo: there is no such setting",
            "config.toml:6: keys.new_pan: there is no such setting; is keys.new_pane meant?",
        ]
    );
}

#[test]
fn a_variable_that_is_no_settings_is_told_with_the_one_that_may_be_meant() {
    let variables = [
        "MLX_CHAT_ENGINE_MAX_BACH",
        "MLX_CHAT_KEYS_SEND",
        "MLX_CHAT_NOPE",
        "MLX_CHAT_LOG",
        "MLX_CHAT_TEST_DEVICE",
        "MLX_CHAT_MLX_VERSION",
        "MLX",
    ];
    let config = read("", &variables.map(|name| (name, "f7")));
    assert_eq!(
        told(&config),
        [
            "MLX_CHAT_ENGINE_MAX_BACH: no setting has this variable; is MLX_CHAT_ENGINE_MAX_BATCH meant?",
            "MLX_CHAT_NOPE: no setting has this variable",
        ]
    );
}

#[test]
fn a_broken_line_leaves_the_others() {
    let config = read("panes = \nsystem = 'brief'\n", &[]);
    assert_eq!(config.told().len(), 1, "{:?}", config.told());
    assert!(config.told()[0].contains("config.toml:1: "));
    assert_eq!(shown(&config, "system"), pair("\"brief\"", "config.toml:2"));
}

#[test]
fn a_file_that_is_no_text_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::read(&Sources {
        file: folder.path(),
        var: &|_| None,
        variables: &[],
        flags: &BTreeMap::new(),
        actions: &[],
        check: &|_, _| Ok(()),
    });
    assert!(config.told()[0].contains("can't be read"), "{:?}", config.told());
}

#[test]
fn what_a_new_file_begins_with_says_nothing_and_names_every_setting() {
    let begins = template();
    let config = read(&begins, &[]);
    assert_eq!(config.told(), Vec::<String>::new());
    let mut entries = config.entries.iter().filter(|entry| entry.setting.key != "panes");
    assert!(entries.all(|entry| entry.origin == Origin::Default));
    for setting in SETTINGS {
        let name = setting.key.rsplit('.').next().unwrap();
        assert!(begins.contains(&format!("# {name} = ")), "{name}");
    }
}

#[test]
fn keys_are_lists_of_the_file_or_words_of_a_variable() {
    let config = read(
        "[keys]\nsend = ['ctrl-j']\nnew_pane = 4\nretry = 'f4'\n",
        &[("MLX_CHAT_KEYS_NEW_PANE", "f5 ctrl-n")],
    );
    assert_eq!(config.told().len(), 1, "{:?}", config.told());
    assert!(config.told()[0].contains("config.toml:3: keys.new_pane: expected a list"));
    let keys: Vec<_> = config
        .keys
        .iter()
        .map(|entry| (entry.action.as_str(), entry.keys.join(",")))
        .collect();
    assert_eq!(
        keys,
        [
            ("send", "ctrl-j".to_owned()),
            ("retry", "f4".to_owned()),
            ("new_pane", "f5,ctrl-n".to_owned())
        ]
    );
}

#[test]
fn what_leaves_the_decision_open_says_nothing() {
    let config = read(
        "model = ''\nthinking = 'auto'\n[engine]\nmixed_prefill = false\n",
        &[],
    );
    let said = |key| config.entry(key).unwrap().said();
    assert_eq!((said("model"), said("thinking")), (None, None));
    assert_eq!(said("engine.mixed_prefill"), Some("off".into()));
}

#[test]
fn the_schema_has_each_setting_with_its_default_and_nothing_else() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../assets/config.schema.json")).unwrap();
    let mut written = Vec::new();
    gather(&schema, "", &mut written);
    let (lines, _) = file::read(DEFAULTS);
    let json = |value: &Value| serde_json::to_value(value).unwrap();
    let mut known: Vec<_> = lines
        .iter()
        .map(|line| (line.key.clone(), json(&line.value)))
        .collect();
    written.sort_by(|left, right| left.0.cmp(&right.0));
    known.sort_by(|left, right| left.0.cmp(&right.0));
    assert_eq!(written, known);
}

/// Every key of a schema with its default; each has a description, and no table takes others.
fn gather(schema: &serde_json::Value, within: &str, into: &mut Vec<(String, serde_json::Value)>) {
    assert_eq!(schema["additionalProperties"], false, "{within}");
    for (name, property) in schema["properties"].as_object().unwrap() {
        let key = format!("{within}{name}");
        if property.get("properties").is_some() {
            gather(property, &format!("{key}."), into);
        } else {
            assert!(
                property["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{key}"
            );
            into.push((key, property["default"].clone()));
        }
    }
}
