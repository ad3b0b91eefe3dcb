//! When what is written, against a clock of our own.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use mlx_chat::chat::writer::{DELAY, DRAFT_BYTES, Keep, RETRY, Writer};
use mlx_chat::chat::{
    Access, Ask, Conversation, End, Kind, Layout, Marks, PaneId, Record, RecordId, Report, SessionId,
    StoreError, Write, WriterThread, replay,
};

use crate::rig::{at, piece, session};

/// What was kept, and whether keeping fails.
#[derive(Default)]
struct Disk {
    full: bool,
    records: BTreeMap<SessionId, Vec<Record>>,
    syncs: usize,
    released: Vec<SessionId>,
    layout: Option<Layout>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Disk>>);

impl Shared {
    fn check(&self) -> Result<(), StoreError> {
        if self.0.lock().unwrap().full {
            let source = io::Error::from(io::ErrorKind::StorageFull);
            return Err(StoreError::Io {
                action: "write to",
                path: "log".into(),
                source,
            });
        }
        Ok(())
    }

    fn texts(&self) -> Vec<String> {
        let disk = self.0.lock().unwrap();
        let text = |record: &Record| match &record.kind {
            Kind::User { text, .. } | Kind::Delta { text, .. } | Kind::Draft { text, .. } => text.clone(),
            _ => "end".to_owned(),
        };
        disk.records.values().flatten().map(text).collect()
    }
}

impl Keep for Shared {
    fn append(&mut self, session: SessionId, records: &[Record]) -> Result<(), StoreError> {
        self.check()?;
        self.0
            .lock()
            .unwrap()
            .records
            .entry(session)
            .or_default()
            .extend_from_slice(records);
        Ok(())
    }

    fn sync(&mut self, _: SessionId) -> Result<(), StoreError> {
        self.0.lock().unwrap().syncs += 1;
        Ok(())
    }

    fn release(&mut self, session: SessionId) {
        self.0.lock().unwrap().released.push(session);
    }

    fn save_layout(&mut self, layout: &Layout) -> Result<(), StoreError> {
        self.check()?;
        self.0.lock().unwrap().layout = Some(layout.clone());
        Ok(())
    }

    fn take(&mut self, session: SessionId) -> Result<(Conversation, Access), StoreError> {
        self.check()?;
        let disk = self.0.lock().unwrap();
        let records = disk.records.get(&session).cloned();
        let records = records.ok_or(StoreError::Missing { session })?;
        Ok((replay(session, records), Access::Write))
    }

    fn rename(&mut self, session: SessionId, at: Timestamp, title: &str) -> Result<(), StoreError> {
        let title = title.to_owned();
        let record = Record {
            id: RecordId(99),
            parent: None,
            at,
            kind: Kind::Title { title },
        };
        self.append(session, &[record])
    }

    fn mark(&mut self, session: SessionId, at: Timestamp, marks: Marks) -> Result<(), StoreError> {
        let record = Record {
            id: RecordId(98),
            parent: None,
            at,
            kind: Kind::Marks { marks },
        };
        self.append(session, &[record])
    }

    fn put_away(&mut self, session: SessionId, _: Timestamp) -> Result<String, StoreError> {
        self.check()?;
        let gone = self.0.lock().unwrap().records.remove(&session);
        gone.map(|_| String::new()).ok_or(StoreError::Missing { session })
    }

    fn bring_back(&mut self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }
}

fn write(kind: Kind) -> Write {
    let record = Record {
        id: RecordId(1),
        parent: Some(RecordId(0)),
        at: at(0),
        kind,
    };
    Write::Records {
        session: session(1),
        records: vec![record],
    }
}

fn user(text: &str) -> Write {
    write(Kind::User {
        text: text.into(),
        typed: None,
        turn: 1,
        seed: None,
    })
}

fn delta(text: &str) -> Write {
    write(piece(text))
}

fn draft(text: &str) -> Write {
    write(Kind::Draft {
        text: text.into(),
        cursor: 0,
        pastes: Vec::new(),
        queued: None,
        queued_typed: None,
        edit: None,
    })
}

