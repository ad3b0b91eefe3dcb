//! Branches of a conversation: answers once more, edits, siblings, forks; closed panes and their places.

use mlx_chat::chat::{
    Access, Effect, Event, Kind, Pane, PaneId, Record, RecordId, Report, SessionId, Settings, State, Status,
    Write, replay,
};
use mlx_chat::engine::FinishReason;
use mlx_chat::text::message::Role;

use crate::rig::{Rig, at, message, messages, pane, piece, records, session, submissions};

/// Pane 1 with answered prompts.
fn answered(prompts: &[&str]) -> (Rig, Vec<Record>) {
    let (mut rig, mut log) = (Rig::ready(1), Vec::new());
    for prompt in prompts {
        let effects = rig.send(prompt);
        log.extend(records(&effects, session(1)));
        log.extend(answer(&mut rig, &effects, &format!("to {prompt}")));
    }
    (rig, log)
}

/// What was submitted is answered; gives the records of it.
fn answer(rig: &mut Rig, effects: &[Effect], text: &str) -> Vec<Record> {
    let request = rig.accept(effects)[0];
    let mut effects = rig.token(request, text);
    effects.extend(rig.finish(request, FinishReason::Stop));
    records(&effects, rig.state.focused_pane().session)
}

fn said(pane: &Pane) -> Vec<(&str, &str)> {
    pane.turns
        .iter()
        .map(|turn| (turn.prompt.as_str(), turn.answer.as_str()))
        .collect()
}

fn forward() -> Event {
    Event::Sibling { forward: true }
}

#[test]
fn an_answer_once_more_is_a_sibling_that_asks_the_same() {
    let (mut rig, _) = answered(&["one", "two"]);
    let effects = rig.event(Event::Regenerate);
    let asked = [
        message(Role::User, "one"),
        message(Role::Assistant, "to one"),
        message(Role::User, "two"),
    ];
    assert_eq!(messages(&effects), asked);
    answer(&mut rig, &effects, "another");
    let pane = rig.state.focused_pane();
    assert_eq!(said(pane), [("one", "to one"), ("two", "another")]);
    assert_eq!(pane.tree.siblings(&pane.turns, 1), (2, 2));
    assert_eq!(pane.tree.siblings(&pane.turns, 0), (1, 1));
}

#[test]
fn an_edited_prompt_is_sent_as_a_sibling_and_the_draft_comes_back() {
    let (mut rig, _) = answered(&["one", "two", "three"]);
    rig.draft("for later");
    rig.event(Event::EditPrompt);
    assert_eq!(rig.draft_of(1), "three");
    rig.event(Event::EditPrompt);
    assert_eq!(rig.draft_of(1), "two");
    let effects = rig.send("two, please");
    assert_eq!(rig.draft_of(1), "for later");
    assert_eq!(
        messages(&effects).last(),
        Some(&message(Role::User, "two, please"))
    );
    assert_eq!(messages(&effects).len(), 3);
    answer(&mut rig, &effects, "gladly");
    let pane = rig.state.focused_pane();
    assert_eq!(said(pane), [("one", "to one"), ("two, please", "gladly")]);
    assert_eq!(pane.edit, None);
    rig.event(forward());
    let all = [("one", "to one"), ("two", "to two"), ("three", "to three")];
    assert_eq!(
        said(rig.state.focused_pane()),
        all,
        "what followed comes back too"
    );
}

#[test]
fn the_first_prompt_can_be_edited_and_is_the_last_that_edits_reach() {
    let (mut rig, _) = answered(&["one"]);
    rig.event(Event::EditPrompt);
    assert_eq!(rig.event(Event::EditPrompt), [Effect::Bell]);
    let effects = rig.send("uno");
    answer(&mut rig, &effects, "sì");
    assert_eq!(said(rig.state.focused_pane()), [("uno", "sì")]);
    rig.event(forward());
    assert_eq!(said(rig.state.focused_pane()), [("one", "to one")]);
}

