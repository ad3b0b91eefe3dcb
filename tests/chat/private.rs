//! Private panes: nothing of them is kept.

use mlx_chat::chat::{Effect, Event, Write};
use mlx_chat::engine::FinishReason;

use crate::rig::{Rig, fork, pane, session, submissions};

fn kept(effects: &[Effect]) -> bool {
    let of_it = |effect: &Effect| match effect {
        Effect::Write(Write::Records { .. }) => true,
        Effect::Write(Write::Layout(layout)) => layout.panes.iter().any(|pane| pane.session == session(9)),
        _ => false,
    };
    effects.iter().any(of_it)
}

#[test]
fn nothing_of_a_private_pane_is_written_or_cached() {
    let mut rig = Rig::ready(1);
    let mut all = rig.event(Event::NewPrivatePane { session: session(9) });
    assert_eq!(rig.state.focused(), pane(2));
    all.extend(rig.send("a secret"));
    let request = &submissions(&all)[0].2;
    assert_eq!((request.cache, request.session.as_ref()), (false, None));
    let id = rig.accept(&all)[0];
    all.extend(rig.token(id, "hush"));
    all.extend(rig.finish(id, FinishReason::Length));
    all.extend(rig.draft("more"));
    all.extend(rig.event(Event::Rename {
        title: "hidden".into(),
    }));
    all.extend(rig.event(Event::ClearDraft));
    let effects = rig.event(Event::Continue);
    assert!(!submissions(&effects)[0].2.cache);
    let id = rig.accept(&effects)[0];
    all.extend(effects);
    all.extend(rig.finish(id, FinishReason::Stop));
    all.extend(rig.event(Event::Regenerate));
    all.extend(rig.event(Event::Quit));
    assert!(!kept(&all), "{all:?}");
}

#[test]
fn a_private_pane_alone_leaves_the_layout_of_last_time() {
    let mut rig = Rig::ready(1);
    let mut all = rig.event(Event::NewPrivatePane { session: session(9) });
    all.extend(rig.draft("s"));
    all.extend(rig.send("a secret"));
    let layout = |effect: &Effect| matches!(effect, Effect::Write(Write::Layout(_)));
    assert!(!all.iter().any(layout), "{all:?}");
    assert!(!rig.state.is_stored());
}

#[test]
fn a_copy_of_a_private_pane_is_private() {
    let mut rig = Rig::ready(1);
    rig.event(Event::NewPrivatePane { session: session(9) });
    let id = rig.ask("a secret");
    rig.finish(id, FinishReason::Stop);
    let effects = rig.event(fork(10));
    assert!(rig.state.focused_pane().private);
    let written = |effect: &Effect| matches!(effect, Effect::Write(Write::Records { .. }));
    assert!(!effects.iter().any(written));
}

#[test]
fn a_closed_pane_is_reopened_even_if_it_was_empty() {
    let mut rig = Rig::ready(2);
    rig.event(Event::Focus(pane(2)));
    rig.event(Event::ClosePane);
    assert_eq!(rig.state.panes().len(), 1);
    let effects = rig.event(Event::ReopenPane);
    assert!(!effects.contains(&Effect::Bell));
    assert_eq!((rig.state.panes().len(), rig.state.focused()), (2, pane(2)));
}
