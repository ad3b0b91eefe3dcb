use super::*;

/// How bright a color is to the eye, as WCAG 2 reckons.
fn luminance([r, g, b]: [u8; 3]) -> f64 {
    let linear = |channel: u8| {
        let share = f64::from(channel) / 255.0;
        if share <= 0.04045 {
            share / 12.92
        } else {
            ((share + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}

fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

fn seen(color: Option<Color>) -> [u8; 3] {
    match color {
        Some(Color::Rgb(r, g, b)) => [r, g, b],
        Some(Color::Indexed(index)) => channels(index),
        other => panic!("{other:?}"),
    }
}

fn bundled(name: &str) -> Theme {
    let path = format!("{}/assets/themes/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let table: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let mut theme = Theme::default();
    for (key, value) in &table {
        match value {
            toml::Value::Table(within) => {
                for (name, color) in within {
                    theme
                        .set(&format!("{key}.{name}"), color.as_str().unwrap())
                        .unwrap();
                }
            }
            color => theme.set(key, color.as_str().unwrap()).unwrap(),
        }
    }
    theme
}

#[test]
fn every_color_of_our_themes_can_be_read_on_their_background() {
    for (name, least) in [
        ("dark", 4.5),
        ("light", 4.5),
        ("contrast", 7.0),
        ("contrast-light", 7.0),
    ] {
        let theme = bundled(name);
        // Of 256 colors, the nearest may stand out a little less.
        for (mode, least) in [(ColorMode::True, least), (ColorMode::Indexed, least - 0.6)] {
            let behind = seen(theme.color(Role::Background, mode));
            for (role, key, _) in ROLES.iter().filter(|(role, ..)| *role != Role::Background) {
                let ratio = contrast(seen(theme.color(*role, mode)), behind);
                assert!(ratio >= least, "{name}: {key} at {ratio:.1} in {mode:?}");
            }
        }
    }
}

#[test]
fn roles_stand_in_the_order_of_their_list() {
    for (at, (role, ..)) in ROLES.iter().enumerate() {
        assert_eq!(*role as usize, at);
    }
}

#[test]
fn on_sixteen_colors_every_theme_is_the_terminals_own() {
    for (role, _, own) in ROLES {
        assert_eq!(bundled("light").color(role, ColorMode::Sixteen), own);
        assert_eq!(bundled("light").color(role, ColorMode::Off), None);
        assert_eq!(Theme::default().color(role, ColorMode::True), own);
    }
}

#[test]
fn the_nearest_of_the_256_colors_is_taken() {
    for (wanted, index) in [
        ([0, 0, 0], 16),
        ([255, 255, 255], 231),
        ([95, 175, 215], 74),
        ([9, 9, 9], 232),
    ] {
        assert_eq!(indexed(wanted), index);
    }
    assert!(
        (16..=255).all(|index| indexed(channels(index)) == index
            || channels(indexed(channels(index))) == channels(index))
    );
}

#[test]
fn a_line_that_is_wrong_is_told_and_changes_nothing() {
    let mut theme = Theme::default();
    for (key, value) in [
        ("text", "#12345"),
        ("text", "#+12345"),
        ("text", "gray!"),
        ("colour", "red"),
        ("text", ""),
    ] {
        assert!(theme.set(key, value).is_err(), "{key} {value}");
    }
    assert_eq!(theme, Theme::default());
    theme.set("syntax.name", "#0a0B0c").unwrap();
    assert_eq!(
        theme.color(Role::Name, ColorMode::True),
        Some(Color::Rgb(10, 11, 12))
    );
    theme.set("syntax.name", "default").unwrap();
    assert_eq!(theme, Theme::default());
}

#[test]
fn what_a_terminal_says_of_its_background_is_understood() {
    use Background::{Dark, Light};
    for (said, is) in [
        ("15;0", Some(Dark)),
        ("0;15", Some(Light)),
        ("0;default;15", Some(Light)),
        ("12;8", Some(Dark)),
        ("15;default", None),
        ("7", None),
        ("", None),
    ] {
        assert_eq!(Background::from_variable(said), is, "{said}");
    }
    for (said, is) in [
        ("rgb:ffff/ffff/ffff", Some(Light)),
        ("rgb:1c1c/1e1e/2222", Some(Dark)),
        ("rgb:ff/fa/e0", Some(Light)),
        ("rgba:0000/0000/0000/ffff", Some(Dark)),
        ("rgb:/1/1", None),
        ("rgb:1/1", None),
        ("white", None),
        ("rgb:fffffffff/0/0", None),
    ] {
        assert_eq!(Background::from_answer(said), is, "{said}");
    }
}

#[test]
fn auto_follows_the_background_and_a_users_theme_comes_before_ours() {
    let theme = |color: &str| {
        let mut theme = Theme::default();
        theme.set("text", color).unwrap();
        theme
    };
    let themes = Themes::new(vec![
        ("dark".into(), theme("white")),
        ("light".into(), theme("black")),
        ("dark".into(), theme("#eeeeee")),
    ]);
    assert_eq!(
        themes.names().collect::<Vec<_>>(),
        ["terminal", "auto", "dark", "light"]
    );
    assert_eq!(themes.get("auto", None), theme("#eeeeee"));
    assert_eq!(themes.get("auto", Some(Background::Light)), theme("black"));
    assert_eq!(themes.get("terminal", None), Theme::default());
    assert_eq!(themes.get("gone", None), Theme::default());
}
