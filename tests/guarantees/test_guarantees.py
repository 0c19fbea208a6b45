"""Guarantees of the documentation, each with the tests that would fail without it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/explanation/guarantees.md"

PROOFS: dict[str, tuple[str, ...]] = {
    "a resumed run ends bitwise as an uninterrupted one": (
        "guarantees/test_exact_resume.py::test_a_resumed_run_ends_as_an_uninterrupted_one",
        "guarantees/test_exact_resume.py::test_a_run_interrupted_at_every_second_step_ends_as_an_uninterrupted_one",
        "guarantees/test_cuda.py::test_deterministic_runs_are_the_same_interrupted_or_not",
    ),
    "a distillation repeats no finished step, and none counts whose files have changed": (
        "tools/distillation/test_distillation_runner.py::test_finished_steps_are_not_repeated",
        "tools/distillation/test_distillation_runner.py::test_a_changed_file_repeats_what_was_made_of_it",
        "tools/distillation/test_distillation_runner.py::test_a_translation_killed_before_it_was_recorded_is_not_repeated",
        "tools/commands/test_distill_train.py::test_a_changed_request_is_refused_by_its_key",
        "tools/commands/test_distill_train.py::test_a_killed_call_is_completed_by_the_same_command",
        "tools/commands/test_distill_train.py::test_children_end_with_a_killed_parent",
    ),
    "a comparison trains at once what it trains in turn, and resumes": (
        "tools/analysis/test_compare.py::test_runs_trained_at_once_are_those_of_one_after_the_other",
        "tools/analysis/test_compare.py::test_the_same_command_completes_runs_that_were_trained_at_once",
        "tools/analysis/test_compare_training.py::test_a_run_that_fails_by_its_config_does_not_end_the_others",
        "tools/analysis/test_compare_training.py::test_another_failure_stops_the_others_and_ends",
        "tools/analysis/test_compare_training.py::test_a_signal_stops_all_once",
    ),
    "the position in the data is computed": (
        "guarantees/test_exact_resume.py::test_resuming_repeats_no_work",
        "data/test_batching.py::test_the_order_depends_only_on_seed_and_epoch",
    ),
    "memory does not grow with the corpus, and a stale or damaged cache is recognised": (
        "data/test_token_cache.py::test_memory_does_not_grow_with_the_corpus",
        "data/test_token_cache.py::test_a_changed_file_is_noticed_and_dependent_entries_are_rebuilt",
        "data/test_token_cache.py::test_a_file_that_changes_while_it_is_read_is_refused",
        "data/test_token_cache.py::test_damage_is_detected_and_repaired_with_a_one_line_message",
        "data/test_token_cache.py::test_a_cache_whose_build_was_killed_is_completed",
    ),
    "a run resumes with the same text in other files, and with no other text": (
        "guarantees/test_same_text.py::test_a_run_resumes_exactly_with_the_same_text_in_other_files",
        "guarantees/test_same_text.py::test_another_text_in_the_same_files_is_refused_with_a_remedy",
    ),
    "what a stranger's graph computes is bounded as a whole": (
        "engines/test_untrusted_graphs_fuzzer.py::test_the_first_graphs_of_the_fuzzer",
        "engines/test_untrusted_graphs_fuzzer.py::test_spoiled_graphs_are_refused_or_computed",
        "engines/test_untrusted_graphs.py::test_graphs_of_every_model_pass",
        "engines/test_untrusted_graphs.py::test_outputs_have_the_sizes_that_are_declared",
    ),
    "a translation obeys all rules of its search, or a note names those left out": (
        "inference/test_rules.py::test_two_rules_leave_the_intersection_of_their_sets",
        "inference/test_rules.py::test_three_rules_leave_the_intersection_of_their_sets",
        "inference/test_giving_way.py::test_one_rule_after_the_other_gives_way",
        "inference/test_giving_way.py::test_a_line_without_a_translation_is_searched_with_weaker_rules",
        "guarantees/test_generated_lines.py::test_a_translation_depends_on_its_line_and_obeys_its_rules",
    ),
    "a second Ctrl-C ends the process at once": (
        "cli/test_interruption.py::test_a_second_interrupt_ends_what_python_waits_for",
    ),
    "texts that a config names elsewhere are named, and quoted only on request": (
        "tools/analysis/test_report.py::test_text_from_elsewhere_is_quoted_only_on_request",
        "guarantees/test_strangers_folder.py::test_a_config_opens_nothing_that_is_not_named",
        "tools/commands/test_average.py::test_validation_data_from_elsewhere_are_named",
        "runs/test_engine_folder_fuzzer.py::test_the_first_descriptions_of_the_fuzzer",
    ),
    "the client that has used least is the next": (
        "tools/serving/test_translation_queue.py::test_a_client_with_few_lines_is_next_however_many_others_have",
    ),
    "kill -9 at any moment leaves a folder that resumes": (
        "guarantees/test_kill.py::test_a_killed_run_ends_as_an_uninterrupted_one",
        "guarantees/test_damaged_runs.py::test_a_run_killed_before_its_first_save_starts_again",
        "training/test_loop_save_every.py::test_a_run_killed_in_the_middle_of_an_epoch_resumes_exactly",
    ),
    "files are written under a temporary name, synced, renamed": (
        "tools/commands/test_split.py::test_a_crash_leaves_no_part_of_an_earlier_division",
        "runtime/test_files.py::test_a_failure_leaves_the_old_file_and_no_temporary_file",
        "runs/test_checkpoint.py::test_every_file_is_synced_before_it_is_renamed",
        "guarantees/test_write_failures.py::test_the_folder_is_synced_after_the_rename",
        "guarantees/test_write_failures.py::test_metrics_are_on_disk_before_the_checkpoint_that_counts_them",
    ),
    "the cache is private, and a run resumes on what it recorded": (
        "data/test_token_cache_trust.py::test_the_cache_of_another_user_is_not_used",
        "data/test_token_cache_trust.py::test_an_entry_of_another_user_is_replaced",
        "data/test_token_cache_trust.py::test_the_cache_is_made_private_whatever_its_permissions_were",
        "data/test_token_cache_trust.py::test_an_entry_that_differs_from_the_recorded_one_is_rebuilt",
        "data/test_token_cache_trust.py::test_a_run_resumes_exactly_after_its_cache_was_changed",
    ),
    "links and files of other users are refused where a run writes": (
        "guarantees/test_foreign_files.py::test_resuming_refuses_a_vocabulary_that_is_a_link",
        "guarantees/test_foreign_files.py::test_files_of_another_user_are_refused",
        "guarantees/test_foreign_files.py::test_resuming_refuses_links_that_it_would_write_to",
        "guarantees/test_foreign_files.py::test_training_with_overwrite_does_not_write_through_links",
    ),
    "a full disk, a read-only or vanished folder: one line, and the last checkpoint is intact": (
        "guarantees/test_write_failures.py::test_a_checkpoint_that_cannot_be_written_ends_training_with_one_line",
        "guarantees/test_write_failures.py::test_a_folder_made_read_only_ends_training_with_one_line",
        "guarantees/test_write_failures.py::test_a_folder_that_vanished_ends_training_with_one_line",
    ),
    "damaged and foreign files are named, and intact ones are offered": (
        "runs/test_tensor_file.py::test_every_flipped_bit_is_detected",
        "runs/test_tensor_file.py::test_every_truncation_is_detected",
        "guarantees/test_damaged_runs.py::test_weights_of_another_run_are_detected",
        "guarantees/test_damaged_runs.py::test_a_damaged_vocabulary_is_named",
        "guarantees/test_damaged_runs.py::test_a_damaged_config_is_named_and_written_again",
        "guarantees/test_damaged_runs.py::test_with_a_damaged_last_state_the_previous_one_gives_the_same_result",
    ),
    "Ctrl-C and SIGTERM save, and exit with 130 and 143": (
        "cli/test_train.py::test_a_signal_saves_the_run_and_resume_continues_it",
        "guarantees/test_exact_resume.py::test_resuming_a_finished_run_changes_nothing",
    ),
    "steps with a non-finite loss are skipped without synchronisation": (
        "training/test_step.py::test_a_step_without_a_finite_gradient_changes_nothing",
        "training/test_step.py::test_a_step_reads_no_value",
        "training/test_divergence.py::test_the_log_names_the_skipped_batches",
        "training/test_divergence.py::test_ten_consecutive_skipped_steps_roll_back_with_half_the_rate",
        "training/test_divergence.py::test_a_run_that_rolling_back_does_not_help_ends_with_one_line",
        "guarantees/test_cuda.py::test_a_step_is_taken_or_skipped_without_synchronisation",
    ),
    "a batch too large for memory is split into micro-batches": (
        "training/test_step.py::test_micro_batches_have_the_gradient_of_the_batch",
        "training/test_step.py::test_a_resource_limit_is_recognised_as_out_of_memory",
    ),
    "one process per folder, one run per folder, one config per run": (
        "runtime/test_locks.py::test_the_second_process_is_refused",
        "guarantees/test_two_trainings.py::test_the_second_training_is_refused_even_if_the_lock_file_was_removed",
        "training/test_preparation.py::test_a_folder_with_a_run_is_left_alone",
        "training/test_preparation.py::test_resume_shows_what_changed_in_the_config",
    ),
    "one output line per input line, for any content": (
        "guarantees/test_any_input.py::test_every_input_line_has_an_output_line",
        "guarantees/test_any_input.py::test_no_line_of_a_fuzzing_corpus_is_lost",
        "guarantees/test_any_input.py::test_the_order_of_lines_is_kept",
        "cli/test_translate.py::test_bytes_that_are_not_utf8_are_replaced_and_reported",
    ),
    "a line that is too long is cut by rule and reported": (
        "inference/test_translator.py::test_a_line_too_long_is_cut_into_parts_that_fit",
        "inference/test_translator.py::test_only_the_start_of_an_endless_word_is_translated",
        "cli/test_translate.py::test_an_overlong_line_is_translated_in_parts_and_reported",
        "cli/test_translate.py::test_an_overlong_word_is_truncated_and_reported",
    ),
    "a stream gets each line as it comes, a closed pipe ends quietly": (
        "cli/test_input.py::test_a_line_is_translated_while_the_stream_stays_open",
        "cli/test_input.py::test_a_closed_reader_ends_the_command_quietly",
    ),
    "batch, order and padding change no translation": (
        "guarantees/test_same_output.py::test_batch_order_and_padding_do_not_change_translations",
        "guarantees/test_same_output.py::test_few_texts_depend_on_the_number_of_threads",
        "inference/test_search.py::test_results_do_not_depend_on_the_batch",
        "guarantees/test_batch_invariance.py::test_a_sentence_alone_is_translated_as_in_any_batch",
        "guarantees/test_batch_invariance.py::test_a_predicted_window_depends_on_its_own_sentence_alone",
    ),
    "the same seed gives the same run": (
        "guarantees/test_exact_resume.py::test_the_same_config_gives_the_same_run",
        "guarantees/test_exact_resume.py::test_another_process_gives_the_same_run",
        "runtime/test_device.py::test_deterministic_mode_is_enabled_on_cuda_and_restored",
        "guarantees/test_cuda.py::test_deterministic_runs_are_the_same_interrupted_or_not",
    ),
    "batches made ahead are the same batches": (
        "training/test_batches.py::test_any_number_of_workers_makes_the_same_batches",
        "training/test_batches.py::test_a_killed_worker_costs_no_batch",
        "training/test_batches.py::test_workers_leave_signals_to_the_main_process_and_end_with_it",
    ),
    "several processes train as one, and act alike": (
        "runtime/test_process_group.py::test_two_processes_train_as_one_does",
        "runtime/test_process_group.py::test_all_ranks_have_bitwise_the_same_weights",
        "runtime/test_process_group.py::test_a_rank_may_split_its_share_into_micro_batches",
        "runtime/test_process_group.py::test_a_non_finite_loss_on_one_rank_is_skipped_on_all",
        "runtime/test_process_group.py::test_a_signal_to_one_rank_stops_all_and_loses_nothing",
        "runtime/test_process_group.py::test_a_rank_that_dies_ends_the_run_with_one_line",
        "runtime/test_process_group.py::test_an_error_is_reported_once",
    ),
    "no code runs that you did not write": (
        "guarantees/test_hostile_files.py::test_a_hostile_file_in_a_run_folder_is_refused",
        "guarantees/test_hostile_files.py::test_pipes_devices_and_links_are_refused_without_blocking",
        "guarantees/test_hostile_files.py::test_a_sparse_file_of_a_terabyte_is_not_hashed",
        "guarantees/test_foreign_files.py::test_training_with_overwrite_does_not_write_through_links",
        "guarantees/test_hostile_files.py::test_no_module_executes_what_it_reads",
    ),
    "no score outside of the package is imported or called because a file names it": (
        "guarantees/test_foreign_scores.py::test_what_a_stranger_names_is_neither_imported_nor_called",
        "guarantees/test_foreign_scores.py::test_every_command_refuses_a_score_that_only_a_file_names",
        "guarantees/test_foreign_scores.py::test_no_class_of_torch_is_taken_for_a_score",
    ),
    "downloads are checked by hash, and stay in their folder; no network otherwise": (
        "data/test_public_corpora.py::test_wrong_content_is_not_kept",
        "data/test_public_corpora.py::test_hostile_member_names_are_not_extracted",
        "guarantees/test_hostile_files.py::test_no_command_uses_the_network",
    ),
    "errors are explained at once": (
        "guarantees/test_mistakes.py::test_an_error_is_reported_and_changes_no_files",
        "tools/analysis/test_check_findings.py::test_a_fault_is_reported_with_its_place_and_remedy",
        "training/test_diagnosis.py::test_one_output_for_every_input_is_reported",
    ),
    "text is not altered, and scores are sacrebleu's": (
        "data/test_vocabulary.py::test_any_text_survives_a_round_trip",
        "evaluation/test_metrics.py::test_scores_intervals_and_signatures_equal_those_of_the_program",
        "cli/test_evaluate.py::test_references_not_in_nfc_are_noted_and_scored_unchanged",
    ),
    "untrusted text does not control a terminal, and JSON lines stay lines": (
        "guarantees/test_terminal.py::test_a_translation_is_escaped_on_a_terminal_only",
        "guarantees/test_terminal.py::test_messages_are_escaped",
        "guarantees/test_terminal.py::test_each_line_of_json_is_one_line_to_any_reader",
    ),
    "no output replaces an input or a file of the run": (
        "cli/test_output.py::test_no_output_replaces_a_file_of_the_run",
        "cli/test_output.py::test_no_output_replaces_an_input",
        "cli/test_output.py::test_a_terminated_call_leaves_no_temporary_file",
    ),
    "paths are checked before any work, and an unreadable file is not called damaged": (
        "guarantees/test_inaccessible_paths.py::test_a_name_that_is_too_long_is_refused_before_any_work",
        "guarantees/test_inaccessible_paths.py::test_an_unreadable_file_is_not_reported_as_damaged",
        "guarantees/test_inaccessible_paths.py::test_resuming_does_not_replace_unreadable_files",
    ),
    "lines unlike the training text are cut, completed or noted": (
        "inference/test_requirements.py::test_a_line_is_translated_as_if_it_had_the_mark",
        "inference/test_requirements.py::test_other_lines_are_left_alone",
        "text/test_steps_around_search.py::test_a_line_without_letters_is_copied_with_a_note",
        "text/test_steps_around_search.py::test_affixes_are_put_back",
        "text/test_entities.py::test_entities_that_a_text_lacks_are_characters",
        "text/test_typed_marks.py::test_the_mark_that_ends_a_line_is_read_as_that_of_the_script",
        "text/test_steps_capitals.py::test_a_line_in_capitals_is_translated_as_another_and_written_in_capitals",
        "text/test_source_profile.py::test_95_percent_of_the_lines_define_the_usual_sentence_count",
        "inference/test_translator.py::test_sentences_are_translated_one_by_one_where_the_training_text_has_one_per_line",
    ),
    "weights are finite, and every search ends": (
        "guarantees/test_finite_weights.py::test_every_reader_refuses_non_finite_weights",
        "guarantees/test_finite_weights.py::test_no_writer_saves_non_finite_weights",
        "inference/test_search_non_finite.py::test_search_ends_and_names_the_sentence",
        "inference/test_search_non_finite.py::test_a_model_that_can_never_end_is_stopped_at_its_limit",
    ),
    "two trainings never share a folder": (
        "guarantees/test_two_trainings.py::test_the_second_training_is_refused_even_if_the_lock_file_was_removed",
        "guarantees/test_two_trainings.py::test_a_run_that_replaced_this_one_is_not_overwritten",
    ),
    "lost and damaged metrics are reported": (
        "runs/test_metrics_file.py::test_damage_anywhere_is_reported_in_one_line",
    ),
    "an n-best list has different texts, and long lines take linear memory": (
        "inference/test_nbest.py::test_five_entries_are_five_different_texts",
        "inference/test_nbest.py::test_peak_memory_grows_at_most_linearly",
    ),
    "a server gives the results of the command line, under any load": (
        "guarantees/test_answers_under_load.py::test_answers_under_load_equal_those_of_the_command_line",
        "guarantees/test_answers_under_load.py::test_64_clients_and_fuzz_lines",
        "tools/serving/test_v1.py::test_answers_are_the_objects_of_the_command_line",
        "tools/serving/test_libretranslate.py::test_each_line_of_a_text_is_translated",
    ),
    "requests fail alone, are bounded, and end quietly": (
        "tools/serving/test_translation_queue.py::test_a_failing_request_does_not_affect_others",
        "tools/serving/test_translation_queue.py::test_a_large_request_does_not_hold_up_small_ones",
        "tools/serving/test_access.py::test_requests_that_are_too_large_are_refused",
        "tools/serving/test_access.py::test_a_full_queue_answers_503",
        "tools/serving/test_access.py::test_a_client_that_disconnects_is_dropped",
        "tools/serving/test_app_connections.py::test_those_that_wait_longest_make_room_for_others",
        "tools/serving/test_app_connections.py::test_a_client_that_closes_both_sides_is_noticed",
        "tools/serving/test_app_fuzzer.py::test_the_first_requests_of_the_fuzzer",
        "tools/serving/test_forms.py::test_work_is_in_proportion_to_the_size_or_bounded",
        "tools/serving/test_forms.py::test_forms_without_a_token_keep_no_one_from_translating",
        "tools/commands/test_serve.py::test_accepted_requests_complete_after_a_signal",
        "tools/commands/test_serve.py::test_a_search_that_does_not_end_is_ended_after_a_signal",
    ),
    "a server is reached only from this machine, and its page executes no text": (
        "tools/serving/test_access.py::test_another_host_name_is_refused",
        "tools/serving/test_access.py::test_pages_of_other_sites_are_allowed_only_if_configured",
        "tools/serving/test_access.py::test_every_answer_has_the_security_headers",
        "tools/serving/test_page_in_browser.py::test_text_is_never_markup",
        "tools/commands/test_serve.py::test_the_page_loads_nothing_from_the_network",
    ),
    "an exported model translates like its run": (
        "guarantees/test_exported_models.py::test_an_export_translates_like_its_run",
        "guarantees/test_exported_models.py::test_models_of_every_kind_are_exported",
        "guarantees/test_exported_models.py::test_an_ensemble_is_one_folder_or_several",
        "guarantees/test_exported_models.py::test_translations_do_not_depend_on_the_other_lines",
        "guarantees/test_exported_models.py::test_a_damaged_export_is_reported_in_one_line",
        "guarantees/test_exported_models.py::test_a_score_that_cannot_be_traced_is_computed_by_torch",
        "engines/test_untrusted_graphs.py::test_a_graph_that_could_do_harm_is_refused",
        "engines/test_untrusted_graphs.py::test_a_spoiled_export_is_reported_in_one_line",
        "runs/test_engine_folder.py::test_no_command_imports_torch_on_a_cpu",
        "runs/test_engine_folder.py::test_replaced_weights_are_never_translated_by_the_engine_of_others",
        "engines/test_trace.py::test_steps_of_a_graph_equal_those_of_the_model",
        "engines/test_trace.py::test_encoders_of_every_shape_are_exported",
        "engines/test_trace.py::test_a_graph_copies_like_the_model",
        "guarantees/test_exported_models.py::test_a_score_of_the_user_is_exported",
    ),
    "an exported model needs no training dependencies": (
        "guarantees/test_without_torch.py::test_translate_needs_no_torch",
        "guarantees/test_without_torch.py::test_unsupported_options_of_an_export_are_refused_in_one_line",
    ),
    "bad data are refused first": (
        "training/test_preparation.py::test_refused_data_leave_no_trace",
        "guarantees/test_wrong_files.py::test_every_reader_reports_an_archive",
        "text/test_text_files_compressed.py::test_a_bomb_is_refused_in_little_memory",
    ),
}


def promises() -> list[str]:
    """Return the sections of the page, each of which is a row of its table and folds its tests."""
    table, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)
    names = [section.partition("\n")[0] for section in sections[:-1]]
    assert re.findall(r"^\| \[(.+?)\]\(#", table, re.M) == names
    assert all('<details markdown="1">' in section for section in sections[:-1])
    return [" ".join(section.split()) for section in sections[:-1]]


def marks_of(name: str) -> dict[str, str]:
    """Return the source of the decorators of each test of a file, with those of the module."""
    tree = ast.parse((ROOT / "tests" / name).read_text(encoding="utf-8"))
    of_all = "".join(
        ast.unparse(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
    )
    return {
        statement.name: "\n".join([of_all, *map(ast.unparse, statement.decorator_list)])
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef)
    }


def is_quick(marks: str) -> bool:
    """Return whether `make test` runs a case of the test with these decorators."""
    lines = [line for line in marks.split("\n") if ".parametrize(" not in line]
    return not re.search(r"mark\.(thorough|browser|gpu|load)\b", "\n".join(lines))


def test_guarantees_have_their_tests() -> None:
    for guarantee, proofs in PROOFS.items():
        marks = {}
        for proof in proofs:
            file, _, name = proof.partition("::")
            marks[proof] = marks_of(file).get(name)
            assert marks[proof] is not None, f"{proof} is gone"
            assert "xfail" not in marks[proof], proof
            assert "mark.skip(" not in marks[proof], proof
        assert any(map(is_quick, marks.values())), f"{guarantee}: all of its tests are thorough"


def test_every_promise_names_its_tests() -> None:
    files_of_proofs = {proof.partition("::")[0] for proofs in PROOFS.values() for proof in proofs}
    assert len(promises()) > 10
    files_on_page = set()
    for promise in promises():
        files = re.findall(r"`tests/([\w/]+\.py)`", promise)
        assert files, promise
        marks = [mark for file in files for mark in marks_of(file).values()]
        assert any(map(is_quick, marks)), f"all tests are thorough: {promise}"
        files_on_page |= set(files)
    assert files_on_page == files_of_proofs
