//! What an earlier engine left on disk: going on from it says, to the bit, what is said without it.

use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::prompt_cache::disk::tier::DiskOptions;
use mlx_chat::engine::{Engine, EngineOptions, Request};

use crate::MODELS;
use crate::support::{Dice, options, request, run};
use crate::workload::{Alone, IDS, Said, engine_of, follow_ups};

#[test]
fn what_is_restored_from_disk_goes_on_to_the_bit_as_what_was_never_stored() {
    for (name, seed) in MODELS.into_iter().zip(1..) {
        let folder = tempfile::tempdir().unwrap();
        let mut dice = Dice(seed);
        let mut alone = Alone::new(name);
        let options = || EngineOptions {
            prompt_cache_disk: Some(DiskOptions {
                folder: folder.path().to_owned(),
                limit: 1 << 30,
                model: name.into(),
            }),
            prefill_chunk: Some(64),
            ..options()
        };
        let workload: Vec<(u64, Request)> = [40, 300, 33]
            .into_iter()
            .zip(0..)
            .map(|(length, number)| {
                let request = Request {
                    session: Some(format!("session {number}")),
                    logprobs: true,
                    ..request(&dice.prompt(length, IDS), 12)
                };
                (number * 5, request)
            })
            .collect();
        let engine = engine_of(name, 2, options());
        let first = run(&engine, workload.clone());
        let next = follow_ups(&mut dice, &workload, &first);
        engine.close();
        // With a byte of memory, what is restored serves its row alone.
        for memory in [PromptCacheLimit::Default, PromptCacheLimit::Bytes(1)] {
            let options = EngineOptions {
                prompt_cache: memory,
                ..options()
            };
            let engine = engine_of(name, 2, options);
            let second = run(&engine, next.clone());
            for ((_, request), heard) in next.iter().zip(&second) {
                let what = format!("{name}, {memory:?}, {} tokens", heard.end().prompt_tokens);
                assert!(heard.end().cached_tokens > 0, "{what}: nothing was restored");
                Said::of(heard).assert_as(&alone.says(request), &what);
            }
            engine.hurry();
            engine.close();
            let disk = engine.snapshots().borrow().prompt_cache.disk;
            assert!(disk.restored > 0 && disk.damaged == 0, "{name}: {disk:?}");
        }
    }
}
