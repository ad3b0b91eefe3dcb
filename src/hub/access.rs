//! Where the model hub is, and who asks it: the variables and files that its other programs honour.

use std::path::PathBuf;

use super::address::{Address, Origin, percent_encoded};
use super::http::Login;
use super::repo_error::Asked;
use super::surroundings::Surroundings;

/// The hub asked where HF_ENDPOINT names no other.
const ENDPOINT: &str = "https://huggingface.co";

/// A model hub and what it is told about who asks.
#[derive(Debug, Clone)]
pub(super) struct Access {
    /// Ends with `/`.
    endpoint: Address,
    token: Option<Token>,
}

#[derive(Clone)]
struct Token {
    text: String,
    /// The variable or file that it is from.
    from: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token(of {})", self.from)
    }
}

impl Access {
    /// Reads `HF_ENDPOINT`, and the token: `HF_TOKEN`, else the file `HF_TOKEN_PATH`, else `$HF_HOME/token`. The error
    /// says which of them can't be used.
    pub fn read(around: &Surroundings) -> Result<Self, String> {
        let endpoint = around.text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.into());
        let endpoint = Address::parse(&format!("{}/", endpoint.trim().trim_end_matches('/')))
            .ok()
            .filter(|address| address.scheme() != "file")
            .ok_or("the address in HF_ENDPOINT can't be used: it must begin with https:// or http://")?;
        Ok(Self {
            endpoint,
            token: token(around)?,
        })
    }

    /// The hub's address without credentials.
    pub fn endpoint(&self) -> String {
        self.endpoint.to_string().trim_end_matches('/').to_string()
    }

    /// What tells what a revision of a repository has.
    pub fn listing(&self, id: &str, revision: &str) -> Result<Address, String> {
        let revision = percent_encoded(revision);
        self.endpoint
            .join(&format!("api/models/{id}/revision/{revision}?blobs=true"))
    }

    /// A file of a repository.
    pub fn file(&self, id: &str, revision: &str, path: &str) -> Result<Address, String> {
        let parts: Vec<String> = path.split('/').map(percent_encoded).collect();
        let revision = percent_encoded(revision);
        self.endpoint
            .join(&format!("{id}/resolve/{revision}/{}", parts.join("/")))
    }

    /// The page of a repository for people.
    pub fn page(&self, id: &str) -> String {
        format!("{}/{id}", self.endpoint())
    }

    /// What the hub, and nobody else, is sent with each request.
    pub fn login(&self) -> Option<(Origin, Login)> {
        let token = self.token.as_ref()?;
        Some((self.endpoint.origin(), Login::Bearer(token.text.clone())))
    }

    /// Who asks, for messages.
    pub fn asked(&self) -> Asked {
        match &self.token {
            Some(token) => Asked::WithToken(token.from.clone()),
            None => Asked::WithoutToken,
        }
    }
}

fn token(around: &Surroundings) -> Result<Option<Token>, String> {
    let (text, from) = match around.text("HF_TOKEN") {
        Some(text) => (text, "HF_TOKEN".to_string()),
        None => {
            let named = around.text("HF_TOKEN_PATH").map(|path| around.expand_home(&path));
            let Some(path) = named.or_else(|| Some(home(around)?.join("token"))) else {
                return Ok(None);
            };
            let Some(text) = (around.settings_file)(&path) else {
                return Ok(None);
            };
            (text, path.display().to_string())
        }
    };
    let text = text.trim().to_string();
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!(
            "the token of {from} can't be sent: it has characters that tokens don't have"
        ));
    }
    Ok(Some(Token { text, from }))
}

/// Where the hub's programs keep their files: `HF_HOME`, else `$XDG_CACHE_HOME/huggingface`, else below the home folder.
pub(super) fn home(around: &Surroundings) -> Option<PathBuf> {
    let named = around.text("HF_HOME").map(|path| around.expand_home(&path));
    let cache = around
        .text("XDG_CACHE_HOME")
        .map(|path| around.expand_home(&path));
    named.or_else(|| {
        let cache = cache.or_else(|| Some(around.home()?.join(".cache")))?;
        Some(cache.join("huggingface"))
    })
}

