//! What a stored conversation is as Markdown.

use mlx_chat::chat::{Event, Settings, to_markdown};

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
