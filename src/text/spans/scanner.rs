//! Takes a stream of text apart at its markers.

use super::markup::{CHANNEL, CONSTRAIN, ENDS, MESSAGE, Markup, PAIRS, START};
use super::{Span, Spanned};

/// A channel's header is no longer than this many bytes; what is, is no header.
const HEADER: usize = 256;

/// Takes an answer apart as it comes, and holds back whatever may still become a marker.
///
/// It looks at one character after the other, so the outcome doesn't depend on how the stream is cut. Everything that
/// goes in comes out, in order: what was held back at the latest with [`Scanner::finish`]. A thought may begin where no
/// word of the answer has come yet; a `<think>` within a sentence is text.
#[derive(Debug, Clone)]
pub struct Scanner {
    markup: Markup,
    state: State,
    /// Nothing but white space has come since the answer began or a span ended.
    fresh: bool,
    held: String,
    /// A channel's header so far: its pieces, and whether each is a marker.
    header: Vec<(bool, String)>,
    /// The header's words behind the last `<|channel|>`.
    words: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Answer,
    /// Within a pair of markers.
    Pair(usize),
    /// Between `<|start|>` or `<|channel|>` and `<|message|>`.
    Header,
    /// Behind `<|message|>`.
    Channel(Span),
}

/// What a marker does where it is looked for.
#[derive(Debug, Clone, Copy)]
enum Action {
    Enter(usize),
    Leave,
    Drop,
    Header,
    Message,
}

impl Scanner {
    pub(super) fn new(markup: Markup, tail: &str) -> Self {
        let mut scanner = Self {
            markup,
            state: State::Answer,
            fresh: true,
            held: String::new(),
            header: Vec::new(),
            words: String::new(),
        };
        if scanner.markup.set().channels {
            scanner.push(tail);
            scanner.held.clear();
            scanner.header.clear();
        } else {
            scanner.state = scanner.opened_by(tail);
        }
        scanner.fresh = true;
        scanner
    }

    /// The state behind a prompt's end: the pair that was opened last, if it wasn't closed.
    fn opened_by(&self, tail: &str) -> State {
        let open = |at: &&usize| {
            let pair = PAIRS.get(**at)?;
            let opened = tail.rfind(pair.open)?;
            let closed = !pair.close.is_empty() && tail.rfind(pair.close) > Some(opened);
            (!closed).then_some((opened, **at))
        };
        let pairs = self.markup.set().pairs.iter();
        let last = pairs.filter_map(|at| open(&at)).max();
        last.map_or(State::Answer, |(_, at)| State::Pair(at))
    }

    /// What the next character belongs to, as far as is known.
    pub fn span(&self) -> Span {
        match self.state {
            State::Answer | State::Header => Span::Answer,
            State::Pair(at) => PAIRS.get(at).map_or(Span::Answer, |pair| pair.span),
            State::Channel(span) => span,
        }
    }

    /// Takes the next piece of the stream and gives what is known of it.
    pub fn push(&mut self, text: &str) -> Spanned {
        let mut out = Spanned::default();
        if self.markup.is_empty() {
            out.push(Span::Answer, false, text);
            return out;
        }
        for c in text.chars() {
            self.held.push(c);
            self.advance(&mut out);
        }
        out
    }

    /// The stream ended: what was held back is text after all.
    pub fn finish(&mut self) -> Spanned {
        let mut out = Spanned::default();
        let held = std::mem::take(&mut self.held);
        self.text(&held, &mut out);
        self.give_up_header(&mut out);
        out
    }

    /// Takes from the front of what is held all that is decided.
    fn advance(&mut self, out: &mut Spanned) {
        while let Some(first) = self.held.chars().next() {
            let mut waits = false;
            let mut found = None;
            for (marker, action) in self.markers() {
                if self.held.starts_with(marker) {
                    found = Some((marker, action));
                    break;
                }
                waits |= marker.starts_with(self.held.as_str());
            }
            if let Some((marker, action)) = found {
                self.held.drain(..marker.len());
                self.act(marker, action, out);
            } else if waits {
                return;
            } else {
                self.held.drain(..first.len_utf8());
                self.text(first.encode_utf8(&mut [0; 4]), out);
            }
        }
    }

