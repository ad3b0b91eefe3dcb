//! `sessions`: what is kept of conversations, without a terminal.

use serde_json::{Value, json};

use super::program::Program;

/// ChatGPT's export of one conversation whose second prompt was edited and whose first answer was given twice.
fn export() -> Value {
    let node = |id: &str, parent: Option<&str>, children: &[&str], role: &str, text: &str| {
        let message = json!({"author": {"role": role}, "create_time": 1700000000.5,
            "content": {"content_type": "text", "parts": [text]}});
        (
            id.to_owned(),
            json!({"id": id, "message": message, "parent": parent, "children": children}),
        )
    };
    let mut mapping: serde_json::Map<String, Value> = [
        node("sys", Some("root"), &["u1"], "system", ""),
        node("u1", Some("sys"), &["a1", "a2"], "user", "Why do rivers wind?"),
        node(
            "a1",
            Some("u1"),
            &["u2", "u3"],
            "assistant",
            "They \u{1b}[31merode.",
        ),
        node("a2", Some("u1"), &[], "assistant", "Nobody knows."),
        node("u2", Some("a1"), &["t"], "user", "More"),
        node("t", Some("u2"), &["a3"], "tool", "a tool's words"),
        node("a3", Some("t"), &[], "assistant", "Meanders grow."),
        node("u3", Some("a1"), &["a4"], "user", "Shorter"),
        node("a4", Some("u3"), &[], "assistant", "Erosion."),
    ]
    .into_iter()
    .collect();
    mapping.insert(
        "root".into(),
        json!({"id": "root", "message": null, "parent": null, "children": ["sys"]}),
    );
    json!([{"title": "Winding rivers", "create_time": 1700000000.0, "update_time": 1700000100.0,
        "mapping": mapping, "current_node": "a3"}])
}

/// The program with that conversation; its id.
fn with_rivers() -> (Program, String) {
    let program = Program::new();
    let file = program.file("conversations.json", export().to_string());
    let output = program.run(&["sessions", "import", &file]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let listed = program.run(&["sessions", "list", "--json"]).json();
    let id = listed[0][0]["id"].as_str().unwrap().to_owned();
    (program, id)
}

#[test]
fn without_conversations_the_list_is_empty() {
    let program = Program::new();
    let output = program.run(&["sessions", "list"]);
    assert_eq!(
        (output.code, output.stdout.as_str(), output.stderr.as_str()),
        (0, "", "")
    );
    assert_eq!(program.run(&["sessions", "list", "--json"]).json(), [json!([])]);
}

#[test]
fn an_imported_tree_is_listed_and_shown_along_its_current_branch() {
    let (program, id) = with_rivers();
    let listed = &program.run(&["sessions", "list", "--json"]).json()[0][0];
    assert_eq!(
        (&listed["title"], &listed["turns"]),
        (&json!("Winding rivers"), &json!(2))
    );
    assert_eq!(
        listed["updated"], "2023-11-14T22:13:20.5Z",
        "when something was said last"
    );
    let plain = program.run(&["sessions", "list"]).stdout;
    assert!(
        plain.starts_with(&id) && plain.contains("2 turns") && plain.contains("Winding rivers"),
        "{plain}"
    );
    let shown = program.run(&["sessions", "show", &id]).stdout;
    assert!(
        shown.contains("They ␛[31merode.") && shown.contains("Meanders grow."),
        "{shown}"
    );
    assert!(
        !shown.contains("Shorter") && !shown.contains("a tool's words"),
        "{shown}"
    );
}

#[test]
fn the_json_export_has_every_branch_and_can_be_imported_again() {
    let (program, id) = with_rivers();
    let exported = program.path("rivers.json");
    let file = exported.to_str().unwrap();
    let output = program.run(&["sessions", "export", &id, "--format", "json", "-o", file]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&exported).unwrap()).unwrap();
    let of = |key: &str| -> Vec<Value> {
        let turns = document["turns"].as_array().unwrap();
        turns.iter().map(|turn| turn[key].clone()).collect()
    };
    let mut answers: Vec<String> = of("answer")
        .iter()
        .map(|a| a.as_str().unwrap().to_owned())
        .collect();
    answers.sort();
    assert_eq!(
        answers,
        [
            "Erosion.",
            "Meanders grow.",
            "Nobody knows.",
            "They \u{1b}[31merode."
        ]
    );
    assert_eq!(of("shown").iter().filter(|shown| **shown == true).count(), 2);
    assert_eq!(document["messages"].as_array().unwrap().len(), 4);
    assert_eq!(program.run(&["sessions", "import", file]).code, 0);
    let listed = program.run(&["sessions", "list", "--json"]).json();
    assert_eq!(listed[0].as_array().unwrap().len(), 2);
    assert_eq!(listed[0][0]["title"], listed[0][1]["title"]);
}

