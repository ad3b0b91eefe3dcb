//! Names that may be meant by one that isn't known.

/// The candidate that differs least from a word, if it differs little: by a third of the letters at most, or what was typed is its beginning.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_by(word, candidates, |other: &&str| (*other).to_owned())
}

/// The same among things that have a name to be compared by.
pub fn nearest_by<T>(
    word: &str,
    candidates: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> String,
) -> Option<T> {
    let word = word.to_lowercase();
    let letters = word.chars().count();
    let distance = |other: &T| {
        let other = name(other).to_lowercase();
        // Half a name, typed right, is nearer than any misspelling.
        if letters >= 3 && (other.starts_with(&word) || word.starts_with(&other)) && !other.is_empty() {
            1
        } else {
            strsim::osa_distance(&word, &other)
        }
    };
    let near = candidates.into_iter().map(|other| (distance(&other), other));
    near.filter(|(distance, _)| *distance <= (letters / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_meant_and_what_is_far_is_not() {
        let names = ["temperature", "theme", "title", "model"];
        for (typed, meant) in [
            ("tempreature", Some("temperature")),
            ("temp", Some("temperature")),
            ("Theme", Some("theme")),
            ("tilte", Some("title")),
            ("bogus", None),
            ("fork", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
    }
}