#[test]
fn an_edit_that_is_given_up_leaves_the_draft_as_it_was_and_its_words_in_the_history() {
    for given_up in [Event::Stop, Event::ClearDraft] {
        let (mut rig, _) = answered(&["one"]);
        rig.draft("mine");
        rig.event(Event::EditPrompt);
        rig.draft("one, changed");
        rig.event(given_up);
        let pane = rig.state.focused_pane();
        assert_eq!((pane.draft.text(), pane.edit.as_ref()), ("mine", None));
        let last = pane.history().next();
        assert_eq!(last.unwrap().text(), "one, changed");
        assert_eq!(said(pane), [("one", "to one")]);
    }
}

#[test]
fn a_changed_edit_is_not_left_for_another_prompt() {
    let (mut rig, _) = answered(&["one", "two"]);
    rig.event(Event::EditPrompt);
    rig.draft("changed");
    for event in [Event::EditPrompt, forward(), Event::Regenerate] {
        assert_eq!(rig.event(event), [Effect::Bell]);
        assert_eq!(rig.draft_of(1), "changed");
    }
}

#[test]
fn while_an_answer_runs_nothing_is_changed_above_it() {
    let (mut rig, _) = answered(&["one"]);
    rig.event(Event::Regenerate);
    for event in [Event::Regenerate, Event::EditPrompt, forward()] {
        assert_eq!(rig.event(event), [Effect::Bell]);
        assert!(
            rig.state
                .notices()
                .last()
                .unwrap()
                .text
                .contains("an answer runs here")
        );
    }
}

#[test]
fn what_can_not_be_done_is_refused_with_a_word() {
    let mut rig = Rig::ready(1);
    let fork = Event::ForkPane { session: session(9) };
    for event in [
        Event::Regenerate,
        Event::EditPrompt,
        forward(),
        fork,
        Event::ReopenPane,
    ] {
        assert_eq!(rig.event(event), [Effect::Bell]);
    }
    assert_eq!(rig.state.told().len(), 5);
    let mut loading = Rig::loading(1);
    loading.state = State::resume(
        Settings::default(),
        &rig.state.layout(),
        vec![(replay(session(1), answered(&["one"]).1), Access::Write)],
        session(1),
    );
    assert_eq!(loading.event(Event::Regenerate), [Effect::Bell]);
    assert!(loading.state.notices()[0].text.contains("still being loaded"));
}

#[test]
fn walking_goes_around_and_stays_where_the_edited_prompt_is() {
    let (mut rig, _) = answered(&["one", "two"]);
    rig.event(Event::EditPrompt);
    rig.event(Event::EditPrompt);
    let effects = rig.send("uno");
    answer(&mut rig, &effects, "a");
    let effects = rig.send("due");
    answer(&mut rig, &effects, "b");
    let effects = rig.event(Event::Regenerate);
    answer(&mut rig, &effects, "c");
    let last = |rig: &Rig| rig.last_turn(1).answer.to_string();
    rig.event(Event::Sibling { forward: false });
    assert_eq!(last(&rig), "b");
    rig.event(Event::Sibling { forward: false });
    assert_eq!(last(&rig), "c", "around the end");
    // The fork further up is reached by editing there.
    rig.event(Event::EditPrompt);
    rig.event(Event::EditPrompt);
    rig.event(forward());
    let pane = rig.state.focused_pane();
    assert_eq!((pane.draft.text(), pane.turns[1].prompt.as_str()), ("one", "two"));
    rig.event(forward());
    assert_eq!(last(&rig), "c", "the branch below is as it was left");
}

#[test]
fn the_log_keeps_every_branch_and_which_one_was_shown() {
    let (mut rig, mut log) = answered(&["one", "two"]);
    let effects = rig.event(Event::Regenerate);
    log.extend(records(&effects, session(1)));
    log.extend(answer(&mut rig, &effects, "again"));
    log.extend(records(&rig.event(forward()), session(1)));
    let pane = rig.state.focused_pane();
    assert_eq!(said(pane)[1].1, "to two");
    let told = replay(session(1), log.clone());
    assert_eq!((&told.turns, &told.tree), (&pane.turns, &pane.tree));
    // What comes next follows the branch that is shown.
    let effects = rig.send("three");
    assert_eq!(messages(&effects)[3], message(Role::Assistant, "to two"));
    log.extend(records(&effects, session(1)));
    let told = replay(session(1), log);
    let prompts: Vec<&str> = told.turns.iter().map(|turn| turn.prompt.as_str()).collect();
    assert_eq!(prompts, ["one", "two", "three"]);
    assert_eq!(told.turns[1].answer, "to two");
}

