//! Colors of code. A thread of its own reads the syntax of what is seen, loaded at the first need; the screen shows what
//! is known and never waits. A line's colors depend on it and on the lines before it alone, so what is known of them
//! stays true while code grows.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use crate::ui::reading::markdown::{Code, chain};

/// Bytes from which on a line is left plain: some expressions take their time with it.
const LONG_LINE: usize = 2000;
/// Bytes and lines from which on a block is left plain.
const LONG_BLOCK: (usize, usize) = (256 << 10, 4000);
/// Lines that are told of at once.
const LINES: usize = 200;
/// Lines and states that are kept for sure; up to twice as many are.
const KEPT_LINES: usize = 20_000;
const KEPT_STATES: usize = 64;

/// What a piece of code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// Nothing in particular.
    Plain,
    /// A comment.
    Comment,
    /// A word of the language.
    Keyword,
    /// A text.
    Text,
    /// A number or another constant.
    Constant,
    /// What is named here, or known by its name.
    Name,
    /// Taken away, in a difference.
    Deleted,
}

/// The pieces of a line: where each ends, and what it is.
pub type Tokens = Arc<[(usize, Token)]>;

/// Code that wants colors.
#[derive(Debug)]
pub struct Wanted {
    /// Which block it is.
    block: u64,
    language: String,
    shown: String,
    /// What identifies the block's beginning.
    context: u64,
    /// The first line whose colors aren't known.
    from: usize,
}

/// A line's colors.
#[derive(Debug)]
struct FoundLine {
    context: u64,
    text: String,
    tokens: Tokens,
}

/// Colors of some lines.
#[derive(Debug)]
pub struct Found {
    lines: Vec<FoundLine>,
    /// The block, with its last lines.
    done: Option<u64>,
}

/// Things of late: those that were not asked for in a long time go.
#[derive(Debug)]
struct Recent<V> {
    new: HashMap<u64, V>,
    old: HashMap<u64, V>,
    kept: usize,
}

impl<V> Recent<V> {
    fn new(kept: usize) -> Self {
        Self {
            new: HashMap::new(),
            old: HashMap::new(),
            kept,
        }
    }

    fn insert(&mut self, key: u64, value: V) {
        if self.new.len() >= self.kept {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }

    fn get(&mut self, key: u64) -> Option<&V> {
        if let Some(value) = self.old.remove(&key) {
            self.insert(key, value);
        }
        self.new.get(&key)
    }
}

/// What is known of colors.
#[derive(Debug)]
pub struct Highlights {
    /// None where nobody looks for colors.
    ask: Option<mpsc::Sender<Wanted>>,
    lines: Recent<Tokens>,
    /// By what comes before it, the last line that was looked at: it may be growing.
    growing: Recent<(String, Tokens)>,
    /// Blocks that are being looked at.
    waiting: HashSet<u64>,
}

impl Default for Highlights {
    fn default() -> Self {
        Self {
            ask: None,
            lines: Recent::new(KEPT_LINES),
            growing: Recent::new(KEPT_LINES),
            waiting: HashSet::new(),
        }
    }
}

impl Highlights {
    /// Colors that a thread looks for; it tells what it finds by `tell`, until that says that nobody listens.
    ///
    /// # Errors
    ///
    /// If there can't be another thread.
    pub fn start(tell: impl FnMut(Found) -> bool + Send + 'static) -> std::io::Result<Self> {
        let (ask, asked) = mpsc::channel();
        std::thread::Builder::new()
            .name("highlighter".into())
            .spawn(move || work(&asked, tell))?;
        Ok(Self {
            ask: Some(ask),
            ..Self::default()
        })
    }

    /// Takes what was found; the screen has changed then.
    pub fn take(&mut self, found: Found) {
        for line in found.lines {
            self.lines
                .insert(chain(line.context, &line.text), line.tokens.clone());
            self.growing.insert(line.context, (line.text, line.tokens));
        }
        if let Some(block) = found.done {
            self.waiting.remove(&block);
        }
    }

    /// A line's colors as far as they are known: up to the last piece's end. Asks for those that aren't.
    pub fn tokens(&mut self, code: &Code, line: usize) -> Option<Tokens> {
        if code.language.is_empty() || self.ask.is_none() {
            return None;
        }
        let (context, text) = (code.context(line), code.line(line));
        if let Some(tokens) = self.lines.get(chain(context, text)) {
            return Some(tokens.clone());
        }
        self.want(code);
        let known = self.growing.get(context);
        known
            .filter(|(known, _)| text.starts_with(known.as_str()))
            .map(|(_, tokens)| tokens.clone())
    }

