//! What a stored conversation is as Markdown and as HTML.

use mlx_chat::chat::{Event, ExportFormat, Settings, to_markdown};
use mlx_chat::engine::FinishReason;

use crate::rig::{Rig, session};
use crate::store::{keep, store, talk};

#[test]
fn the_markdown_has_every_turn_and_how_it_ended() {
    let (mut store, _folder) = store();
    let mut rig = Rig::ready(1);
    let settings = Settings {
        system: Some("be kind".into()),
        ..Settings::default()
    };
    keep(&mut store, &rig.event(Event::Configure(settings)));
    keep(&mut store, &talk(&mut rig, "cafés"));
    let effects = rig.send("refused");
    keep(&mut store, &effects);
    keep(&mut store, &rig.refuse(&effects));
    let text = to_markdown(&store.load(session(1)).unwrap());
    let expected = format!(
        "# Tell me of cafés\n\n_session {} · begun 2023-11-14T22:13:20Z_\n\n## System\n\nbe kind\n\n## User\n\nTell me of \
         cafés\nplease\n\n## Assistant\n\nCafé 👍\n\"quoted\" \u{1b}[31m\n\n## User\n\nmore\n\n## Assistant\n\nwell\n\n\
         _(stopped)_\n\n## User\n\nrefused\n\n## Assistant\n\n_(failed: the queue is full (64 requests wait already): \
         try again when one has started)_\n",
        session(1)
    );
    assert_eq!(text, expected);
}

/// The articles of a page with this answer.
fn page(answer: &str) -> String {
    let (mut store, _folder) = store();
    let mut rig = Rig::ready(1);
    let mut effects = rig.send("**plain** <i>");
    let request = rig.accept(&effects)[0];
    effects.extend(rig.token(request, answer));
    effects.extend(rig.finish(request, FinishReason::Stop));
    keep(&mut store, &effects);
    let page = ExportFormat::Html.document(&store.load(session(1)).unwrap());
    let (_, body) = page.split_once("<h2>User</h2>\n").unwrap();
    body.to_owned()
}

