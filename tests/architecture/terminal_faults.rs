//! What users of terminal chat clients ran into, numbered, and what here keeps it from happening.

use crate::known_faults::Kept::{self, Because, By};
use crate::known_faults::check;

const FAULTS: [(u32, &str, Kept); 39] = [
    // Streaming and flicker.
    (
        1,
        "code flickers between raw and colored while it streams",
        By(&[
            "tests/ui/markdown.rs::what_is_shown_of_a_prefix_is_what_is_shown_of_it_alone",
            "tests/ui/reading.rs::code_has_the_terminals_colors_once_they_are_known",
        ]),
    ),
    (
        2,
        "the whole viewport is painted again for each token",
        By(&["tests/ui/frames.rs::cells_that_did_not_change_are_not_written"]),
    ),
    (
        3,
        "a resize clears the screen outside of an update",
        By(&["tests/ui/frames.rs::frames_are_whole_updates_and_clear_nothing_outside_of_them"]),
    ),
    (
        4,
        "the end of an answer vanishes or is never shown",
        By(&[
            "tests/ui/scrolling.rs::the_screen_shows_what_is_kept_when_an_answer_ends",
            "tests/ui/aloud.rs::an_answer_is_told_in_whole_lines_and_sentences_once",
        ]),
    ),
    (
        5,
        "the view bounces as lines are erased upwards",
        By(&["tests/ui/frames.rs::frames_are_whole_updates_and_clear_nothing_outside_of_them"]),
    ),
    (
        6,
        "soft breaks are drawn as hard ones",
        By(&["tests/ui/markdown.rs::a_line_end_within_a_paragraph_is_a_space"]),
    ),
    (
        7,
        "long answers freeze the screen",
        By(&[
            "tests/ui/markdown.rs::a_token_lays_out_the_last_block_alone",
            "tests/ui/markdown.rs::a_paragraph_of_megabytes_is_read_once_and_not_again_for_each_piece",
            "tests/ui/wrapping.rs::text_of_one_line_and_of_a_megabyte_grows_without_being_wrapped_again",
        ]),
    ),
    // Scrolling.
    (
        8,
        "the view jumps while one reads and text streams",
        By(&[
            "tests/ui/scrolling.rs::what_one_reads_does_not_move_while_text_streams_nor_at_its_end",
            "tests/ui/scrolling.rs::end_follows_again_and_the_mark_goes",
        ]),
    ),
    (
        9,
        "the last lines can't be reached",
        By(&["tests/ui/scrolling.rs::every_row_can_be_reached_from_the_first_to_the_last"]),
    ),
    // Widths and input methods.
    (
        10,
        "widths are counted in characters",
        By(&[
            "src/ui/cells.rs::widths_count_cells_and_not_characters",
            "tests/ui/wrapping.rs::no_row_is_wider_than_asked_for",
        ]),
    ),
    (
        11,
        "an emoji with a variation selector breaks borders",
        By(&["tests/ui/screens.rs::a_wide_emoji_beside_the_border_does_not_move_it"]),
    ),
    (
        12,
        "marks of ambiguous width break the layout",
        By(&[
            "tests/ui/scripts.rs::ambiguous_characters_take_two_cells_where_that_is_asked_for",
            "tests/ui/scripts.rs::a_wide_row_is_written_so_that_each_character_stands_in_its_place",
            "tests/ui/screens.rs::ascii_screens_hold_nothing_but_ascii_of_the_interface",
        ]),
    ),
    (
        13,
        "wide characters leave residue",
        By(&["tests/ui/frames.rs::a_wide_character_that_a_narrow_one_replaces_leaves_nothing_behind"]),
    ),
    (
        14,
        "an input method's window is away from the caret",
        By(&["tests/ui/frames.rs::the_hardware_cursor_is_at_the_caret_in_every_frame"]),
    ),
    (
        15,
        "text is cut within a character",
        By(&[
            "src/text/sanitize.rs::a_stream_cut_anywhere_comes_out_the_same",
            "tests/ui/wrapping.rs::text_that_grows_is_wrapped_as_if_it_came_whole",
        ]),
    ),
    // Input, paste, keys.
    (
        16,
        "a paste of several lines is sent line by line",
        By(&[
            "tests/ui/keys.rs::a_paste_never_sends",
            "tests/terminal.rs::a_marked_paste_is_one_draft_and_sends_nothing",
        ]),
    ),
    (
        17,
        "a paste without marks is sent line by line",
        By(&[
            "tests/ui/keys.rs::a_paste_that_is_not_marked_never_sends_its_inner_lines",
            "tests/ui/looks.rs::a_burst_without_marks_becomes_a_chip_and_a_typed_text_does_not",
        ]),
    ),
    (
        18,
        "large pastes stall, or are doubled when deleted",
        By(&[
            "tests/ui/writing.rs::a_large_paste_is_passed_and_deleted_as_one",
            "tests/ui/writing.rs::a_megabyte_is_pasted_and_edited",
            "src/ui/writing/vim/tests.rs::a_large_paste_is_one_character_and_one_line_for_every_command",
        ]),
    ),
    (
        19,
        "^C destroys the draft",
        By(&[
            "tests/ui/keys.rs::interrupting_clears_then_stops_then_asks_then_quits",
            "tests/ui/keys.rs::a_cleared_draft_comes_back_with_up",
            "tests/ui/looks.rs::without_copy_on_select_the_interrupt_key_copies_and_nothing_else",
        ]),
    ),
    (
        20,
        "^C stops where it should clear, or hangs after the start",
        By(&["tests/ui/keys.rs::interrupting_works_while_the_model_loads_and_on_the_dashboard"]),
    ),
    (
        21,
        "Shift-Enter sends",
        By(&["tests/ui/keys.rs::every_newline_key_begins_a_line_and_sends_nothing"]),
    ),
    // The terminal's life.
    (
        22,
        "mouse, paste or keyboard modes stay on after the end",
        By(&[
            "tests/terminal.rs::the_terminal_is_as_it_was_after_a_signal",
            "tests/terminal.rs::the_terminal_is_as_it_was_after_a_panic_of_the_interface",
            "tests/terminal/looks.rs::the_mouse_is_given_back_after_a_signal",
        ]),
    ),
    (
        23,
        "the cursor stays hidden after the end",
        By(&["tests/terminal.rs::the_terminal_is_as_it_was_after_quitting"]),
    ),
    (
        24,
        "stopping and going on corrupts the shell",
        By(&[
            "tests/terminal.rs::suspending_gives_the_shell_a_sane_terminal_and_comes_back",
            "tests/terminal.rs::a_job_that_ran_in_the_background_comes_to_the_front_again",
        ]),
    ),
    (
        25,
        "logs of others corrupt the screen",
        By(&["tests/terminal.rs::the_terminal_is_as_it_was_after_a_panic_of_the_interface"]),
    ),
    (
        26,
        "text of a model steers the terminal",
        By(&[
            "tests/ui/screens.rs::text_of_the_model_cannot_steer_the_terminal",
            "tests/ui/aloud.rs::text_of_the_model_can_not_steer_the_lines",
            "src/text/sanitize.rs::escape_sequences_show_as_text",
        ]),
    ),
    // Performance.
    (
        27,
        "an idle program draws",
        By(&[
            "tests/ui/frames.rs::an_idle_screen_is_not_drawn",
            "tests/terminal.rs::an_idle_program_writes_nothing",
        ]),
    ),
    (
        28,
        "keys are slow in long sessions",
        By(&[
            "tests/ui/frames.rs::a_key_is_drawn_at_once_though_text_streams",
            "tests/ui/frames.rs::keys_that_come_together_are_one_frame",
        ]),
    ),
    // Honesty.
    (
        29,
        "stopping only stops the view",
        By(&[
            "tests/ui/frames.rs::escape_cancels_the_focused_request_alone",
            "tests/terminal.rs::an_answer_is_stopped_by_escape_and_its_text_kept",
        ]),
    ),
    // tmux, ssh, clipboard, mouse.
    (
        30,
        "a copy that nobody took is called copied",
        By(&[
            "src/ui/reading/clipboard.rs::nothing_is_called_copied_that_was_only_sent",
            "src/ui/reading/clipboard.rs::tmux_and_screen_are_told_to_hand_it_on",
            "src/ui/reading/clipboard.rs::over_ssh_the_terminal_alone_is_asked",
        ]),
    ),
    (
        31,
        "a captured mouse takes the terminal's selection away",
        By(&[
            "tests/ui/looks.rs::the_mouse_is_the_terminals_unless_it_is_asked_for",
            "tests/ui/looks.rs::what_is_dragged_over_is_copied_without_borders_and_wraps",
        ]),
    ),
    (
        32,
        "copied text has wraps and indents of the screen",
        By(&[
            "tests/ui/reading.rs::a_block_of_code_is_copied_by_its_number_byte_for_byte",
            "tests/ui/markdown.rs::code_in_a_list_is_copied_without_the_lists_indent",
            "tests/ui/reading.rs::the_raw_view_shows_what_the_model_wrote_and_keeps_the_place",
        ]),
    ),
    (
        33,
        "scroll regions eat a multiplexer's scrollback",
        Because("frames are cells on the second screen; no scroll region is ever set"),
    ),
    // Colors, sizes, shells.
    (
        34,
        "colors can't be read on a light or small palette",
        By(&[
            "src/ui/styles/theme/tests.rs::every_color_of_our_themes_can_be_read_on_their_background",
            "tests/ui/screens.rs::the_terminals_own_colors_are_left_alone",
            "tests/ui/matrix.rs::every_state_says_the_same_at_every_size_in_all_colors",
            "src/ui/styles.rs::without_color_nothing_is_told_by_color",
        ]),
    ),
    (
        35,
        "a tiny terminal is a panic",
        By(&[
            "tests/ui/screens.rs::every_screen_at_every_small_size_draws_without_a_panic",
            "tests/ui/matrix.rs::every_state_draws_at_every_small_size_in_all_colors",
        ]),
    ),
    (
        36,
        "piped input locks up; pipes get escape sequences",
        By(&["tests/cli/running.rs::the_program_alone_answers_piped_input_like_run"]),
    ),
    (
        37,
        "a screen of an old size is drawn after a resize",
        By(&["tests/ui/frames.rs::after_many_resizes_the_screen_is_as_if_drawn_afresh"]),
    ),
    // Sessions.
    (
        38,
        "two stores disagree, a torn line loses a session, two programs write one",
        By(&[
            "tests/chat/store.rs::a_log_cut_at_any_byte_loads_loses_at_most_its_last_record_and_goes_on",
            "tests/chat/store.rs::a_second_writer_is_told_which_conversation_is_open_elsewhere_and_may_read_it",
            "tests/terminal.rs::what_was_said_a_second_before_kill_9_is_there_again",
        ]),
    ),
    (
        39,
        "no message can be edited or branched from; looks need a restart",
        By(&[
            "tests/chat/branches.rs::an_edited_prompt_is_sent_as_a_sibling_and_the_draft_comes_back",
            "tests/chat/branches.rs::a_fork_has_the_shown_branch_in_a_log_of_its_own",
            "tests/terminal/looks.rs::a_theme_of_ones_own_is_read_anew_when_it_is_saved_and_a_mistake_is_told",
        ]),
    ),
];

#[test]
fn every_known_fault_of_such_terminals_has_a_test_that_exists_or_a_reason() {
    check(&FAULTS);
}
