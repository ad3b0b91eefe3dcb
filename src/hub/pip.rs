//! pip's own settings: where packages come from, by which certificates and proxy. Variables win over files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use super::address::Address;
use super::error::HubError;
use super::surroundings::Surroundings;

/// What pip is told about indexes, as far as a download needs it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PipSettings {
    /// `index-url`; none where nothing is configured, which means pip's own default.
    pub index: Option<Address>,
    /// `extra-index-url`.
    pub extra: Vec<Address>,
    /// `find-links`: folders, pages or files, looked at first.
    pub find_links: Vec<String>,
    /// `no-index`: only `find-links` may be looked at.
    pub no_index: bool,
    /// `cert`: PEM file or folder.
    pub cert: Option<PathBuf>,
    /// `proxy`.
    pub proxy: Option<String>,
    /// `timeout`.
    pub timeout: Option<Duration>,
    /// `trusted-host`: host or host:port whose certificate isn't checked.
    pub trusted: Vec<String>,
}

impl PipSettings {
    /// Reads variables and settings files, in pip's order.
    pub fn read(around: &Surroundings) -> Result<Self, HubError> {
        let files = FileSettings::read(around);
        let value = |key: &str| {
            let variable = format!("PIP_{}", key.to_ascii_uppercase().replace('-', "_"));
            around
                .text(&variable)
                .map(|text| (variable, text))
                .or_else(|| files.get(key))
        };
        let words = |key: &str| -> Vec<(String, String)> {
            let (from, text) = value(key).unwrap_or_default();
            text.split_whitespace()
                .map(|word| (from.clone(), word.to_string()))
                .collect()
        };
        let address = |(from, text): (String, String)| {
            Address::parse(&text)
                .map_err(|why| HubError::Pip(format!("the address in {from} can't be used: {why}")))
        };
        let timeout = value("default-timeout").or_else(|| value("timeout"));
        Ok(Self {
            index: value("index-url").map(address).transpose()?,
            extra: words("extra-index-url")
                .into_iter()
                .map(address)
                .collect::<Result<_, _>>()?,
            find_links: words("find-links").into_iter().map(|(_, word)| word).collect(),
            no_index: value("no-index").map(truth).transpose()?.unwrap_or(false),
            cert: value("cert").map(|(_, path)| around.expand_home(path.trim())),
            proxy: value("proxy").map(|(_, proxy)| proxy),
            timeout: timeout.map(seconds).transpose()?,
            trusted: words("trusted-host")
                .into_iter()
                .map(|(_, host)| host.to_ascii_lowercase())
                .collect(),
        })
    }
}

fn truth((from, text): (String, String)) -> Result<bool, HubError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" | "t" | "true" | "on" | "1" => Ok(true),
        "n" | "no" | "f" | "false" | "off" | "0" => Ok(false),
        other => Err(HubError::Pip(format!("{from} is '{other}'; it takes yes or no"))),
    }
}

fn seconds((from, text): (String, String)) -> Result<Duration, HubError> {
    let parsed = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    parsed
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| {
            HubError::Pip(format!(
                "{from} is '{text}'; it takes a number of seconds above 0"
            ))
        })
}

/// Keys of the settings files with the file each came from; later files and `[install]` win.
struct FileSettings(HashMap<String, (String, String)>);

impl FileSettings {
    fn read(around: &Surroundings) -> Self {
        let mut all = HashMap::new();
        let mut of_install = HashMap::new();
        for path in settings_files(around) {
            let Some(text) = (around.settings_file)(&path) else {
                continue;
            };
            for (section, key, value) in parse_ini(&text) {
                let entry = (format!("{} of {}", key, path.display()), value);
                match section.as_str() {
                    "global" => all.insert(key, entry),
                    "install" => of_install.insert(key, entry),
                    _ => None,
                };
            }
        }
        all.extend(of_install);
        Self(all)
    }

