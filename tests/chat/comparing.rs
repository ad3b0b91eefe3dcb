//! Prompts to some of the panes, panes that would answer alike, and answers of which one is kept.

use mlx_chat::chat::{Effect, Event, ExportFormat, PaneId, Parameter, Settings, Write, replay};
use mlx_chat::engine::FinishReason;

use crate::rig::{Rig, finish, pane, records, session, submissions};

/// Panes that were all told the same, and answered.
fn answered(panes: u128) -> (Rig, Vec<Effect>) {
    let mut rig = Rig::ready(panes);
    rig.event(Event::ToggleBroadcast);
    let mut all = rig.send("why?");
    let requests = rig.accept(&all);
    for (number, request) in requests.into_iter().enumerate() {
        let text = format!("because {}", number + 1);
        all.extend(rig.answer(request, &[&text], finish(FinishReason::Stop)));
    }
    (rig, all)
}

fn warm(text: &str, seed: &str) -> Settings {
    let mut settings = Settings::default();
    Parameter::Temperature.set(&mut settings, text).unwrap();
    Parameter::Seed.set(&mut settings, seed).unwrap();
    settings
}

#[test]
fn a_prompt_goes_to_the_panes_that_take_part() {
    let mut rig = Rig::ready(3);
    rig.event(Event::Focus(pane(2)));
    rig.event(Event::ToggleReceives);
    rig.event(Event::ToggleBroadcast);
    assert_eq!(rig.state.targets(), [pane(1), pane(3)]);
    let sent = rig.send("all of you");
    let targets: Vec<PaneId> = submissions(&sent).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(targets, [pane(1), pane(3)], "though pane 2 has the focus");
    assert_eq!(rig.draft_of(2), "");
    rig.event(Event::ToggleBroadcast);
    assert_eq!(rig.state.targets(), [pane(2)], "alone, it is always meant");
}

#[test]
fn where_no_pane_takes_part_nothing_is_sent_and_the_draft_stays() {
    let mut rig = Rig::ready(1);
    rig.event(Event::ToggleReceives);
    rig.event(Event::ToggleBroadcast);
    let effects = rig.send("anybody?");
    assert!(submissions(&effects).is_empty() && effects.contains(&Effect::Bell));
    assert_eq!(rig.draft_of(1), "anybody?");
    assert!(rig.told().last().unwrap().contains("no pane takes part"));
}

#[test]
fn who_takes_part_is_there_again_with_the_layout() {
    let mut rig = Rig::ready(2);
    rig.draft("x");
    rig.event(Event::ToggleReceives);
    let layout = rig.state.layout();
    assert_eq!(
        layout.panes.iter().map(|p| p.receives).collect::<Vec<_>>(),
        [false, true]
    );
    let text = serde_json::to_string(&layout).unwrap();
    assert_eq!(
        serde_json::from_str::<mlx_chat::chat::Layout>(&text).unwrap(),
        layout
    );
    let old = text.replace(",\"receives\":false", "");
    let old: mlx_chat::chat::Layout = serde_json::from_str(&old).unwrap();
    assert!(old.panes.iter().all(|pane| pane.receives), "a layout of before");
}

#[test]
fn panes_that_would_answer_alike_are_told() {
    let mut rig = Rig::ready(3);
    assert_eq!(
        rig.state.alike(),
        Vec::<Vec<PaneId>>::new(),
        "without broadcast, one answers"
    );
    rig.event(Event::ToggleBroadcast);
    assert_eq!(rig.state.alike(), [[pane(1), pane(2), pane(3)]]);
    assert!(
        rig.told()
            .iter()
            .any(|text| text.starts_with("all panes will answer alike"))
    );
    // What is drawn at random differs, unless the seed is the same.
    rig.event(Event::Configure(warm("0.7", "auto")));
    assert_eq!(rig.state.alike(), [[pane(2), pane(3)]]);
    rig.event(Event::Configure(warm("0.7", "7")));
    rig.event(Event::Focus(pane(2)));
    rig.event(Event::Configure(warm("0.7", "7")));
    assert_eq!(rig.state.alike(), [[pane(1), pane(2)]]);
    rig.event(Event::Configure(warm("0.7", "8")));
    assert_eq!(rig.state.alike(), Vec::<Vec<PaneId>>::new());
}

#[test]
fn another_history_or_system_prompt_makes_another_answer() {
    let mut rig = Rig::ready(3);
    let request = rig.ask("only here");
    rig.finish(request, FinishReason::Stop);
    rig.event(Event::ToggleBroadcast);
    assert_eq!(rig.state.alike(), [[pane(2), pane(3)]]);
    rig.event(Event::Focus(pane(3)));
    let mut settings = Settings::default();
    Parameter::System.set(&mut settings, "brief").unwrap();
    rig.event(Event::Configure(settings));
    assert_eq!(rig.state.alike(), Vec::<Vec<PaneId>>::new());
}

