//! Answers to the same prompt as a document.

use serde_json::{Value, json};

use super::html::{self, escaped};
use super::{ended, put, put_answer};
use crate::chat::compare::{Compared, Comparison};
use crate::chat::pane::Settings;
use crate::chat::parameter::Parameter;
use crate::text::message::Message;

/// Pane, title and version of an answer.
fn heading(compared: &Compared) -> String {
    let mut heading = format!("Pane {}", compared.pane);
    if !compared.title.is_empty() {
        heading += &format!(": {}", compared.title);
    }
    if compared.version.1 > 1 {
        heading += &format!(" (version {} of {})", compared.version.0, compared.version.1);
    }
    heading
}

/// How an answer was asked for, on a line.
fn how(compared: &Compared) -> String {
    let settings = &compared.settings;
    let wanted = |parameter: &Parameter| {
        // The system prompt has a place of its own.
        let said = parameter.value(settings) != parameter.value(&Settings::default());
        *parameter != Parameter::System && (said || *parameter == Parameter::Temperature)
    };
    let told = |parameter: Parameter| format!("{} {}", parameter.name(), parameter.value(settings));
    let mut all: Vec<String> = Parameter::ALL.into_iter().filter(wanted).map(told).collect();
    if let Some(seed) = compared.turn.seed.filter(|_| settings.sampling.seed.is_none()) {
        all.push(format!("seed {seed}"));
    }
    all.join(", ")
}

pub(super) fn to_markdown(comparison: &Comparison) -> String {
    let mut text = format!(
        "# {} answers\n\n_model {}_\n\n## Prompt\n\n{}\n",
        comparison.answers.len(),
        comparison.model,
        comparison.prompt.trim_end()
    );
    for compared in &comparison.answers {
        put(
            &mut text,
            format_args!("\n## {}\n\n_{}_\n", heading(compared), how(compared)),
        );
        if let Some(system) = compared
            .settings
            .system
            .as_deref()
            .filter(|text| !text.is_empty())
        {
            put(&mut text, format_args!("\nSystem: {}\n", system.trim_end()));
        }
        put_answer(&mut text, &compared.turn);
    }
    text
}

pub(super) fn to_json(comparison: &Comparison) -> Value {
    let answer = |compared: &Compared| {
        let message = Message::answer(&compared.turn.answer);
        json!({"pane": compared.pane, "session": compared.session, "title": compared.title,
            "version": compared.version.0, "versions": compared.version.1, "settings": compared.settings,
            "seed": compared.turn.seed, "at": compared.turn.at.to_string(), "answer": message.content,
            "thinking": message.reasoning_content, "note": ended(&compared.turn)})
    };
    let answers: Vec<Value> = comparison.answers.iter().map(answer).collect();
    json!({"prompt": comparison.prompt, "model": comparison.model, "answers": answers})
}

/// The answers beside each other, as far as there is room, set as in [`html::to_html`].
pub(super) fn to_html(comparison: &Comparison) -> String {
    let title = format!("{} answers", comparison.answers.len());
    let style = format!(
        "{}body{{max-width:none}}main{{display:flex;flex-wrap:wrap;gap:2rem}}section{{flex:1 1 24rem}}",
        html::STYLE
    );
    let mut page = html::head(&title, &style);
    put(
        &mut page,
        format_args!(
            "<h1>{title}</h1>\n<p class=\"note\">model {}</p>\n<h2>Prompt</h2>\n<article class=\"plain user\">{}</article>\n<main>\n",
            escaped(&comparison.model),
            escaped(comparison.prompt.trim_end())
        ),
    );
    for compared in &comparison.answers {
        put(
            &mut page,
            format_args!(
                "<section>\n<h2>{}</h2>\n<p class=\"note\">{}</p>\n",
                escaped(&heading(compared)),
                escaped(&how(compared))
            ),
        );
        if let Some(system) = compared
            .settings
            .system
            .as_deref()
            .filter(|text| !text.is_empty())
        {
            put(
                &mut page,
                format_args!("<p class=\"note\">System: {}</p>\n", escaped(system)),
            );
        }
        html::put_answer(&mut page, &compared.turn);
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}
