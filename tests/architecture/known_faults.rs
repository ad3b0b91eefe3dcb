//! What users of engines of this kind ran into, numbered, and what here keeps it from happening: tests by file and name, or
//! a reason why it can't.

use std::path::Path;

/// What keeps a fault away.
pub enum Kept {
    /// These tests, each as `file::name`.
    By(&'static [&'static str]),
    /// Nothing need be tested.
    Because(&'static str),
}

use Kept::{Because, By};

const FAULTS: [(u32, &str, Kept); 46] = [
    // Batching.
    (
        1,
        "a batch's step turns all rows but the first by a wrong angle",
        By(&[
            "tests/oracle.rs::rows_that_join_late_get_the_oracles_batched_tokens",
            "tests/exactness/forwards.rs::every_width_of_a_batch_gives_the_same_logits",
            "src/model/decoder/tests.rs::what_a_gpu_would_run_gives_the_oracles_logits_too",
        ]),
    ),
    (
        2,
        "a rotation of collapsed dimensions corrupts steps of one token",
        By(&[
            "src/nn/tests.rs::attention_by_kernels_is_attention_by_operations",
            "tests/oracle.rs::greedy_tokens_equal_the_oracles_however_the_prompt_is_cut",
        ]),
    ),
    (
        3,
        "padding is stored in a ring as if it were tokens",
        By(&[
            "tests/cache/kinds.rs::whatever_happens_every_row_sees_its_own_and_holds_it",
            "tests/model_hashing.rs::layers_of_all_kinds_follow_the_reference_at_every_edge_of_a_window",
        ]),
    ),
    (
        4,
        "logits of all rows but the first are corrupted",
        By(&[
            "tests/exactness/forwards.rs::a_row_among_64_gets_the_logits_that_it_gets_alone_however_its_prompt_was_cut",
            "tests/oracle.rs::a_padded_rows_logits_are_those_of_a_lone_row",
        ]),
    ),
    (
        5,
        "positions change between the turning of keys and of queries",
        Because("positions are the host's numbers: a forward reads them once, and layers get them by value"),
    ),
    (
        6,
        "prompts of equal length lose their rows' padding",
        By(&[
            "tests/scheduler/rules.rs::rows_of_equal_length_and_rows_of_equal_tokens_keep_apart",
            "src/nn/tests.rs::padding_hides_just_the_empty_columns",
        ]),
    ),
    (
        7,
        "four rows or more loop where layers have windows",
        By(&[
            "tests/exactness/workloads.rs::eight_rows_that_cross_growth_steps_together_say_what_they_say_alone",
            "tests/exactness/oracle.rs::every_mode_gives_the_oracles_batched_tokens_for_every_folder",
        ]),
    ),
    (
        8,
        "greedy output depends on who else is in the batch",
        By(&["tests/exactness/workloads.rs::random_workloads_say_to_the_bit_what_each_request_says_alone"]),
    ),
    (
        9,
        "a hybrid row can't be taken out of a batch",
        By(&[
            "tests/scheduler/kinds.rs::rows_that_were_merged_are_given_back_whole",
            "tests/oracle.rs::an_extracted_row_goes_on_as_if_it_had_run_alone",
        ]),
    ),
    (
        10,
        "a second row can't join one that has run alone",
        By(&[
            "tests/cache/main.rs::rows_that_join_step_and_leave_at_random_keep_their_bytes",
            "tests/cache/kinds.rs::at_every_edge_of_the_ring_rows_join_step_leave_and_are_given_back",
        ]),
    ),
    (
        11,
        "a padding mask doesn't fit grouped heads of quantized attention",
        By(&[
            "src/model/decoder/tests.rs::quantized_keys_and_values_give_nearly_the_same_logits_by_operations",
        ]),
    ),
    (
        12,
        "a mask hides tokens of padded rows",
        By(&[
            "src/nn/tests.rs::padding_hides_just_the_empty_columns",
            "src/nn/tests.rs::a_window_hides_what_is_too_old",
        ]),
    ),
    (
        13,
        "a row that is taken out early takes padding along",
        By(&[
            "tests/cache/main.rs::rows_that_join_step_and_leave_at_random_keep_their_bytes",
            "tests/exactness/forwards.rs::joined_extracted_cut_and_refed_rows_get_the_logits_that_they_get_alone",
        ]),
    ),
    (
        14,
        "long prompts of Gemma give padding tokens",
        By(&["tests/model_real.rs::logits_and_greedy_tokens_of_gemma_equal_the_oracles"]),
    ),
    (
        15,
        "prompts past the window give garbage",
        By(&[
            "tests/model_hashing.rs::layers_of_all_kinds_follow_the_reference_at_every_edge_of_a_window",
            "tests/cache/kinds.rs::at_every_edge_of_the_ring_rows_join_step_leave_and_are_given_back",
        ]),
    ),
    (
        16,
        "attention of a token that sees nothing is undefined",
        By(&["tests/cache/kinds.rs::a_plan_says_how_many_masks_a_forward_needs"]),
    ),
    // Memory.
    (
        17,
        "the prompt cache grows without a limit",
        By(&[
            "tests/scheduler/prompt_cache.rs::a_cache_over_its_limit_forgets_the_least_recently_used",
            "tests/prompt_cache_index.rs::an_entry_over_the_limit_alone_is_given_back_and_nothing_goes_for_it",
            "tests/prompt_cache_index.rs::under_pressure_it_shrinks_and_keeps_its_limit",
        ]),
    ),
    (
        18,
        "hybrid models grow past what was promised",
        By(&[
            "tests/kv_memory.rs::what_is_said_to_be_allocated_is_what_the_allocator_holds_for_every_kind_and_layout",
            "tests/cache/reservation.rs::no_cut_and_no_restored_prefix_takes_more_than_is_reserved",
        ]),
    ),
    (
        19,
        "lazy positions keep a buffer for every token",
        By(&["tests/kv_memory.rs::hundreds_of_steps_with_joins_and_leaves_leave_no_array_behind"]),
    ),
    (
        20,
        "buffers for reuse pile up between the chunks of a prompt",
        By(&["tests/kv_memory.rs::nothing_is_kept_for_reuse_between_the_chunks_of_a_prompt"]),
    ),
    (
        21,
        "a conversation that can't be cut leaves an entry for every turn",
        By(&[
            "tests/scheduler/kinds.rs::short_prompts_leave_snapshots_in_named_sessions_only",
            "tests/prompt_cache_index.rs::the_least_recently_used_goes_first_and_a_hit_is_a_use",
            "tests/prompt_cache_index.rs::system_prompts_outlive_turns",
        ]),
    ),
    (
        22,
        "memory grows although every prompt is found",
        By(&["tests/kv_memory.rs::a_prompt_that_is_found_again_and_again_adds_nothing"]),
    ),
    (
        23,
        "wired memory grows",
        Because("it is one figure, what Metal recommends: set when work begins, to nothing when it ends"),
    ),
    (
        24,
        "putting a cached prefix together takes longer than computing it",
        By(&["tests/cache/main.rs::a_clone_is_a_snapshot_whichever_of_the_two_goes_on"]),
    ),
    // Prompt cache.
    (
        25,
        "a prefix of one token is never found; the oldest goes instead of the least used",
        By(&[
            "tests/prompt_cache_index.rs::a_prefix_of_one_token_hits",
            "tests/prompt_cache_index.rs::the_least_recently_used_goes_first_and_a_hit_is_a_use",
        ]),
    ),
    (
        26,
        "what was cut doesn't hold what its key says",
        By(&[
            "tests/cache/main.rs::a_cut_row_keeps_its_prefix_and_gives_up_what_it_does_not_need",
            "tests/exactness/workloads.rs::a_prefix_of_a_cached_prompt_is_restored_by_cutting_and_changes_no_bit",
        ]),
    ),
    (
        27,
        "an entry just one token shorter is not used",
        By(&["tests/prompt_cache_index.rs::a_prefix_exactly_one_token_shorter_serves_all_but_the_last"]),
    ),
    (
        28,
        "a restored prefix is one token off",
        By(&[
            "tests/scheduler/prompt_cache.rs::a_follow_up_is_served_from_the_cache_and_says_the_same",
            "tests/scheduler/prompt_cache.rs::the_cache_serves_at_most_all_but_the_last_token",
        ]),
    ),
    (
        29,
        "a recurrent state is of other tokens than the prefix",
        By(&[
            "tests/scheduler/kinds.rs::what_goes_on_from_a_whole_entry_is_served_and_what_parts_from_it_is_not",
            "tests/scheduler/kinds.rs::conversations_that_go_on_are_edited_and_cancelled_say_what_they_say_alone",
        ]),
    ),
    (
        30,
        "hybrid rows and full rings are stored and never found",
        By(&[
            "tests/scheduler/kinds.rs::the_same_prompt_again_is_served_from_the_snapshot_before_its_last_token",
        ]),
    ),
    (
        31,
        "templates move thoughts, so that the next turn shares less than was stored",
        By(&[
            "tests/text/boundary.rs::a_template_that_opens_a_thought_is_stable_up_to_its_marker",
            "tests/text/boundary.rs::switched_off_thinking_is_not_part_of_what_is_shared",
        ]),
    ),
    (
        32,
        "a ring past its window can't be cut, and all is thrown away",
        By(&[
            "tests/cache/kinds.rs::a_row_past_its_window_can_be_cut_to_nothing_or_left_alone",
            "tests/scheduler/kinds.rs::inside_its_window_a_sliding_layer_is_cut_as_any",
            "src/engine/prefill.rs::snapshots_are_taken_after_the_system_prompt_and_where_the_next_turn_parts",
        ]),
    ),
    (
        33,
        "short prompts of hybrids are computed again every turn",
        By(&[
            "tests/scheduler/kinds.rs::short_prompts_leave_snapshots_in_named_sessions_only",
            "src/engine/prefill.rs::short_snapshots_are_for_named_sessions_whose_rows_cannot_be_cut",
        ]),
    ),
    (
        34,
        "a prompt that was restored says something else",
        By(&["tests/exactness/workloads.rs::random_workloads_say_to_the_bit_what_each_request_says_alone"]),
    ),
    (
        35,
        "near the end of the context everything is computed again",
        By(&["tests/scheduler/rules.rs::a_conversation_near_the_end_of_its_positions_is_still_found"]),
    ),
    // Quantized keys and values.
    (
        36,
        "quantization of keys and values is silently left out",
        By(&[
            "tests/cli/quantized_kv.rs::rows_that_join_one_another_get_the_oracles_tokens_and_every_layer_is_told",
            "tests/oracle/quantized_kv.rs::a_batched_row_holds_the_bytes_and_gives_the_logits_of_a_lone_one",
        ]),
    ),
    (
        37,
        "a scheme is accepted and not applied",
        By(&[
            "tests/cli/quantized_kv.rs::what_can_not_be_held_so_is_refused_with_the_reason",
            "tests/oracle/quantized_kv.rs::layers_that_are_named_hold_as_named",
        ]),
    ),
    // Scheduling.
    (
        38,
        "long prompts starve running rows",
        By(&[
            "tests/chunks.rs::running_rows_never_wait_for_more_than_a_chunk_or_the_batch_tokens",
            "tests/scheduler/batching.rs::a_chunk_of_one_token_lets_a_step_pass_between_two",
        ]),
    ),
    (
        39,
        "prompts that arrive together start one after another",
        By(&[
            "tests/chunks.rs::prompts_that_arrive_together_start_together_up_to_the_batch_tokens",
            "tests/scheduler/batching.rs::requests_that_arrive_together_decode_in_one_batch",
        ]),
    ),
    (
        40,
        "one long prompt holds up many short ones",
        By(&["tests/chunks.rs::running_rows_never_wait_for_more_than_a_chunk_or_the_batch_tokens"]),
    ),
    (
        41,
        "a new request freezes others; more requests than places hang",
        By(&[
            "tests/scheduler/admission.rs::no_more_rows_than_max_batch_run_at_once",
            "tests/admission.rs::nobody_overtakes_and_the_budget_holds_and_everyone_gets_in",
            "tests/scheduler/batching.rs::events_come_in_order_and_token_0_before_the_first_step",
        ]),
    ),
    (
        42,
        "a listener that leaves takes the engine along",
        By(&[
            "tests/scheduler/endings.rs::a_consumer_that_stops_fails_or_panics_ends_its_own_row_alone",
            "tests/cli/workloads.rs::a_reader_who_leaves_ends_a_replay_quietly",
        ]),
    ),
    (
        43,
        "a stream is used by a thread that doesn't have it",
        By(&["tests/scheduler/rules.rs::two_engines_of_one_process_have_a_thread_and_streams_each"]),
    ),
    (
        44,
        "requests without a seed all draw the same",
        By(&[
            "tests/scheduler/batching.rs::unseeded_requests_of_the_same_instant_draw_differently",
            "tests/scheduler/batching.rs::the_same_seed_gives_the_same_tokens_whatever_else_runs",
        ]),
    ),
    (
        45,
        "greedy requests take the slow way of sampling",
        By(&[
            "tests/sampler_reference.rs::greedy_does_not_depend_on_filters_or_noise",
            "src/sampling/params.rs::temperature_0_is_greedy_whatever_the_filters_say",
        ]),
    ),
    (
        46,
        "room is set aside for as many contexts as there are places",
        By(&[
            "tests/cache/reservation.rs::a_fresh_row_that_runs_alone_comes_to_hold_just_what_is_reserved",
            "tests/cache_own/main.rs::own_buffers_reserve_no_padding_but_the_values_stride",
            "tests/scheduler/admission.rs::a_request_that_does_not_fit_now_waits_and_nothing_overtakes_it",
        ]),
    ),
];

/// Whether `code` has a test of that name: a function with the attribute just above it.
fn is_test(code: &str, name: &str) -> bool {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let function = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        line.starts_with(&function) && attributes.into_iter().any(|line| *line == "#[test]")
    })
}

/// Holds that each fault has tests that exist, or a reason.
pub fn check(faults: &[(u32, &str, Kept)]) {
    for (at, (number, fault, kept)) in (1..).zip(faults) {
        assert_eq!(at, *number, "{fault}");
        match kept {
            By(tests) => {
                assert!(!tests.is_empty(), "{number}: {fault}");
                for test in *tests {
                    let (file, name) = test.split_once("::").expect("file::name");
                    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
                    let code = std::fs::read_to_string(path).unwrap_or_default();
                    assert!(is_test(&code, name), "{number}, {fault}: there is no {test}");
                }
            }
            Because(reason) => assert!(reason.contains(' '), "{number}: {fault}"),
        }
    }
}

#[test]
fn every_known_fault_has_a_test_that_exists_or_a_reason() {
    check(&FAULTS);
}