#[test]
fn a_comparison_has_the_answers_of_all_panes_and_versions_to_the_last_prompt() {
    let (mut rig, _) = answered(3);
    rig.event(Event::ToggleBroadcast);
    rig.event(Event::Focus(pane(3)));
    let other = rig.ask("another matter");
    rig.finish(other, FinishReason::Stop);
    rig.event(Event::Focus(pane(1)));
    let effects = rig.event(Event::Regenerate);
    rig.answered(effects, &["once more"], FinishReason::Stop);
    let comparison = rig.state.comparison();
    let found: Vec<(PaneId, (usize, usize), &str)> = comparison
        .answers
        .iter()
        .map(|c| (c.pane, c.version, c.turn.answer.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (pane(1), (1, 2), "because 1"),
            (pane(1), (2, 2), "once more"),
            (pane(2), (1, 1), "because 2"),
            (pane(3), (1, 1), "because 3"),
        ],
        "pane 3 has gone on since"
    );
    let markdown = ExportFormat::Markdown.comparison(&comparison);
    assert!(
        markdown.contains("## Prompt\n\nwhy?\n") && markdown.contains("## Pane 2: why?\n"),
        "{markdown}"
    );
    assert!(markdown.contains("(version 2 of 2)") && markdown.contains("\nonce more\n"));
    let json: serde_json::Value = serde_json::from_str(&ExportFormat::Json.comparison(&comparison)).unwrap();
    assert_eq!(json["answers"][2]["answer"], "because 2");
    assert_eq!(json["answers"].as_array().unwrap().len(), 4);
    let html = ExportFormat::Html.comparison(&comparison);
    assert!(html.matches("<section>").count() == 4 && html.contains("<p>once more</p>"));
}

#[test]
fn markup_in_a_comparison_stays_text() {
    let mut rig = Rig::ready(1);
    let request = rig.ask("<b>bold?</b>");
    rig.token(request, "<script>alert(1)</script>");
    rig.finish(request, FinishReason::Stop);
    let html = ExportFormat::Html.comparison(&rig.state.comparison());
    assert!(!html.contains("<script>") && !html.contains("<b>"), "{html}");
}

#[test]
fn one_answer_is_kept_and_the_others_go_back_and_lose_nothing() {
    let (mut rig, mut all) = answered(3);
    let turn = rig.last_turn(2).record;
    let effects = rig.event(Event::Keep {
        pane: pane(2),
        turn,
        others: vec![pane(1), pane(3)],
    });
    all.extend(effects);
    assert_eq!(rig.state.focused(), pane(2));
    assert_eq!(rig.last_turn(2).answer, "because 2");
    for number in [1, 3] {
        let shown = rig.state.pane(pane(number)).unwrap();
        assert!(shown.turns.is_empty() && shown.tree.aside().count() == 1);
    }
    // The log says the same.
    let again = replay(session(1), records(&all, session(1)));
    assert!(again.turns.is_empty() && again.tree.aside().count() == 1);
    let kept = replay(session(2), records(&all, session(2)));
    assert_eq!(kept.turns.len(), 1);
    // It can be walked back to.
    rig.event(Event::Focus(pane(1)));
    let effects = rig.event(Event::Sibling { forward: true });
    assert_eq!(rig.last_turn(1).answer, "because 1");
    all.extend(effects);
    assert_eq!(replay(session(1), records(&all, session(1))).turns.len(), 1);
}

/// Two panes that have answered a prompt, of which the second's answer was kept: the first, which has the focus, has gone back.
fn second_kept() -> (Rig, Vec<Effect>) {
    let (mut rig, mut all) = answered(2);
    rig.event(Event::ToggleBroadcast);
    let turn = rig.last_turn(2).record;
    let others = vec![pane(1)];
    all.extend(rig.event(Event::Keep {
        pane: pane(2),
        turn,
        others,
    }));
    rig.event(Event::Focus(pane(1)));
    (rig, all)
}

#[test]
fn what_was_put_aside_is_shown_and_put_aside_again_by_walking() {
    let (mut rig, mut all) = second_kept();
    let shown = |rig: &Rig| rig.state.focused_pane().turns.len();
    // Around, both ways; and after a restart, which shows none at first.
    for forward in [true, false, false, true, true, true] {
        let before = shown(&rig);
        all.extend(rig.event(Event::Sibling { forward }));
        assert_eq!(shown(&rig), 1 - before);
        assert_eq!(
            replay(session(1), records(&all, session(1))).turns.len(),
            1 - before
        );
    }
    // With another version of it, these come between.
    rig.event(Event::Sibling { forward: true });
    let effects = rig.event(Event::Regenerate);
    let request = rig.accept(&effects)[0];
    rig.finish(request, FinishReason::Stop);
    for _ in 0..3 {
        rig.event(Event::Sibling { forward: true });
        assert_eq!(shown(&rig), 1, "what was sent since is what one walks between");
    }
    // In a pane in which nothing was put aside there is nowhere to go.
    rig.event(Event::Focus(pane(2)));
    assert!(
        rig.event(Event::Sibling { forward: false })
            .contains(&Effect::Bell)
    );
    let told = rig.state.notices().last().unwrap();
    assert_eq!(told.way, Some(mlx_chat::chat::Way::Another));
}