#[test]
fn an_edit_survives_a_restart_with_the_draft_that_it_put_aside() {
    let (mut rig, mut log) = answered(&["one"]);
    for effects in [
        rig.draft("later"),
        rig.event(Event::EditPrompt),
        rig.draft("one?"),
        rig.event(Event::Quit),
    ] {
        log.extend(records(&effects, session(1)));
    }
    let mut pane = Pane::restore(replay(session(1), log.clone()), Access::Write);
    assert_eq!((pane.draft.text(), pane.edited()), ("one?", Some(0)));
    // Where its prompt is lost, both texts are in the draft.
    log.retain(|record| !matches!(record.kind, Kind::User { .. }));
    pane = Pane::restore(replay(session(1), log), Access::Write);
    assert_eq!((pane.draft.text(), pane.edit.as_ref()), ("later\n\none?", None));
}

#[test]
fn a_log_without_branches_reads_as_one_branch() {
    let (_, log) = answered(&["one", "two"]);
    let told = replay(session(1), log);
    assert_eq!((told.turns.len(), told.tree.aside().count()), (2, 0));
    let old = r#"{"id":9,"parent":0,"at":"2026-01-01T00:00:00Z","type":"draft","text":"x"}"#;
    assert!(matches!(
        Record::from_line(old.as_bytes()).unwrap().kind,
        Kind::Draft { edit: None, .. }
    ));
}

#[test]
fn a_broadcast_leaves_edited_prompts_to_their_pane() {
    let (mut rig, _) = answered(&["one"]);
    rig.event(Event::NewPane { session: session(2) });
    rig.event(Event::Focus(pane(1)));
    rig.event(Event::ToggleBroadcast);
    rig.event(Event::EditPrompt);
    let effects = rig.send("uno");
    let sent: Vec<PaneId> = submissions(&effects).into_iter().map(|(pane, ..)| pane).collect();
    assert_eq!(sent, [pane(1)]);
}

#[test]
fn a_fork_has_the_shown_branch_in_a_log_of_its_own() {
    let (mut rig, _) = answered(&["one", "two"]);
    let effects = rig.event(Event::Regenerate);
    let request = rig.accept(&effects)[0];
    rig.token(request, "half");
    let effects = rig.event(Event::ForkPane { session: session(9) });
    let fork = rig.state.focused_pane();
    assert_eq!((rig.state.focused(), fork.session), (pane(2), session(9)));
    assert_eq!(said(fork), [("one", "to one"), ("two", "half")]);
    assert_eq!(fork.turns[1].status, Status::Stopped { stats: None });
    assert_eq!(fork.title, rig.state.pane(pane(1)).unwrap().title);
    let told = replay(session(9), records(&effects, session(9)));
    assert_eq!((&told.turns, &told.tree), (&fork.turns, &fork.tree));
    assert_eq!(
        fork.turns[0].status,
        rig.state.pane(pane(1)).unwrap().turns[0].status
    );
    let effects = rig.send("three");
    assert_eq!(submissions(&effects)[0].2.session, Some(session(9).to_string()));
    assert_eq!(
        rig.state.pane(pane(1)).unwrap().turns.len(),
        2,
        "the other one stays"
    );
}

#[test]
fn a_closed_pane_reopens_with_all_that_was_in_it() {
    let (mut rig, _) = answered(&["one"]);
    rig.draft("unsent");
    rig.event(Event::NewPane { session: session(2) });
    rig.event(Event::Focus(pane(1)));
    let was = rig.state.focused_pane().clone();
    rig.event(Event::ClosePane);
    assert_eq!(rig.state.panes().len(), 1);
    rig.event(Event::ReopenPane);
    assert_eq!((rig.state.focused(), rig.state.focused_pane()), (pane(1), &was));
    assert_eq!(rig.event(Event::ReopenPane), [Effect::Bell]);
}

#[test]
fn an_empty_pane_that_was_closed_reopens_too() {
    let mut rig = Rig::ready(3);
    rig.event(Event::Focus(pane(2)));
    rig.event(Event::ClosePane);
    assert_eq!(rig.state.panes().len(), 2);
    assert_eq!(rig.event(Event::ReopenPane), []);
    assert_eq!(
        (rig.state.focused(), rig.state.focused_pane().session),
        (pane(2), session(2))
    );
}