    fn want(&mut self, code: &Code) {
        let block = code.context(1);
        if code.shown.len() > LONG_BLOCK.0 || code.len() > LONG_BLOCK.1 || !self.waiting.insert(block) {
            return;
        }
        let missing =
            (0..code.len()).find(|at| self.lines.get(chain(code.context(*at), code.line(*at))).is_none());
        let wanted = Wanted {
            block,
            language: code.language.clone(),
            shown: code.shown.clone(),
            context: code.context(0),
            from: missing.unwrap_or(0),
        };
        let sent = self.ask.as_ref().is_some_and(|ask| ask.send(wanted).is_ok());
        if !sent {
            self.ask = None;
        }
    }
}

/// Where a language's reading is after some line.
type At = (ParseState, ScopeStack);

fn work(asked: &mpsc::Receiver<Wanted>, mut tell: impl FnMut(Found) -> bool) {
    let mut states: Recent<At> = Recent::new(KEPT_STATES);
    let syntaxes = OnceLock::new();
    while let Ok(wanted) = asked.recv() {
        let set = syntaxes.get_or_init(two_face::syntax::extra_newlines);
        if !read(&wanted, set, &mut states, &mut tell) {
            return;
        }
    }
}

/// Reads a block and tells of its lines; whether somebody listens.
fn read(
    wanted: &Wanted,
    set: &SyntaxSet,
    states: &mut Recent<At>,
    tell: &mut impl FnMut(Found) -> bool,
) -> bool {
    let mut contexts = vec![wanted.context];
    let lines: Vec<&str> = wanted.shown.lines().collect();
    for line in &lines {
        contexts.push(chain(contexts.last().copied().unwrap_or_default(), line));
    }
    let syntax = syntax(&wanted.language, set);
    let known = (1..=wanted.from.min(lines.len())).rev().find_map(|at| {
        let state = states.get(contexts[at])?;
        Some((at, state.clone()))
    });
    let (first, mut state) = match known {
        Some((at, state)) => (at, Some(state)),
        None => (
            0,
            syntax.map(|syntax| (ParseState::new(syntax), ScopeStack::new())),
        ),
    };
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().skip(first) {
        if at + 1 == lines.len()
            && let Some(state) = &state
        {
            // The last line may grow: what follows it goes on from before it.
            states.insert(contexts[at], state.clone());
        }
        let tokens = match &mut state {
            Some(state) if line.len() <= LONG_LINE => tokens(line, state, set),
            _ => Vec::new(),
        };
        found.push(FoundLine {
            context: contexts[at],
            text: (*line).to_owned(),
            tokens: tokens.into(),
        });
        let done = at + 1 == lines.len();
        if found.len() >= LINES && !done {
            let lines = std::mem::take(&mut found);
            if !tell(Found { lines, done: None }) {
                return false;
            }
        }
    }
    tell(Found {
        lines: found,
        done: Some(wanted.block),
    })
}

/// The syntax of a language by its name or by a file's ending.
fn syntax<'a>(language: &str, set: &'a SyntaxSet) -> Option<&'a SyntaxReference> {
    let name = language.to_ascii_lowercase();
    let name = match name.as_str() {
        "golang" => "go",
        "shell" | "console" | "shell-session" | "zsh" => "bash",
        "python3" | "py3" => "python",
        "csharp" | "c#" => "cs",
        "jsonc" | "json5" => "json",
        "node" | "mjs" => "js",
        "rs" => "rust",
        name => name,
    };
    set.find_syntax_by_token(name)
}

/// A line's pieces. Where the syntax fails, the line's rest is plain.
fn tokens(line: &str, (parser, scopes): &mut At, set: &SyntaxSet) -> Vec<(usize, Token)> {
    let mut out: Vec<(usize, Token)> = Vec::new();
    let mut push = |end: usize, token: Token| {
        let end = end.min(line.len());
        let start = out.last().map_or(0, |(end, _)| *end);
        match out.last_mut() {
            _ if end <= start => {}
            Some((last, of)) if *of == token => *last = end,
            _ => out.push((end, token)),
        }
    };
    let Ok(changes) = parser.parse_line(&format!("{line}\n"), set) else {
        return out;
    };
    for (at, change) in changes {
        push(at, token(scopes));
        if scopes.apply(&change).is_err() {
            return out;
        }
    }
    push(line.len(), token(scopes));
    out
}

