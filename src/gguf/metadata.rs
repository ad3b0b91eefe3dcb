//! The key-value part of a GGUF file, with typed getters.

use std::collections::BTreeMap;

use super::GgufError;

/// One value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned integer of 8 bits.
    U8(u8),
    /// A signed integer of 8 bits.
    I8(i8),
    /// An unsigned integer of 16 bits.
    U16(u16),
    /// A signed integer of 16 bits.
    I16(i16),
    /// An unsigned integer of 32 bits.
    U32(u32),
    /// A signed integer of 32 bits.
    I32(i32),
    /// An unsigned integer of 64 bits.
    U64(u64),
    /// A signed integer of 64 bits.
    I64(i64),
    /// A float of 32 bits.
    F32(f32),
    /// A float of 64 bits.
    F64(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    Str(String),
    /// A list of values of one type.
    Array(Array),
}

/// A list of values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Unsigned integers of 8 bits.
    U8(Vec<u8>),
    /// Signed integers of 8 bits.
    I8(Vec<i8>),
    /// Unsigned integers of 16 bits.
    U16(Vec<u16>),
    /// Signed integers of 16 bits.
    I16(Vec<i16>),
    /// Unsigned integers of 32 bits.
    U32(Vec<u32>),
    /// Signed integers of 32 bits.
    I32(Vec<i32>),
    /// Unsigned integers of 64 bits.
    U64(Vec<u64>),
    /// Signed integers of 64 bits.
    I64(Vec<i64>),
    /// Floats of 32 bits.
    F32(Vec<f32>),
    /// Floats of 64 bits.
    F64(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    Str(Vec<String>),
    /// Lists.
    Array(Vec<Array>),
}

impl Value {
    /// The integer, whatever its width; `None` for anything else.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match self {
            Self::U8(v) => (*v).into(),
            Self::I8(v) => (*v).into(),
            Self::U16(v) => (*v).into(),
            Self::I16(v) => (*v).into(),
            Self::U32(v) => (*v).into(),
            Self::I32(v) => (*v).into(),
            Self::U64(v) => (*v).into(),
            Self::I64(v) => (*v).into(),
            _ => return None,
        })
    }

    /// What this is, as a phrase for messages: its type, and its value where that is short.
    pub fn describe(&self) -> String {
        match self {
            Self::F32(v) => format!("the float {v}"),
            Self::F64(v) => format!("the float {v}"),
            Self::Bool(v) => format!("the boolean {v}"),
            Self::Str(v) if v.chars().nth(40).is_some() => format!("a string of {} bytes", v.len()),
            Self::Str(v) => format!("the string {v:?}"),
            Self::Array(v) => v.describe(),
            integer => match integer.as_integer() {
                Some(v) => format!("the integer {v}"),
                None => "nothing known".to_owned(),
            },
        }
    }
}

impl Array {
    /// How many values it holds.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::Str(v) => v.len(),
            Self::Array(v) => v.len(),
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What this is, as a phrase for messages.
    pub fn describe(&self) -> String {
        let of = match self {
            Self::F32(_) | Self::F64(_) => "floats",
            Self::Bool(_) => "booleans",
            Self::Str(_) => "strings",
            Self::Array(_) => "arrays",
            _ => "integers",
        };
        format!("an array of {} {of}", self.len())
    }

    fn to_i32s(&self) -> Option<Vec<i32>> {
        fn all<T: Copy + TryInto<i32>>(values: &[T]) -> Option<Vec<i32>> {
            values.iter().map(|&value| value.try_into().ok()).collect()
        }
        match self {
            Self::U8(v) => all(v),
            Self::I8(v) => all(v),
            Self::U16(v) => all(v),
            Self::I16(v) => all(v),
            Self::U32(v) => all(v),
            Self::I32(v) => Some(v.clone()),
            Self::U64(v) => all(v),
            Self::I64(v) => all(v),
            _ => None,
        }
    }
}

/// The key-value part of a GGUF file. The getters' errors name the key, what was expected and what was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    entries: BTreeMap<String, Value>,
}