#[test]
fn html_makes_no_markup_of_what_was_said() {
    let program = Program::new();
    let list = json!([{"role": "system", "content": "be <b>kind</b>"},
        {"role": "user", "content": [{"type": "text", "text": "<script>alert(1)</script>"}]},
        {"role": "assistant", "content": "a & b", "reasoning_content": "hm"}]);
    let file = program.file("list.json", list.to_string());
    assert_eq!(program.run(&["sessions", "import", &file]).code, 0);
    let listed = program.run(&["sessions", "list", "--json"]).json();
    let id = listed[0][0]["id"].as_str().unwrap();
    let page = program
        .run(&["sessions", "export", id, "--format", "html"])
        .stdout;
    assert!(
        page.starts_with("<!doctype html>") && page.contains("a &amp; b"),
        "{page}"
    );
    assert!(
        page.contains("&lt;script&gt;") && !page.contains("<script>"),
        "{page}"
    );
    assert!(
        page.contains("be &lt;b&gt;kind") && page.contains("<summary>Thinking"),
        "{page}"
    );
}

#[test]
fn titles_models_and_messages_can_not_steer_the_terminal() {
    let program = Program::new();
    let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}b";
    let talk =
        json!({"title": hostile, "model": hostile, "messages": [{"role": "user", "content": hostile}]});
    let file = program.file("talk.json", talk.to_string());
    let imported = program.run(&["sessions", "import", &file]);
    assert_eq!(imported.code, 0, "{imported:?}");
    let id = imported.stdout.split(' ').next().unwrap().to_owned();
    let outputs = [
        imported,
        program.run(&["sessions", "list"]),
        program.run(&["sessions", "show", &id]),
        program.run(&["sessions", "search", "31m"]),
        program.run(&["sessions", "search", hostile, "nowhere"]),
        program.run(&["sessions", "rm", hostile]),
        program.run(&["sessions", "rm", &id]),
    ];
    for output in outputs {
        let all = output.stdout + &output.stderr;
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!all.is_empty() && !all.contains(bad), "{all:?}");
    }
}

#[test]
fn lines_of_message_lists_are_a_conversation_each() {
    let program = Program::new();
    let line = |text: &str| json!({"messages": [{"role": "user", "content": text}]}).to_string();
    let file = program.file("lists.jsonl", format!("{}\n{}\n", line("first"), line("second")));
    let output = program.run(&["sessions", "import", &file]);
    assert_eq!(output.stdout.lines().count(), 2, "{output:?}");
    let found = program.run(&["sessions", "search", "--json", "second"]).json();
    assert_eq!(found[0].as_array().unwrap().len(), 2, "{found:?}");
}

#[test]
fn what_was_imported_before_is_told_and_not_doubled() {
    let (program, id) = with_rivers();
    let file = program.path("conversations.json");
    let file = file.to_str().unwrap();
    let again = program.run(&["sessions", "import", file]);
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{again:?}");
    assert!(
        again.stderr.contains("imported before, and left as they are: 1"),
        "{again:?}"
    );
    // One that was deleted for good comes anew, under its name.
    assert_eq!(program.run(&["sessions", "rm", "--yes", &id]).code, 0);
    let anew = program.run(&["sessions", "import", file]);
    assert!(anew.stdout.starts_with(&id) && anew.stderr.is_empty(), "{anew:?}");
}

#[test]
fn archived_and_pinned_ones_are_marked_where_they_are_listed_and_found() {
    let (program, id) = with_rivers();
    let log = program.path(&format!("state/mlx-chat/sessions/{id}.jsonl"));
    let mark = json!({"id": 99, "parent": 0, "at": "2024-01-01T00:00:00Z", "type": "marks",
        "marks": {"archived": true, "pinned": true}});
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, format!("{text}{mark}\n")).unwrap();
    let listed = program.run(&["sessions", "list"]).stdout;
    assert!(
        listed.ends_with("Winding rivers  (pinned, archived)\n"),
        "{listed}"
    );
    let found = program.run(&["sessions", "search", "volcano erosion"]);
    assert_eq!(found.stdout, "");
    let found = program.run(&["sessions", "search", "erosion"]).stdout;
    assert!(found.ends_with("Erosion.  (pinned, archived)\n"), "{found}");
    let json = program.run(&["sessions", "search", "--json", "erosion"]).json();
    assert_eq!(json[0][0]["archived"], true);
}

