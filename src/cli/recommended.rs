//! What a model's makers recommend for its answers: `generation_config.json` of its folder.

use std::path::Path;

use serde_json::Value;

use crate::sampling::Sampling;

/// How the model's makers would have it sample; greedy where they say nothing. What can't be read is left out, with a line in
/// the log.
pub fn sampling(model: &Path) -> Sampling {
    let path = model.join("generation_config.json");
    if !path.is_file() {
        return Sampling::default();
    }
    let read = std::fs::read(&path).map_err(|error| error.to_string());
    let settings = read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
    let sampling = settings.and_then(|settings: Value| {
        let sampling = of(&settings);
        sampling
            .check()
            .map(|()| sampling)
            .map_err(|error| error.to_string())
    });
    sampling.unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), error, "no recommendation for sampling");
        Sampling::default()
    })
}

/// Settings as the transformers library names them: without `do_sample` or a temperature they are for greedy decoding.
fn of(settings: &Value) -> Sampling {
    let number = |name: &str| {
        settings
            .get(name)
            .and_then(Value::as_f64)
            .map(|number| number as f32)
    };
    let draws = settings.get("do_sample").and_then(Value::as_bool);
    let temperature = number("temperature");
    if !draws.unwrap_or(temperature.is_some()) {
        return Sampling::default();
    }
    let top_k = settings.get("top_k").and_then(Value::as_u64);
    Sampling {
        temperature: temperature.unwrap_or(1.0),
        top_p: number("top_p").unwrap_or(1.0),
        top_k: top_k.and_then(|k| u32::try_from(k).ok()).unwrap_or(0),
        min_p: number("min_p").unwrap_or(0.0),
        seed: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recommended(config: &str) -> Sampling {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("generation_config.json"), config).unwrap();
        sampling(folder.path())
    }

    #[test]
    fn a_recommendation_is_read_whole() {
        let found = recommended(
            r#"{"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.1}"#,
        );
        let expected = Sampling {
            temperature: 0.6,
            top_p: 0.95,
            top_k: 20,
            min_p: 0.1,
            seed: None,
        };
        assert_eq!(found, expected);
        assert_eq!(recommended(r#"{"do_sample": true}"#).temperature, 1.0);
        assert_eq!(recommended(r#"{"temperature": 0.3}"#).temperature, 0.3);
    }

    #[test]
    fn without_a_recommendation_that_can_be_followed_decoding_is_greedy() {
        for config in [
            "{}",
            "[",
            r#"{"do_sample": false, "temperature": 0.6}"#,
            r#"{"do_sample": true, "temperature": -1}"#,
            r#"{"do_sample": true, "top_p": 7}"#,
        ] {
            assert_eq!(recommended(config), Sampling::default(), "{config}");
        }
        assert_eq!(sampling(Path::new("/no/such/model")), Sampling::default());
    }
}