    fn get(&self, key: &str) -> Option<(String, String)> {
        self.0
            .get(key)
            .filter(|(_, value)| !value.trim().is_empty())
            .cloned()
    }
}

/// The files pip reads, weakest first.
fn settings_files(around: &Surroundings) -> Vec<PathBuf> {
    let named = around.text("PIP_CONFIG_FILE").map(PathBuf::from);
    if named.as_deref().is_some_and(|path| path == "/dev/null") {
        return Vec::new();
    }
    let mut files = Vec::new();
    let shared = around
        .text("XDG_CONFIG_DIRS")
        .unwrap_or_else(|| "/etc/xdg".into());
    files.extend(
        shared
            .split(':')
            .rev()
            .filter(|dir| !dir.is_empty())
            .map(|dir| PathBuf::from(dir).join("pip/pip.conf")),
    );
    if cfg!(target_os = "macos") {
        files.push("/Library/Application Support/pip/pip.conf".into());
    }
    files.push("/etc/pip.conf".into());
    let home = around.home();
    if let Some(home) = &home {
        files.push(home.join(".pip/pip.conf"));
    }
    let config = around
        .text("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|h| h.join(".config")));
    files.extend(config.map(|config| config.join("pip/pip.conf")));
    if cfg!(target_os = "macos") {
        files.extend(home.map(|home| home.join("Library/Application Support/pip/pip.conf")));
    }
    files.extend(
        around
            .text("VIRTUAL_ENV")
            .map(|root| PathBuf::from(root).join("pip.conf")),
    );
    files.extend(named);
    files
}

/// Section, key and value of each entry, as Python's `RawConfigParser` reads them; an indented line goes on with a value.
fn parse_ini(text: &str) -> Vec<(String, String, String)> {
    let mut entries: Vec<(String, String, String)> = Vec::new();
    let mut section = String::new();
    let mut open = false;
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if open && line.starts_with([' ', '\t']) {
            if let Some((_, _, value)) = entries.last_mut() {
                value.push('\n');
                value.push_str(content);
            }
        } else if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_string();
            open = false;
        } else if let Some((key, value)) = content.split_once(['=', ':']) {
            let key = key.trim().to_ascii_lowercase().replace('_', "-");
            let key = key.trim_start_matches('-').to_string();
            entries.push((section.clone(), key, value.trim().to_string()));
            open = true;
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;

    /// Surroundings of these variables and files only.
    fn around(vars: &[(&str, &str)], files: &[(&str, &str)]) -> Surroundings {
        let own = |list: &[(&str, &str)]| -> HashMap<String, String> {
            list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
        };
        let (vars, files) = (own(vars), own(files));
        Surroundings {
            var: Arc::new(move |name| vars.get(name).map(Into::into)),
            settings_file: Arc::new(move |path: &Path| files.get(path.to_str()?).cloned()),
            python: Arc::new(|_, _| Err("no Python here".into())),
            free_bytes: Arc::new(|_| None),
        }
    }

    fn read(vars: &[(&str, &str)], files: &[(&str, &str)]) -> PipSettings {
        PipSettings::read(&around(vars, files)).unwrap()
    }

    #[test]
    fn nothing_configured_means_no_index_of_our_own() {
        assert_eq!(read(&[("HOME", "/h")], &[]), PipSettings::default());
    }

    #[test]
    fn variables_are_read() {
        let pip = read(
            &[
                ("PIP_INDEX_URL", "https://u:p@i.test/simple"),
                ("PIP_EXTRA_INDEX_URL", "http://a/ http://b/"),
                ("PIP_FIND_LINKS", "/wheels ~/w"),
                ("PIP_NO_INDEX", "0"),
                ("PIP_CERT", "~/ca.pem"),
                ("PIP_PROXY", "proxy:3128"),
                ("PIP_DEFAULT_TIMEOUT", "2.5"),
                ("PIP_TRUSTED_HOST", "Box.test box2:8080"),
                ("HOME", "/h"),
            ],
            &[],
        );
        assert_eq!(pip.index.unwrap().credentials().unwrap().user, "u");
        assert_eq!(pip.extra.len(), 2);
        assert_eq!(pip.find_links, ["/wheels", "~/w"]);
        assert!(!pip.no_index);
        assert_eq!(pip.cert.unwrap(), PathBuf::from("/h/ca.pem"));
        assert_eq!(pip.proxy.unwrap(), "proxy:3128");
        assert_eq!(pip.timeout, Some(Duration::from_millis(2500)));
        assert_eq!(pip.trusted, ["box.test", "box2:8080"]);
    }

    #[test]
    fn files_are_read_weakest_first_and_variables_win_over_them() {
        let files = [
            (
                "/etc/pip.conf",
                "[global]\nindex-url = http://machine/\ntimeout = 9\nproxy = m:1",
            ),
            ("/h/.pip/pip.conf", "[global]\nindex-url = http://old-user/"),
            (
                "/h/.config/pip/pip.conf",
                "[global]\nindex_url: http://user/\ncert = /u.pem",
            ),
            ("/v/pip.conf", "[global]\nproxy = venv:1"),
            ("/named.conf", "[global]\ncert = /named.pem"),
        ];
        let vars = [
            ("HOME", "/h"),
            ("VIRTUAL_ENV", "/v"),
            ("PIP_CONFIG_FILE", "/named.conf"),
        ];
        let pip = read(&vars, &files);
        assert_eq!(pip.index.unwrap().host(), "user");
        assert_eq!(pip.proxy.unwrap(), "venv:1");
        assert_eq!(pip.cert.unwrap(), PathBuf::from("/named.pem"));
        assert_eq!(pip.timeout, Some(Duration::from_secs(9)));
        let pip = read(&[vars[0], ("PIP_INDEX_URL", "http://variable/")], &files);
        assert_eq!(pip.index.unwrap().host(), "variable");
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let pip = read(
            &[("PIP_INDEX_URL", " ")],
            &[("/etc/pip.conf", "[global]\nindex-url=http://file/")],
        );
        assert_eq!(pip.index.unwrap().host(), "file");
    }

    #[test]
    fn the_install_section_wins_over_global_and_others_do_not_count() {
        let text = "[list]\nindex-url=http://list/\n[install]\nindex-url=http://install/\n[global]\nindex-url=http://global/";
        assert_eq!(
            read(&[], &[("/etc/pip.conf", text)]).index.unwrap().host(),
            "install"
        );
    }

    #[test]
    fn several_addresses_may_follow_on_indented_lines_and_comments_are_skipped() {
        let text = "# mine\n[global]\nextra-index-url =\n    http://a/simple\n    # not this\n    http://b/simple\n; end\nfind-links = /w";
        let pip = read(&[], &[("/etc/pip.conf", text)]);
        assert_eq!(
            pip.extra.iter().map(Address::host).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(pip.find_links, ["/w"]);
    }

    #[test]
    fn dev_null_as_settings_file_turns_all_files_off() {
        let pip = read(
            &[("PIP_CONFIG_FILE", "/dev/null")],
            &[("/etc/pip.conf", "[global]\nindex-url=http://x/")],
        );
        assert_eq!(pip.index, None);
    }

    #[test]
    fn wrong_values_are_errors_that_name_their_place_and_hide_passwords() {
        for (name, value, says) in [
            ("PIP_INDEX_URL", "u:secret@host/simple", "PIP_INDEX_URL"),
            ("PIP_NO_INDEX", "maybe", "'maybe'"),
            ("PIP_DEFAULT_TIMEOUT", "-1", "above 0"),
            ("PIP_DEFAULT_TIMEOUT", "nan", "above 0"),
        ] {
            let error = PipSettings::read(&around(&[(name, value)], &[]))
                .unwrap_err()
                .to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
    }
}