#[test]
fn search_wants_all_words_and_looks_into_every_branch() {
    let (program, id) = with_rivers();
    let found = program
        .run(&["sessions", "search", "RIVERS", "wind", "--json"])
        .json();
    let places: Vec<(&Value, &Value)> = found[0]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| (&hit["turn"], &hit["role"]))
        .collect();
    // The prompt was answered twice.
    let prompt = (&json!(1), &json!("user"));
    assert_eq!(places, [(&Value::Null, &Value::Null), prompt, prompt]);
    let hidden = program.run(&["sessions", "search", "nobody"]).stdout;
    assert!(
        hidden.starts_with(&id) && hidden.contains("turn 1, assistant  Nobody knows."),
        "{hidden}"
    );
    let none = program.run(&["sessions", "search", "volcano"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert!(none.stderr.contains("volcano"));
}

#[test]
fn a_conversation_is_removed_by_the_beginning_of_its_id_and_only_when_sure() {
    let (program, id) = with_rivers();
    let beginning = &id[..8];
    program
        .run(&["sessions", "rm", beginning])
        .fails(2, &["--yes", &id]);
    assert_eq!(program.run(&["sessions", "rm", "--yes", beginning]).code, 0);
    program
        .run(&["sessions", "show", beginning])
        .fails(1, &[beginning, "sessions list"]);
}

#[test]
fn what_can_be_read_of_a_file_is_taken_and_the_rest_is_told() {
    let program = Program::new();
    let said = |text: &str| json!({"messages": [{"role": "user", "content": text}]});
    let mixed = json!([said("first"), {"title": "Broken", "mapping": 3}, {"messages": []}, said("last")]);
    let mixed = program.file("mixed.json", mixed.to_string());
    let output = program.run(&["sessions", "import", &mixed]);
    assert_eq!((output.code, output.stdout.lines().count()), (0, 2), "{output:?}");
    assert!(output.stdout.contains("  1 turn   first"), "{output:?}");
    for told in [
        "conversation 2, \"Broken\", can't be read: it has a `mapping`, but not as ChatGPT exports it",
        "left out, since it says nothing: 1 conversation",
    ] {
        assert!(output.stderr.contains(told), "{output:?}");
    }
    // Of several files each is read, whatever the others are.
    let other = program.file("other.json", said("other").to_string());
    let output = program.run(&["sessions", "import", "/there/is/none", &other]);
    assert_eq!((output.code, output.stdout.lines().count()), (1, 1), "{output:?}");
    assert!(output.stderr.contains("/there/is/none"), "{output:?}");
}

#[test]
fn an_imported_answer_keeps_its_model_and_a_document_is_what_its_name_says() {
    let program = Program::new();
    let talk = json!({"title": "Slugs", "current_node": "b", "mapping": {
        "a": {"message": {"author": {"role": "user"}, "content": {"parts": ["Hi"]}}, "children": ["b"]},
        "b": {"message": {"author": {"role": "assistant"}, "content": {"parts": ["Ho"]},
            "metadata": {"model_slug": "gpt-4o"}}, "parent": "a"}}});
    let file = program.file("conversations.json", json!([talk]).to_string());
    let id = program.run(&["sessions", "import", &file]).stdout;
    let id = id.split(' ').next().unwrap();
    let page = program.path("page.html");
    let output = program.run(&["sessions", "export", id, "-o", page.to_str().unwrap()]);
    assert_eq!(output.code, 0, "{output:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!") && page.contains("gpt-4o"), "{page}");
    let text = program.run(&["sessions", "export", id, "--format", "md"]).stdout;
    assert!(text.contains("model gpt-4o"), "{text}");
}

#[test]
fn what_can_not_be_imported_says_why() {
    let program = Program::new();
    for (content, said) in [
        ("{", "neither JSON"),
        ("[]", "no conversation"),
        ("{\"messages\": []}", "no conversation"),
        (
            "[{\"title\": \"Two\", \"mapping\": 1}, 7]",
            "conversation 1, \"Two\", can't be read",
        ),
        ("[7, 8, 9]", "nor can the 2 others be read"),
        ("{\"mapping\": []}", "conversation 1"),
        ("7", "neither a list of messages nor an object"),
        (
            "{\"chats\": []}",
            "neither a `mapping`, as ChatGPT exports it, nor `messages`\n",
        ),
        ("{\"messages\": 3}", "its `messages` are no list\n"),
        (
            "[{\"role\": \"user\"}, {\"text\": \"x\"}]",
            "message 2: it has no `role`",
        ),
        ("[[{\"role\": 3}]]", "message 1: "),
        (
            "[{\"role\": \"wizard\", \"content\": \"x\"}]",
            "no message is a `user`'s or an `assistant`'s; there are those of \"wizard\"\n",
        ),
    ] {
        let file = program.file("odd.json", content);
        program
            .run(&["sessions", "import", &file])
            .fails(1, &[&file, said]);
    }
    program
        .run(&["sessions", "import", "/there/is/none"])
        .fails(1, &["/there/is/none"]);
    program.run(&["sessions", "search"]).fails(2, &["WORDS"]);
}