#[test]
fn a_closed_pane_whose_number_is_taken_reopens_under_a_free_one() {
    let (mut rig, _) = answered(&["one"]);
    rig.event(Event::NewPane { session: session(2) });
    rig.event(Event::Focus(pane(1)));
    rig.event(Event::ClosePane);
    rig.event(Event::NewPane { session: session(3) });
    rig.event(Event::ReopenPane);
    assert_eq!(
        (rig.state.focused(), rig.state.focused_pane().session),
        (pane(3), session(1))
    );
}

#[test]
fn only_the_last_nine_closed_panes_are_kept() {
    let mut rig = Rig::ready(1);
    let mut released: Vec<SessionId> = Vec::new();
    for n in 10..21 {
        rig.event(Event::NewPane { session: session(n) });
        rig.draft("x");
        for effect in rig.event(Event::ClosePane) {
            if let Effect::Write(Write::Release(session)) = effect {
                released.push(session);
            }
        }
    }
    assert_eq!(released, [session(10), session(11)]);
}

#[test]
fn opening_a_conversation_that_was_closed_here_reopens_it() {
    let (mut rig, log) = answered(&["one"]);
    rig.draft("newer than the log on disk");
    rig.event(Event::NewPane { session: session(2) });
    rig.event(Event::Focus(pane(1)));
    rig.event(Event::ClosePane);
    rig.event(Event::Writer(Report::Opened {
        conversation: Box::new(replay(session(1), log)),
        access: Access::Elsewhere,
    }));
    let pane = rig.state.focused_pane();
    assert_eq!(
        (&pane.access, pane.draft.text()),
        (&Access::Write, "newer than the log on disk")
    );
    assert_eq!(rig.event(Event::ReopenPane), [Effect::Bell]);
}

#[test]
fn a_moved_pane_swaps_with_its_neighbour_and_keeps_the_focus() {
    let mut rig = Rig::ready(3);
    let order =
        |rig: &Rig| -> Vec<SessionId> { rig.state.panes().values().map(|pane| pane.session).collect() };
    rig.event(Event::MovePane { forward: true });
    assert_eq!(order(&rig), [session(2), session(1), session(3)]);
    assert_eq!(rig.state.focused(), pane(2));
    rig.event(Event::MovePane { forward: false });
    rig.event(Event::MovePane { forward: false });
    assert_eq!(
        order(&rig),
        [session(3), session(2), session(1)],
        "around the beginning"
    );
    assert_eq!(rig.state.focused_pane().session, session(1));
}

#[test]
fn a_lone_pane_stays_where_it_is() {
    let mut rig = Rig::ready(1);
    rig.event(Event::MovePane { forward: true });
    assert_eq!(rig.state.focused_pane().session, session(1));
}

#[test]
fn a_running_answer_goes_on_in_a_pane_that_is_moved() {
    let mut rig = Rig::ready(2);
    let request = rig.ask("one");
    rig.event(Event::MovePane { forward: true });
    rig.token(request, "here");
    assert_eq!(rig.last_turn(2).answer, "here");
}

#[test]
fn a_prompt_under_a_name_that_is_taken_makes_no_circle() {
    let record = |id: u64, parent: u64, kind: Kind| Record {
        id: RecordId(id),
        parent: Some(RecordId(parent)),
        at: at(0),
        kind,
    };
    let user = |id, parent, text: &str| {
        let text = text.into();
        record(
            id,
            parent,
            Kind::User {
                text,
                typed: None,
                turn: 1,
                seed: None,
            },
        )
    };
    let log = [
        user(1, 0, "a"),
        user(2, 1, "b"),
        user(2, 2, "c"),
        record(3, 2, piece("x")),
        record(4, 1, Kind::Head { turn: 1 }),
        record(5, 77, Kind::Head { turn: 9 }),
    ];
    let told = replay(session(1), log);
    assert_eq!(told.turns.len(), 1);
    assert_eq!(told.tree.walk(&told.turns).len(), 2);
    assert_eq!(told.notes.len(), 1, "{:?}", told.notes);
}