impl Metadata {
    /// Adds an entry; `false` when the key is taken, and nothing changes then.
    pub fn insert(&mut self, key: String, value: Value) -> bool {
        match self.entries.entry(key) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(value);
                true
            }
            std::collections::btree_map::Entry::Occupied(_) => false,
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The text of `key`.
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        required(key, self.opt_str(key)?)
    }

    /// The integer of `key`, of any integer type, where it isn't negative.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        required(key, self.opt_u64(key)?)
    }

    /// The float of `key`; one of 64 bits is rounded.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        required(key, self.opt_f32(key)?)
    }

    /// The truth value of `key`.
    pub fn bool(&self, key: &str) -> Result<bool, GgufError> {
        required(key, self.opt_bool(key)?)
    }

    /// The texts of `key`.
    pub fn strings(&self, key: &str) -> Result<&[String], GgufError> {
        required(key, self.opt_strings(key)?)
    }

    /// The integers of `key`, of any integer type, where each fits 32 bits.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, GgufError> {
        required(key, self.opt_i32s(key)?)
    }

    /// The floats of `key`, of 32 bits.
    pub fn f32s(&self, key: &str) -> Result<&[f32], GgufError> {
        required(key, self.opt_f32s(key)?)
    }

    /// As [`Self::str`], where `None` says that the key isn't there.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a string", |value| match value {
            Value::Str(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// As [`Self::u64`], where `None` says that the key isn't there.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "an integer that isn't negative", |value| {
            value.as_integer()?.try_into().ok()
        })
    }

    /// As [`Self::f32`], where `None` says that the key isn't there.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a float", |value| match value {
            Value::F32(float) => Some(*float),
            Value::F64(float) => Some(*float as f32),
            _ => None,
        })
    }

    /// As [`Self::bool`], where `None` says that the key isn't there.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a boolean", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// As [`Self::strings`], where `None` says that the key isn't there.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::Str(texts)) => Some(texts.as_slice()),
            _ => None,
        })
    }

    /// As [`Self::i32s`], where `None` says that the key isn't there.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.typed(key, "an array of integers of 32 bits", |value| match value {
            Value::Array(array) => array.to_i32s(),
            _ => None,
        })
    }

    /// As [`Self::f32s`], where `None` says that the key isn't there.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<&[f32]>, GgufError> {
        self.typed(key, "an array of floats of 32 bits", |value| match value {
            Value::Array(Array::F32(floats)) => Some(floats.as_slice()),
            _ => None,
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        as_type: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.entries.get(key) else {
            return Ok(None);
        };
        match as_type(value) {
            Some(typed) => Ok(Some(typed)),
            None => Err(GgufError::WrongType {
                key: key.to_owned(),
                expected,
                found: value.describe(),
            }),
        }
    }
}

fn required<T>(key: &str, value: Option<T>) -> Result<T, GgufError> {
    value.ok_or_else(|| GgufError::MissingKey { key: key.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let mut metadata = Metadata::default();
        for (key, value) in [
            ("text", Value::Str("a".into())),
            ("byte", Value::U8(7)),
            ("minus", Value::I32(-1)),
            ("float", Value::F32(0.5)),
            ("double", Value::F64(0.25)),
            ("flag", Value::Bool(true)),
            ("types", Value::Array(Array::U32(vec![1, 2]))),
            ("wide", Value::Array(Array::I64(vec![1 << 40]))),
            ("names", Value::Array(Array::Str(vec!["x".into()]))),
        ] {
            assert!(metadata.insert(key.into(), value));
        }
        metadata
    }

    #[test]
    fn an_integer_of_any_width_is_read_where_it_fits() {
        let metadata = sample();
        assert_eq!(metadata.u64("byte").unwrap(), 7);
        assert_eq!(metadata.i32s("types").unwrap(), [1, 2]);
        let error = metadata.u64("minus").unwrap_err().to_string();
        assert!(
            error.contains("`minus`") && error.contains("the integer -1"),
            "{error}"
        );
        assert!(metadata.i32s("wide").is_err());
    }

    #[test]
    fn floats_flags_and_lists_come_back_as_they_are() {
        let metadata = sample();
        assert_eq!(metadata.f32("float").unwrap(), 0.5);
        assert_eq!(metadata.f32("double").unwrap(), 0.25);
        assert!(metadata.bool("flag").unwrap());
        assert_eq!(metadata.strings("names").unwrap(), ["x"]);
    }

    #[test]
    fn a_missing_key_is_named_and_an_optional_one_is_none() {
        let metadata = sample();
        assert!(
            metadata
                .str("nothing")
                .unwrap_err()
                .to_string()
                .contains("`nothing`")
        );
        assert_eq!(metadata.opt_str("nothing").unwrap(), None);
    }

    #[test]
    fn an_optional_key_of_a_wrong_type_is_an_error_that_names_both_types() {
        let error = sample().opt_strings("text").unwrap_err().to_string();
        assert!(
            error.contains("an array of strings") && error.contains("the string \"a\""),
            "{error}"
        );
    }

    #[test]
    fn a_key_is_taken_once() {
        let mut metadata = sample();
        assert!(!metadata.insert("flag".into(), Value::Bool(false)));
        assert!(metadata.bool("flag").unwrap());
    }
}