fn end() -> Write {
    let (title, reason) = (String::new(), End::Stop);
    write(Kind::Finish {
        reason,
        stop_reason: None,
        message: None,
        stats: None,
        thoughts: Vec::new(),
        turn: 1,
        title,
        tokens: None,
        marks: Default::default(),
    })
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn writer() -> (Writer<Shared>, Shared) {
    let disk = Shared::default();
    (Writer::new(disk.clone()), disk)
}

#[test]
fn prompts_and_ends_are_written_and_synced_at_once() {
    let (mut writer, disk) = writer();
    for (n, write) in [user("hi"), end()].into_iter().enumerate() {
        writer.push(ms(5), write);
        assert_eq!(writer.due(), Some(ms(5)));
        writer.poll(ms(5));
        assert_eq!(disk.0.lock().unwrap().syncs, n + 1);
    }
    assert_eq!(disk.texts(), ["hi", "end"]);
    assert_eq!(writer.due(), None);
}

#[test]
fn pieces_of_an_answer_are_joined_and_written_within_half_a_second() {
    let (mut writer, disk) = writer();
    for n in 0..5 {
        writer.push(ms(n * 100), delta("x"));
        writer.poll(ms(n * 100));
    }
    assert!(DELAY <= Duration::from_secs(1));
    assert_eq!((writer.due(), disk.texts()), (Some(DELAY), vec![]));
    writer.poll(DELAY);
    assert_eq!(disk.texts(), ["xxxxx"]);
    assert_eq!(disk.0.lock().unwrap().syncs, 0);
}

#[test]
fn pieces_go_before_the_end_that_follows_them() {
    let (mut writer, disk) = writer();
    writer.push(ms(0), delta("a"));
    writer.push(ms(1), delta("b"));
    writer.push(ms(2), end());
    writer.poll(ms(2));
    assert_eq!(disk.texts(), ["ab", "end"]);
}

#[test]
fn pieces_of_different_answers_stay_apart() {
    let (mut writer, disk) = writer();
    writer.push(ms(0), delta("a"));
    let other = Record {
        id: RecordId(9),
        parent: Some(RecordId(8)),
        at: at(0),
        kind: piece("b"),
    };
    writer.push(
        ms(0),
        Write::Records {
            session: session(1),
            records: vec![other],
        },
    );
    writer.flush();
    assert_eq!(disk.texts(), ["a", "b"]);
}

#[test]
fn only_the_newest_draft_is_written_and_a_large_one_later() {
    let (mut writer, disk) = writer();
    writer.push(ms(0), draft("h"));
    writer.push(ms(100), draft("he"));
    assert_eq!(writer.due(), Some(DELAY));
    writer.poll(DELAY);
    assert_eq!(disk.texts(), ["he"]);
    let large = "x".repeat(DRAFT_BYTES * 4);
    writer.push(ms(1000), draft(&large));
    assert_eq!(writer.due(), Some(ms(1000) + DELAY * 4));
    writer.push(ms(1001), user("sent"));
    writer.poll(ms(1001));
    assert_eq!(disk.texts(), ["he".to_owned(), large, "sent".to_owned()]);
}

#[test]
fn what_can_not_be_written_is_kept_told_once_and_tried_again() {
    let (mut writer, disk) = writer();
    disk.0.lock().unwrap().full = true;
    writer.push(ms(0), user("hi"));
    let Some(Report::Failing { message }) = writer.poll(ms(0)) else {
        panic!("no report")
    };
    assert!(message.contains("can't write to log"), "{message}");
    assert_eq!(writer.due(), Some(RETRY));
    writer.push(ms(10), delta("a"));
    writer.push(ms(11), user("more"));
    assert_eq!((writer.due(), writer.poll(ms(20))), (Some(RETRY), None));
    assert_eq!(writer.poll(RETRY), None);
    assert_eq!(writer.due(), Some(RETRY * 2));
    disk.0.lock().unwrap().full = false;
    assert_eq!(writer.poll(RETRY * 2), Some(Report::Recovered));
    assert_eq!(disk.texts(), ["hi", "a", "more"]);
}

#[test]
fn a_layout_that_can_not_be_written_is_kept_too() {
    let (mut writer, disk) = writer();
    let mut layout = Layout {
        version: 1,
        panes: vec![],
        focused: PaneId::FIRST,
        broadcast: false,
        zoomed: false,
    };
    disk.0.lock().unwrap().full = true;
    writer.push(ms(0), Write::Layout(layout.clone()));
    assert!(matches!(writer.poll(ms(0)), Some(Report::Failing { .. })));
    layout.zoomed = true;
    writer.push(ms(1), Write::Layout(layout.clone()));
    assert_eq!(writer.due(), Some(RETRY));
    disk.0.lock().unwrap().full = false;
    assert_eq!(writer.poll(RETRY), Some(Report::Recovered));
    assert_eq!(disk.0.lock().unwrap().layout, Some(layout));
}

#[test]
fn a_log_is_let_go_only_after_its_records_are_written() {
    let (mut writer, disk) = writer();
    disk.0.lock().unwrap().full = true;
    writer.push(ms(0), delta("a"));
    writer.push(ms(0), Write::Release(session(1)));
    writer.poll(ms(0));
    assert!(disk.0.lock().unwrap().released.is_empty());
    disk.0.lock().unwrap().full = false;
    writer.poll(RETRY);
    assert_eq!(disk.0.lock().unwrap().released, [session(1)]);
    assert_eq!(disk.texts(), ["a"]);
}

#[test]
fn the_thread_writes_everything_before_it_ends_and_says_what_it_could_not() {
    let disk = Shared::default();
    let thread = WriterThread::start(disk.clone(), |_| {}).unwrap();
    thread.send(delta("late"));
    thread.finish().unwrap();
    assert_eq!(disk.texts(), ["late"]);

    let (tell, told) = std::sync::mpsc::channel();
    disk.0.lock().unwrap().full = true;
    let thread = WriterThread::start(disk.clone(), move |report| tell.send(report).unwrap()).unwrap();
    thread.send(user("lost"));
    assert!(matches!(told.recv().unwrap(), Report::Failing { .. }));
    assert!(
        thread
            .finish()
            .unwrap_err()
            .to_string()
            .contains("could not be saved")
    );
}

#[test]
fn a_piece_of_an_answer_reaches_the_disk_without_anything_following_it() {
    let (tell, told) = std::sync::mpsc::channel();
    struct Telling(std::sync::mpsc::Sender<usize>);
    impl Keep for Telling {
        fn append(&mut self, _: SessionId, records: &[Record]) -> Result<(), StoreError> {
            self.0.send(records.len()).unwrap();
            Ok(())
        }
        fn sync(&mut self, _: SessionId) -> Result<(), StoreError> {
            Ok(())
        }
        fn release(&mut self, _: SessionId) {}
        fn save_layout(&mut self, _: &Layout) -> Result<(), StoreError> {
            Ok(())
        }
        fn take(&mut self, session: SessionId) -> Result<(Conversation, Access), StoreError> {
            Err(StoreError::Missing { session })
        }
        fn rename(&mut self, _: SessionId, _: Timestamp, _: &str) -> Result<(), StoreError> {
            Ok(())
        }
        fn mark(&mut self, _: SessionId, _: Timestamp, _: Marks) -> Result<(), StoreError> {
            Ok(())
        }
        fn put_away(&mut self, session: SessionId, _: Timestamp) -> Result<String, StoreError> {
            Err(StoreError::Missing { session })
        }
        fn bring_back(&mut self) -> Result<Option<String>, StoreError> {
            Ok(None)
        }
    }
    let thread = WriterThread::start(Telling(tell), |_| {}).unwrap();
    thread.send(delta("x"));
    assert_eq!(told.recv().unwrap(), 1);
    drop(thread);
}

#[test]
fn a_conversation_that_waits_to_be_saved_is_neither_opened_nor_deleted() {
    let (mut writer, disk) = writer();
    disk.0.lock().unwrap().full = true;
    writer.push(ms(0), user("hi"));
    for ask in [
        Ask::Open(session(1)),
        Ask::Remove {
            session: session(1),
            at: Timestamp::UNIX_EPOCH,
        },
    ] {
        let told = writer.push(ms(1), Write::Ask(ask));
        assert!(matches!(told, Some(Report::Refused { message }) if message.contains("waits to be saved")));
    }
    disk.0.lock().unwrap().full = false;
    let told = writer.push(ms(2), Write::Ask(Ask::Open(session(1))));
    assert!(matches!(told, Some(Report::Opened { .. })), "{told:?}");
    assert_eq!(disk.texts(), ["hi"]);
}
