//! Tells a paste from typing in terminals that don't mark pastes: nobody types an Enter within milliseconds of text.

use std::time::Duration;

/// Keys closer than this are one burst.
const CLOSE: Duration = Duration::from_millis(8);
/// How long an Enter at the end of a burst waits for more of it.
const WAIT: Duration = Duration::from_millis(20);

/// What an Enter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enter {
    /// A key pressed by a person: send.
    Send,
    /// So many line ends within pasted text: this one, and one that waited.
    Newlines(usize),
    /// Not known before that time: [`Burst::due`].
    Wait,
}

/// The keys of late.
#[derive(Debug, Clone, Copy, Default)]
pub struct Burst {
    last: Option<Duration>,
    newlines: bool,
    waiting: Option<Duration>,
    /// What the burst that goes on has typed.
    bytes: usize,
}

impl Burst {
    /// A character comes at `now`. Whether an Enter that waited is a line end, which goes before the character.
    pub fn character(&mut self, now: Duration) -> bool {
        let waited = self.waiting.take().is_some();
        if !self.close(now) && !waited {
            self.bytes = 0;
        }
        self.newlines = (self.close(now) && self.newlines) || waited;
        self.last = Some(now);
        waited
    }

    /// An Enter comes at `now`. One that waited already is a line end, then.
    pub fn enter(&mut self, now: Duration) -> Enter {
        if self.waiting.take().is_some() {
            self.newlines = true;
            self.last = Some(now);
            return Enter::Newlines(2);
        }
        if !self.close(now) {
            return Enter::Send;
        }
        self.last = Some(now);
        if self.newlines {
            return Enter::Newlines(1);
        }
        self.waiting = Some(now + WAIT);
        Enter::Wait
    }

    /// The burst has typed so many bytes more.
    pub fn grew(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// What the burst has typed so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the Enter that waits is to be taken as a key.
    pub fn due(&self) -> Option<Duration> {
        self.waiting
    }

    /// Ends the burst; whether an Enter waited, which is a key then.
    pub fn end(&mut self) -> bool {
        let waited = self.waiting.take().is_some();
        *self = Self::default();
        waited
    }

    /// The program was busy for so long and read no key: what comes next may have come at once.
    pub fn spent(&mut self, busy: Duration) {
        for moment in [&mut self.last, &mut self.waiting].into_iter().flatten() {
            *moment += busy;
        }
    }

    fn close(&self, now: Duration) -> bool {
        self.last.is_some_and(|last| now.saturating_sub(last) <= CLOSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_enter_that_a_person_presses_sends_at_once() {
        let mut burst = Burst::default();
        assert_eq!(burst.enter(ms(0)), Enter::Send);
        burst.character(ms(100));
        assert_eq!(burst.enter(ms(160)), Enter::Send);
    }

    #[test]
    fn an_enter_amid_pasted_text_is_a_line_end() {
        let mut burst = Burst::default();
        burst.character(ms(0));
        burst.character(ms(1));
        assert_eq!(burst.enter(ms(2)), Enter::Wait);
        assert!(burst.character(ms(3)), "the Enter was a line end");
        assert_eq!(burst.due(), None);
        assert_eq!(
            burst.enter(ms(4)),
            Enter::Newlines(1),
            "a burst of several lines never sends"
        );
    }

    #[test]
    fn an_enter_after_which_nothing_comes_is_a_key() {
        let mut burst = Burst::default();
        burst.character(ms(0));
        assert_eq!(burst.enter(ms(1)), Enter::Wait);
        assert_eq!(burst.due(), Some(ms(21)));
        assert!(burst.end());
        assert!(!burst.end());
        assert_eq!(burst.enter(ms(22)), Enter::Send);
    }

    #[test]
    fn time_that_the_program_takes_itself_does_not_end_a_burst() {
        let mut burst = Burst::default();
        burst.character(ms(0));
        burst.spent(ms(60));
        assert_eq!(burst.enter(ms(62)), Enter::Wait);
        burst.spent(ms(60));
        assert_eq!(burst.due(), Some(ms(142)));
        assert!(burst.character(ms(130)), "the Enter was a line end");
    }

    #[test]
    fn two_enters_at_the_end_of_pasted_text_are_two_line_ends() {
        let mut burst = Burst::default();
        burst.character(ms(0));
        assert_eq!(burst.enter(ms(1)), Enter::Wait);
        assert_eq!(burst.enter(ms(1)), Enter::Newlines(2));
        assert!(!burst.end());
    }
}