/// Whether a variable says yes as the hub's programs read it.
pub(super) fn says_yes(around: &Surroundings, name: &str) -> bool {
    let value = around.text(name).unwrap_or_default();
    ["1", "on", "yes", "true"].contains(&value.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn around(vars: &[(&str, &str)], file: Option<(&str, &str)>) -> Surroundings {
        let vars: Vec<(String, String)> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let file = file.map(|(path, text)| (PathBuf::from(path), text.to_string()));
        Surroundings {
            var: Arc::new(move |name| {
                vars.iter()
                    .find(|(key, _)| key == name)
                    .map(|(_, value)| value.into())
            }),
            settings_file: Arc::new(move |path| {
                file.as_ref()
                    .filter(|(at, _)| at == path)
                    .map(|(_, text)| text.clone())
            }),
            ..Surroundings::of_process()
        }
    }

    fn asked(vars: &[(&str, &str)], file: Option<(&str, &str)>) -> Asked {
        Access::read(&around(vars, file)).unwrap().asked()
    }

    #[test]
    fn the_token_comes_from_the_variable_else_the_file_named_else_the_homes() {
        let with = |from: &str| Asked::WithToken(from.into());
        let home = [("HF_HOME", "/hf")];
        let file = Some(("/hf/token", " hf_x\n"));
        assert_eq!(asked(&[("HF_TOKEN", "hf_y"), home[0]], file), with("HF_TOKEN"));
        assert_eq!(asked(&home, file), with("/hf/token"));
        assert_eq!(
            asked(&[("HF_TOKEN_PATH", "/t"), home[0]], file),
            Asked::WithoutToken
        );
        assert_eq!(
            asked(&[("HF_TOKEN_PATH", "/t")], Some(("/t", "hf_x"))),
            with("/t")
        );
        assert_eq!(
            asked(&[("XDG_CACHE_HOME", "/c")], Some(("/c/huggingface/token", "t"))),
            with("/c/huggingface/token")
        );
        assert_eq!(
            asked(&[("HOME", "/me")], Some(("/me/.cache/huggingface/token", "t"))),
            with("/me/.cache/huggingface/token")
        );
        assert_eq!(asked(&home, Some(("/hf/token", "\n"))), Asked::WithoutToken);
    }

    #[test]
    fn a_token_is_never_shown() {
        let access = Access::read(&around(&[("HF_TOKEN", "hf_secret")], None)).unwrap();
        let shown = format!("{access:?} {:?} {:?}", access.login(), access.asked());
        assert!(!shown.contains("hf_secret"), "{shown}");
        let error = Access::read(&around(&[("HF_TOKEN", "hf_se cret")], None)).unwrap_err();
        assert!(error.contains("HF_TOKEN") && !error.contains("cret"), "{error}");
    }

    #[test]
    fn addresses_keep_the_endpoints_path_and_escape_what_names_hold() {
        let access = Access::read(&around(&[("HF_ENDPOINT", "http://mirror.test/hf/")], None)).unwrap();
        let file = access.file("o/n", "refs/pr/1", "sub/a b#1?.gguf").unwrap();
        assert_eq!(
            file.wire(),
            "http://mirror.test/hf/o/n/resolve/refs%2Fpr%2F1/sub/a%20b%231%3F.gguf"
        );
        let listing = access.listing("o/n", "main").unwrap();
        assert_eq!(
            listing.wire(),
            "http://mirror.test/hf/api/models/o/n/revision/main?blobs=true"
        );
        assert_eq!(access.page("o/n"), "http://mirror.test/hf/o/n");
        assert!(Access::read(&around(&[("HF_ENDPOINT", "mirror.test")], None)).is_err());
    }
}