#[test]
fn an_answer_is_set_as_the_markdown_that_it_is() {
    let page = page(
        "# Top\n\nA *b* **c** `d<e` and $x_1 + y_1$.\n\n- one\n  1. two\n\n> said\n\n```rust\nfn a() { b < c && \"d\" }\n```\n\n\
         | l | r |\n|:--|--:|\n| 1 | 2 |\n\n[site](https://a.example/?b=c&d=\"e\") <me@b.example> ![alt](http://c.example/p.png)\n",
    );
    for part in [
        "<article class=\"plain user\">**plain** &lt;i&gt;</article>",
        "<h3>Top</h3>\n<p>A <em>b</em> <strong>c</strong> <code>d&lt;e</code> and \
         <span class=\"formula\" title=\"$x_1 + y_1$\">x₁ + y₁</span>.</p>",
        "<ul>\n<li>one\n<ol>\n<li>two</li>\n</ol>",
        "<blockquote>\n<p>said</p>",
        "<pre><code class=\"language-rust\">fn a() { b &lt; c &amp;&amp; \"d\" }\n</code></pre>",
        "<th style=\"text-align: right\">r</th>",
        "<td style=\"text-align: left\">1</td>",
        "<a href=\"https://a.example/?b=c&amp;d=%22e%22\">site</a>",
        "<a href=\"mailto:me@b.example\">me@b.example</a>",
        "<a href=\"http://c.example/p.png\">alt</a>",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

#[test]
fn formulas_are_readable_and_tell_how_they_were_written() {
    let page = page(
        "**With \\(a \\leq b\\) within** and `$x$`.\n\n$$\nE = mc^2\n$$\n\n```\n$y_1$\n```\n\n\\[\\unknown{q}_1\\] \
         [l](https://a.example/$b_1$c$) for $5 and $6\n",
    );
    for part in [
        "<strong>With <span class=\"formula\" title=\"\\(a \\leq b\\)\">a ≤ b</span> within</strong> and <code>$x$</code>",
        "title=\"$$\nE = mc^2\n$$\">E = mc²</span>",
        "<pre><code>$y_1$\n</code></pre>",
        "\\unknown{q}_1",
        "href=\"https://a.example/$b_1$c$\"",
        "for $5 and $6",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

#[test]
fn nothing_of_an_answer_acts_in_the_page() {
    let hostile = [
        "<script>alert(1)</script>\n\nand <img src=x onerror=alert(1)> <b onclick='a()'>b</b>",
        "</article></body><style>*{display:none}</style>",
        "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](java&#10;script:alert(1)) [e](//e.example)",
        "<javascript:alert(1)> ![f](javascript:alert(1)) [![g](data:x)](vbscript:h)",
        "[h](https://h.example/\"onmouseover=\"alert(1)) [i](https://i.example \"t\\\" onclick=\\\"a\")",
        "![j [k](https://k.example/) l](https://l.example/)",
        "```x\" onclick=\"a\n</code></pre><script>\n```",
        "# h {#id onclick=a .c}\n\n| <td onclick=a> |\n|---|\n| <script> |",
        "$x_1 <script>$ and \\(\\frac{<b onclick=a>}{\"onclick=a\"}\\) and $$x^2\" onclick=\"a$$",
        "\\[\n\\alpha < \"b\" > <script>\n\\]\n\n[$x_1$](javascript:$x_1$) $\\text{\"><script>}$",
        "&lt;script&gt; &#27;[2J \u{1b}[2J\u{9b}",
        "[m]: javascript:alert(1)\n\n[m] and [m][m]\n\n<!-- c --><?php?><![CDATA[x]]>\n\n<!doctype x>",
    ];
    const TAGS: [&str; 24] = [
        "span",
        "h2",
        "h3",
        "article",
        "p",
        "a",
        "pre",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "em",
        "strong",
        "ul",
        "ol",
        "li",
        "blockquote",
        "br",
        "hr",
        "body",
        "html",
    ];
    for text in hostile {
        let page = page(text);
        assert!(!page.chars().any(|c| c.is_control() && c != '\n'), "{page:?}");
        assert_eq!(page.matches("</article>").count(), 2, "{page}");
        for tag in page.split('<').skip(1) {
            let (inside, _) = tag
                .split_once('>')
                .unwrap_or_else(|| panic!("an open tag in {page}"));
            let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
            assert!(
                TAGS.contains(&name.trim_start_matches('/')),
                "<{inside}> in {page}"
            );
            let harmless = match (name, attributes) {
                (_, "") => true,
                ("a", href) => ["http://", "https://", "mailto:"].iter().any(|scheme| {
                    let address = href
                        .strip_prefix("href=\"")
                        .and_then(|rest| rest.strip_suffix('"'));
                    address.is_some_and(|address| address.starts_with(scheme) && !address.contains('"'))
                }),
                ("span", formula) => {
                    let tex = formula
                        .strip_prefix("class=\"formula\" title=\"")
                        .and_then(|rest| rest.strip_suffix('"'));
                    tex.is_some_and(|tex| !tex.contains('"'))
                }
                ("article", class) => class == "class=\"plain user\"",
                ("code", class) => {
                    let language = class
                        .strip_prefix("class=\"language-")
                        .and_then(|rest| rest.strip_suffix('"'));
                    language.is_some_and(|language| !language.contains('"'))
                }
                _ => false,
            };
            assert!(harmless, "<{inside}> in {page}");
        }
        let links = page.replace("</a>", "\0");
        let mut open = false;
        for c in links.split("<a ").skip(1) {
            assert!(!open && c.contains('\0'), "a link within a link in {page}");
            open = !c.contains('\0');
        }
    }
}
