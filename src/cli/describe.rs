//! What a model's own files say of it, for `models list` and `models info`. No weights are read.

use std::path::Path;

use serde_json::{Value, json};

use crate::cache::CachePlan;
use crate::engine::memory::readings;
use crate::gguf::Gguf;
use crate::model;
use crate::text::{Capabilities, Codec, TextError};

/// How much is to be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The family, and whether it is supported.
    Family,
    /// That, how its weights are stored, and whether they fit into memory.
    Memory,
    /// Everything.
    All,
}

/// What a model's own files say of it: `family` and `supported` in any case. If they can't be read at all, why not, where
/// more than the family is asked for.
pub fn describe(path: &Path, detail: Detail) -> Option<Value> {
    describe_beside(path, detail, 0)
}

/// The same, where so many bytes of memory are taken now that will be free for the model.
pub fn describe_beside(path: &Path, detail: Detail, given_back: u64) -> Option<Value> {
    // A .gguf file is opened once, the files of a folder where they are needed.
    let file = match path.is_dir() {
        true => None,
        false => match Gguf::open(path) {
            Ok(file) => Some(file),
            Err(error) => return unread(&error, detail),
        },
    };
    let described = match &file {
        Some(file) => model::describe_gguf(file),
        None => model::describe(path),
    };
    let outline = match (&described, detail) {
        // All that is asked for is known.
        (Ok(_), Detail::Family) => None,
        _ => file
            .as_ref()
            .map_or_else(|| model::outline(path), model::outline_gguf)
            .inspect_err(|error| tracing::warn!(%error, path = %path.display(), "not outlined"))
            .ok(),
    };
    let why = described.as_ref().err().map(ToString::to_string);
    let family = match (&described, &outline) {
        (Ok(description), _) => description.family.clone(),
        (Err(_), Some(outline)) => outline.family.clone(),
        (Err(error), None) => return unread(error, detail),
    };
    let mut all = json!({"family": family, "supported": why.is_none()});
    if let Some(why) = why {
        add(&mut all, json!({"not_supported": why}));
    }
    if detail == Detail::Family {
        return Some(all);
    }
    if let Some(outline) = &outline {
        add(&mut all, serde_json::to_value(outline).ok()?);
    }
    if let Ok(description) = &described {
        add(&mut all, serde_json::to_value(description).ok()?);
        if let Some(outline) = &outline {
            let machine = readings();
            let free = machine.free().saturating_add(given_back).min(machine.total());
            let memory = memory(
                &description.plan,
                outline.weight_bytes,
                description.context_length,
                (machine.total(), free),
            );
            add(&mut all, json!({"memory": memory}));
        }
    }
    if detail == Detail::Memory {
        return Some(all);
    }
    let codec = file.as_ref().map_or_else(|| Codec::open(path), Codec::of_gguf);
    add(&mut all, json!({"chat": chat(codec)}));
    Some(all)
}

/// What is said of files that can't be read: why not, where more than the family is asked for.
fn unread(error: &dyn std::error::Error, detail: Detail) -> Option<Value> {
    let told = json!({"supported": false, "not_supported": error.to_string()});
    (detail != Detail::Family).then_some(told)
}

/// What the chat template can do, or why there are no words to be had from the model.
fn chat(codec: Result<Option<Codec>, TextError>) -> Value {
    match codec {
        Ok(Some(codec)) => serde_json::to_value(Capabilities::of(&codec)).unwrap_or_default(),
        Ok(None) => json!({"not_supported": "it has no tokenizer"}),
        Err(error) => json!({"not_supported": error.to_string()}),
    }
}

/// Puts the fields of one object into another; those already there stay as they are.
fn add(into: &mut Value, fields: Value) {
    if let (Some(into), Value::Object(fields)) = (into.as_object_mut(), fields) {
        for (name, value) in fields {
            into.entry(name).or_insert(value);
        }
    }
}

/// Whether weights and one conversation of full length fit into all memory and into what is free of it, and else how long
/// it may get.
fn memory(
    plan: &CachePlan,
    weight_bytes: u64,
    context: usize,
    (machine_bytes, free_bytes): (u64, u64),
) -> Value {
    let needed = |tokens: usize| weight_bytes.saturating_add(plan.used_bytes(tokens));
    let fits = |tokens: usize, bytes: u64| needed(tokens) <= bytes;
    let longest = |bytes: u64| {
        // The longest that fits: `low` does, if any does; all above `high` don't.
        let (mut low, mut high) = (0, context);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle, bytes) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    };
    // What one more token takes at the end, where windows are full; the rest doesn't grow with the context.
    let growth = plan
        .used_bytes(context)
        .saturating_sub(plan.used_bytes(context.saturating_sub(1)));
    let fixed = plan
        .used_bytes(context)
        .saturating_sub(growth.saturating_mul(context as u64));
    json!({
        "machine_bytes": machine_bytes,
        "kv_growth_bytes_per_token": growth,
        "kv_fixed_bytes": fixed,
        "kv_bytes_at_full_context": plan.used_bytes(context),
        "needed_bytes_at_full_context": needed(context),
        "fits": fits(context, machine_bytes),
        "longest_context_that_fits": longest(machine_bytes),
        "free_bytes": free_bytes,
        "fits_now": fits(context, free_bytes),
        "longest_context_that_fits_now": longest(free_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{KvShape, LayerPlan};

    #[test]
    fn what_windows_and_states_hold_is_told_apart_from_what_grows() {
        let kv = KvShape::float32(1, 16, 16);
        let plan = CachePlan::new(vec![LayerPlan::Full(kv), LayerPlan::Sliding { kv, window: 100 }]);
        let told = memory(&plan, 0, 1000, (1 << 30, 1 << 30));
        let each = kv.bytes_per_column();
        assert_eq!(
            (&told["kv_growth_bytes_per_token"], &told["kv_fixed_bytes"]),
            (&json!(each), &json!(100 * each))
        );
    }

    #[test]
    fn the_longest_context_that_fits_is_told_where_the_full_one_does_not() {
        let layer = KvShape::float32(1, 16, 16);
        let plan = CachePlan::new(vec![layer; 2]);
        let (each, context) = (plan.bytes_per_token(), 1000);
        let told = |machine: u64| memory(&plan, 500, context, (machine, 10));
        let all = told(500 + 1000 * each);
        assert_eq!(
            (&all["fits"], &all["longest_context_that_fits"]),
            (&json!(true), &json!(1000))
        );
        let some = told(500 + 999 * each + each / 2);
        assert_eq!(
            (&some["fits"], &some["longest_context_that_fits"]),
            (&json!(false), &json!(999))
        );
        assert_eq!(told(10)["longest_context_that_fits"], 0);
        assert_eq!(
            (&all["kv_growth_bytes_per_token"], &all["kv_fixed_bytes"]),
            (&json!(each), &json!(0))
        );
        assert_eq!(all["needed_bytes_at_full_context"], 500 + 1000 * each);
        // There is room in the machine, but others have it.
        assert_eq!(
            (&all["fits_now"], &all["longest_context_that_fits_now"]),
            (&json!(false), &json!(0))
        );
    }
}