    /// What is looked for at present.
    fn markers(&self) -> impl Iterator<Item = (&'static str, Action)> {
        let set = self.markup.set();
        let (state, fresh, channels) = (self.state, self.fresh, set.channels);
        let opens = set.pairs.iter().filter_map(move |at| {
            let pair = PAIRS.get(*at)?;
            let looked_for = state == State::Answer && (pair.span != Span::Thinking || fresh);
            looked_for.then_some((pair.open, Action::Enter(*at)))
        });
        let within = match state {
            State::Pair(at) => PAIRS.get(at),
            _ => None,
        };
        let closes = within.filter(|pair| !pair.close.is_empty());
        let again = within.filter(|pair| pair.span == Span::Thinking);
        let wrappers = set.wrappers.iter().filter(move |_| state == State::Answer);
        let header = match state {
            State::Header => Action::Message,
            _ => Action::Drop,
        };
        let channel = [
            (CHANNEL, Action::Header),
            (START, Action::Header),
            (MESSAGE, header),
            (
                CONSTRAIN,
                if state == State::Header {
                    Action::Header
                } else {
                    Action::Drop
                },
            ),
        ];
        let ends = ENDS.iter().map(|end| (*end, Action::Leave));
        let channel = channel.into_iter().chain(ends).filter(move |_| channels);
        closes
            .map(|pair| (pair.close, Action::Leave))
            .into_iter()
            .chain(again.map(|pair| (pair.open, Action::Drop)))
            .chain(opens)
            .chain(wrappers.map(|text| (*text, Action::Drop)))
            .chain(channel)
            .chain(set.control.iter().map(|text| (*text, Action::Drop)))
    }

    fn act(&mut self, marker: &'static str, action: Action, out: &mut Spanned) {
        match action {
            Action::Enter(at) => {
                self.state = State::Pair(at);
                out.push(self.span(), true, marker);
            }
            Action::Leave => {
                self.give_up_header(out);
                out.push(self.span(), true, marker);
                self.state = State::Answer;
                self.fresh = true;
            }
            Action::Drop => out.push(self.span(), true, marker),
            Action::Header => {
                if marker == CHANNEL {
                    self.words.clear();
                }
                self.header.push((true, marker.to_owned()));
                self.state = State::Header;
            }
            Action::Message => {
                let span = self.channel();
                self.state = State::Channel(span);
                for (_, piece) in std::mem::take(&mut self.header) {
                    out.push(span, true, &piece);
                }
                self.words.clear();
                out.push(span, true, marker);
            }
        }
    }

    /// What a channel's text is, by its header.
    fn channel(&self) -> Span {
        let addressed = self.header.iter().any(|(_, piece)| piece.contains("to="));
        if addressed || self.words.contains("to=") {
            Span::ToolCall
        } else if self.words.trim_start().starts_with("analysis") {
            Span::Thinking
        } else {
            Span::Answer
        }
    }

    fn text(&mut self, text: &str, out: &mut Spanned) {
        if text.is_empty() {
            return;
        }
        if self.state != State::Header {
            self.fresh &= text.trim().is_empty();
            out.push(self.span(), false, text);
            return;
        }
        self.words.push_str(text);
        match self.header.last_mut() {
            Some((false, piece)) => piece.push_str(text),
            _ => self.header.push((false, text.to_owned())),
        }
        if self.words.len() > HEADER {
            self.give_up_header(out);
        }
    }

    /// A header that comes to nothing: its words are text.
    fn give_up_header(&mut self, out: &mut Spanned) {
        if self.state == State::Header {
            for (marker, piece) in std::mem::take(&mut self.header) {
                out.push(Span::Answer, marker, &piece);
            }
            self.words.clear();
            self.state = State::Answer;
            self.fresh = false;
        }
    }
}