#[test]
fn panes_that_have_gone_on_are_compared_and_stay_where_they_are() {
    let (mut rig, _) = answered(3);
    rig.event(Event::ToggleBroadcast);
    for number in [2, 3] {
        rig.event(Event::Focus(pane(number)));
        let request = rig.ask(&format!("more of {number}"));
        rig.finish(request, FinishReason::Stop);
    }
    rig.event(Event::Focus(pane(1)));
    let answers = rig.state.comparison().answers;
    let found: Vec<_> = answers
        .iter()
        .map(|c| (c.pane, c.turn.answer.as_str(), c.last))
        .collect();
    assert_eq!(
        found,
        [
            (pane(1), "because 1", true),
            (pane(2), "because 2", false),
            (pane(3), "because 3", false),
        ]
    );
    // To keep such an answer goes there, and takes nothing from what followed.
    let turn = answers[1].turn.record;
    rig.event(Event::Keep {
        pane: pane(2),
        turn,
        others: vec![pane(1)],
    });
    assert_eq!(rig.state.focused(), pane(2));
    assert_eq!(rig.last_turn(2).prompt, "more of 2");
    assert!(rig.state.pane(pane(1)).unwrap().turns.is_empty());
    // Another conversation in which the same was said by the way is none of them.
    let mut rig = Rig::ready(2);
    let talks = [
        (1, vec!["rivers?", "more"]),
        (2, vec!["pearls?", "more", "thanks"]),
    ];
    for (number, prompts) in talks {
        rig.event(Event::Focus(pane(number)));
        for prompt in prompts {
            let request = rig.ask(prompt);
            rig.finish(request, FinishReason::Stop);
        }
    }
    rig.event(Event::Focus(pane(1)));
    assert_eq!(rig.state.comparison().answers.len(), 1);
}

#[test]
fn an_answer_once_more_where_nothing_is_drawn_is_told_to_be_the_same() {
    for (settings, told_so) in [(Settings::default(), true), (warm("0.7", "auto"), false)] {
        let mut rig = Rig::ready(1);
        rig.event(Event::Configure(settings));
        let request = rig.ask("why?");
        rig.finish(request, FinishReason::Stop);
        let effects = rig.event(Event::Regenerate);
        assert_eq!(submissions(&effects).len(), 1);
        let tells = rig
            .told()
            .iter()
            .any(|text| text.contains("nothing is drawn at random in pane 1"));
        assert_eq!(tells, told_so);
    }
}

#[test]
fn a_prompt_after_going_back_follows_what_was_before() {
    let (mut rig, mut all) = second_kept();
    let effects = rig.send("another way");
    assert_eq!(
        crate::rig::messages(&effects).len(),
        1,
        "the answer that was put aside isn't told"
    );
    all.extend(effects);
    let again = replay(session(1), records(&all, session(1)));
    assert_eq!((again.turns.len(), again.tree.aside().count()), (1, 1));
    assert_eq!(again.tree.siblings(&again.turns, 0), (2, 2));
}

#[test]
fn a_version_that_was_put_aside_is_kept_by_showing_it() {
    let mut rig = Rig::ready(1);
    let effects = rig.send("why?");
    rig.answered(effects, &["first"], FinishReason::Stop);
    let first = rig.last_turn(1).record;
    let effects = rig.event(Event::Regenerate);
    rig.answered(effects, &[], FinishReason::Stop);
    rig.event(Event::Keep {
        pane: pane(1),
        turn: first,
        others: Vec::new(),
    });
    assert_eq!(rig.last_turn(1).answer, "first");
}

#[test]
fn while_an_answer_runs_none_is_kept() {
    let (mut rig, _) = answered(2);
    rig.event(Event::ToggleBroadcast);
    rig.event(Event::Focus(pane(1)));
    rig.event(Event::Regenerate);
    let turn = rig.last_turn(2).record;
    let effects = rig.event(Event::Keep {
        pane: pane(2),
        turn,
        others: vec![pane(1)],
    });
    assert!(effects.contains(&Effect::Bell));
    let written = |effect: &Effect| matches!(effect, Effect::Write(Write::Records { .. }));
    assert!(!effects.iter().any(written));
    assert_eq!(rig.state.pane(pane(1)).unwrap().turns.len(), 1);
}
