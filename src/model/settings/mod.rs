//! Typed access to what a model's file says of it: config.json and GGUF metadata as one.
//!
//! Names are those of Hugging Face's config.json. What a GGUF file says is presented under them ([`gguf`]), so that a family
//! reads its settings once; messages name the file's own keys. The `text_config` of a model that also sees or hears is
//! taken as if it were the whole.

mod gguf;
mod rope;

use std::rc::Rc;

use serde_json::{Map, Value};

use super::ModelError;
use crate::gguf::Gguf;

pub(super) use gguf::FACTOR_TENSORS;
pub(super) use rope::RopeSettings;

/// No size of a model is near this; it keeps products of sizes from overflowing.
const LARGEST: usize = (1 << 31) - 1;

/// What a model's file says of it, or a section of that.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    values: Map<String, Value>,
    /// What stands before names in messages: `rope_scaling.`.
    within: String,
    /// What the file calls a setting, full name by full name; absent in config.json.
    keys: Option<Rc<Map<String, Value>>>,
    /// Whether a section `text_config` was taken for the whole.
    nested: bool,
}

impl Settings {
    /// From config.json.
    pub fn from_json(config: &Value) -> Result<Self, ModelError> {
        let mut settings = Self {
            values: config.as_object().cloned().unwrap_or_default(),
            within: String::new(),
            keys: None,
            nested: false,
        };
        if let Some(text) = settings.section("text_config")? {
            for (name, value) in text.values {
                // The outer one says which family it is.
                if name != "model_type" && !value.is_null() {
                    settings.values.insert(name, value);
                }
            }
            settings.nested = true;
        }
        Ok(settings)
    }

    /// From GGUF metadata.
    pub fn from_gguf(file: &Gguf) -> Result<Self, ModelError> {
        let found = gguf::read(file)?;
        Ok(Self {
            values: found.values,
            within: String::new(),
            keys: Some(Rc::new(found.keys)),
            nested: false,
        })
    }

    /// The same, with a value of a setting that is not there.
    pub fn or(mut self, name: &str, value: Value) -> Self {
        if !self.has(name) {
            self.values.insert(name.to_owned(), value);
        }
        self
    }

    /// Whether this is of a GGUF file.
    pub fn are_of_gguf(&self) -> bool {
        self.keys.is_some()
    }

    /// Whether the text is one part among others of the model.
    pub fn are_of_a_part(&self) -> bool {
        self.nested
    }

    /// The family's name in the file; empty if there is none.
    pub fn model_type(&self) -> &str {
        let value = self.values.get("model_type");
        value.and_then(Value::as_str).unwrap_or_default()
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }

    /// Whether the file says anything of it.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The complaint about a setting that it is not as `allowed` says.
    pub fn wrong(&self, name: &str, allowed: impl Into<String>) -> ModelError {
        let full = format!("{}{name}", self.within);
        let key = self.keys.as_ref().and_then(|keys| keys.get(&full));
        let value = self.get(name).map(shown);
        ModelError::Config {
            name: key.and_then(Value::as_str).unwrap_or(&full).to_owned(),
            value: value.unwrap_or_else(|| "absent".to_owned()),
            allowed: allowed.into(),
        }
    }

    /// A count between 1 and `most`, if it is there.
    pub fn optional_count(&self, name: &str, most: usize) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        match count.filter(|count| (1..=most).contains(count)) {
            Some(count) => Ok(Some(count)),
            None => Err(self.wrong(name, format!("an integer between 1 and {most}"))),
        }
    }

    /// A count between 1 and `most`.
    pub fn count(&self, name: &str, most: usize) -> Result<usize, ModelError> {
        let absent = || self.wrong(name, format!("an integer between 1 and {most}"));
        self.optional_count(name, most)?.ok_or_else(absent)
    }

    /// A size of the model.
    pub fn size(&self, name: &str) -> Result<usize, ModelError> {
        self.count(name, LARGEST)
    }

    /// A size of the model, if it is there.
    pub fn optional_size(&self, name: &str) -> Result<Option<usize>, ModelError> {
        self.optional_count(name, LARGEST)
    }

    /// A number of any sign, if it is there.
    pub fn number(&self, name: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_f64().filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, "a number")),
        }
    }

    /// A number above 0, if it is there.
    pub fn optional_positive(&self, name: &str) -> Result<Option<f64>, ModelError> {
        match self.number(name) {
            Ok(None) => Ok(None),
            Ok(Some(number)) if number > 0.0 => Ok(Some(number)),
            Ok(Some(_)) | Err(_) => Err(self.wrong(name, "a positive number")),
        }
    }

    /// A number above 0.
    pub fn positive(&self, name: &str) -> Result<f64, ModelError> {
        let absent = || self.wrong(name, "a positive number");
        self.optional_positive(name)?.ok_or_else(absent)
    }

    /// Yes or no, if it is there.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let flag = value.as_bool();
        flag.map(Some).ok_or_else(|| self.wrong(name, "true or false"))
    }

    /// One of some texts, if it is there.
    pub fn one_of(&self, name: &str, allowed: &[&str]) -> Result<Option<&str>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_str().filter(|text| allowed.contains(text)) {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong(name, allowed.join(" or "))),
        }
    }

    /// A list of `len` positive numbers, if it is there.
    pub fn positives(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let numbers: Option<Vec<f32>> = value.as_array().and_then(|numbers| {
            let each = numbers.iter().map(|number| number.as_f64().map(|n| n as f32));
            each.collect()
        });
        let good =
            |numbers: &Vec<f32>| numbers.len() == len && numbers.iter().all(|n| n.is_finite() && *n > 0.0);
        match numbers.filter(good) {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(self.wrong(name, format!("{len} positive numbers"))),
        }
    }

    /// A list of values, each as `read` takes it, if it is there.
    pub fn list<T>(
        &self,
        name: &str,
        allowed: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let all = value
            .as_array()
            .and_then(|values| values.iter().map(read).collect());
        match all {
            Some(all) => Ok(Some(all)),
            None => Err(self.wrong(name, allowed)),
        }
    }

    /// A list of one value for each layer, each as `read` takes it, if it is there.
    pub fn each_layer<T>(
        &self,
        name: &str,
        layers: usize,
        allowed: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let all: Option<Vec<T>> = value
            .as_array()
            .and_then(|values| values.iter().map(read).collect());
        match all.filter(|all| all.len() == layers) {
            Some(all) => Ok(Some(all)),
            None => Err(self.wrong(name, format!("{layers} of {allowed}, one for each layer"))),
        }
    }

    /// A section of its own, if it is there.
    pub fn section(&self, name: &str) -> Result<Option<Self>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let values = value.as_object().cloned();
        let values = values.ok_or_else(|| self.wrong(name, "a section of settings"))?;
        Ok(Some(Self {
            values,
            within: format!("{}{name}.", self.within),
            keys: self.keys.clone(),
            nested: false,
        }))
    }

    /// `eos_token_id`: a number, or a list of them; sorted, each once.
    pub fn eos(&self) -> Vec<u32> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let mut ids: Vec<u32> = match self.get("eos_token_id") {
            Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
            Some(value) => id(value).into_iter().collect(),
            None => Vec::new(),
        };
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

/// A value in a message: cut where it is long.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests;