/// What the innermost scope that says something says.
fn token(scopes: &ScopeStack) -> Token {
    static MEANINGS: OnceLock<Vec<(Scope, Token)>> = OnceLock::new();
    let meanings = MEANINGS.get_or_init(|| {
        let all = [
            ("comment", Token::Comment),
            ("meta.interpolation", Token::Plain),
            ("string", Token::Text),
            ("constant.character.escape", Token::Constant),
            ("constant", Token::Constant),
            ("keyword.operator.word", Token::Keyword),
            ("keyword.operator.logical", Token::Keyword),
            ("keyword.operator", Token::Plain),
            ("keyword", Token::Keyword),
            ("storage", Token::Keyword),
            ("variable.language", Token::Keyword),
            ("entity.name", Token::Name),
            ("entity.other.attribute-name", Token::Name),
            ("support", Token::Name),
            ("variable.function", Token::Name),
            ("markup.inserted", Token::Text),
            ("markup.deleted", Token::Deleted),
            ("markup.heading", Token::Keyword),
        ];
        let scope = |(name, token): (&str, Token)| Some((Scope::new(name).ok()?, token));
        all.into_iter().filter_map(scope).collect()
    });
    let meaning = |scope: &Scope| meanings.iter().find(|(known, _)| known.is_prefix_of(*scope));
    scopes
        .as_slice()
        .iter()
        .rev()
        .find_map(meaning)
        .map_or(Token::Plain, |(_, token)| *token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(language: &str, text: &str) -> Code {
        let source = format!("```{language}\n{text}");
        let styles = crate::ui::styles::Styles::new(crate::ui::styles::ColorMode::Sixteen, false);
        let document = crate::ui::reading::markdown::Document::new(&source, 80, &styles);
        document.code().next().unwrap().clone()
    }

    /// A thread, and what it tells.
    fn started() -> (Highlights, mpsc::Receiver<Found>) {
        let (sender, found) = mpsc::channel();
        (
            Highlights::start(move |found| sender.send(found).is_ok()).unwrap(),
            found,
        )
    }

    fn settle(highlights: &mut Highlights, found: &mpsc::Receiver<Found>) {
        while !highlights.waiting.is_empty() {
            highlights.take(found.recv().unwrap());
        }
    }

    fn words(code: &Code, line: usize, tokens: &Tokens) -> Vec<(String, Token)> {
        let mut start = 0;
        let piece = |(end, token): &(usize, Token)| {
            let text = code.line(line)[start..*end].to_owned();
            start = *end;
            (text, *token)
        };
        tokens
            .iter()
            .map(piece)
            .filter(|(_, token)| *token != Token::Plain)
            .collect()
    }

    #[test]
    fn usual_languages_have_colors() {
        let (mut highlights, found) = started();
        for (language, line, word, token) in [
            ("python", "def f(x): # why", "def", Token::Keyword),
            ("rust", "let x = \"a\";", "let", Token::Keyword),
            ("js", "const x = 'a'", "'a'", Token::Text),
            ("typescript", "let x: number = 12", "12", Token::Constant),
            ("bash", "echo hi # note", "# note", Token::Comment),
            ("c++", "int main() { return 0; }", "return", Token::Keyword),
            ("toml", "# note", "# note", Token::Comment),
            ("diff", "-gone", "-gone", Token::Deleted),
        ] {
            let code = code(language, line);
            assert!(highlights.tokens(&code, 0).is_none());
            settle(&mut highlights, &found);
            let words = words(&code, 0, &highlights.tokens(&code, 0).unwrap());
            assert!(
                words.iter().any(|(text, of)| text.trim() == word && *of == token),
                "{language}: {words:?}"
            );
        }
    }

    #[test]
    fn an_unknown_language_is_plain_and_asked_for_once() {
        let (mut highlights, found) = started();
        let code = code("klingon", "a\nb");
        highlights.tokens(&code, 0);
        highlights.tokens(&code, 1);
        settle(&mut highlights, &found);
        assert_eq!(highlights.tokens(&code, 1).unwrap().len(), 0);
        assert!(highlights.waiting.is_empty() && found.try_recv().is_err());
    }

    #[test]
    fn colors_stay_while_code_grows_and_no_line_is_read_twice() {
        let (mut highlights, found) = started();
        let whole = "def f():\n    '''a\n    text'''\n    return 12\nprint(f())\n";
        let mut known = 0;
        for end in 1..=whole.len() {
            let code = code("python", &whole[..end]);
            for line in 0..code.len() {
                let colors = highlights.tokens(&code, line);
                let complete = line + 1 < code.len();
                assert!(
                    !complete || line >= known || colors.is_some(),
                    "line {line} of {end} bytes went raw"
                );
            }
            if !highlights.waiting.is_empty() {
                let lines = found.recv().unwrap();
                assert!(lines.lines.len() <= 2, "{} lines at {end}", lines.lines.len());
                highlights.take(lines);
            }
            known = code.len().saturating_sub(1);
        }
        let code = code("python", whole);
        for line in 0..code.len() {
            let grown = highlights.tokens(&code, line).unwrap();
            let (mut fresh, answers) = started();
            fresh.tokens(&code, line);
            settle(&mut fresh, &answers);
            assert_eq!(fresh.tokens(&code, line).unwrap(), grown, "line {line}");
        }
    }

    #[test]
    fn a_line_that_grows_keeps_the_colors_of_its_beginning() {
        let (mut highlights, found) = started();
        let short = code("rust", "let x = ");
        highlights.tokens(&short, 0);
        settle(&mut highlights, &found);
        let colors = highlights.tokens(&short, 0).unwrap();
        assert_eq!(
            highlights.tokens(&code("rust", "let x = \"long"), 0),
            Some(colors)
        );
    }

    #[test]
    fn what_was_not_asked_for_in_a_long_time_goes() {
        let mut recent = Recent::new(4);
        for key in 0..100 {
            recent.insert(key, key);
            assert_eq!(recent.get(0), Some(&0), "it is asked for all the time");
        }
        assert!(recent.new.len() + recent.old.len() <= 9);
        assert_eq!(recent.get(50), None);
    }
}
