"""Measurements of `slime bench` that drive an engine with updates and with a rollout, on the CPU: they end, and count right."""

import json
import shutil
import sys

import pytest
from conftest import ROOT, SLIME, run_slime


def lines_of(*arguments):
    done = run_slime([str(SLIME), "bench", *arguments, "--device", "cpu"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_april_prints_each_form_its_ledger_and_the_ratios():
    sizes = ["--prompts", "3", "--samples", "2", "--prompt-tokens", "20", "--length-scale", "0.02", "--steps", "2", "--warm-up", "1"]
    *forms, ratios = lines_of("april-tiny", *sizes, "--train")
    assert [line["form"] for line in forms] == ["sync", "partial", "sync-double"]
    for line in forms:
        assert line["generated_tokens"] == line["kept_tokens"] + line["discarded_tokens"] + line["pending_tokens"]
        assert line["groups"] == (12 if line["form"] == "sync-double" else 6)
        assert line["length_scale"] == 0.02
        assert line["value"] > 0 and line["floor"] > 0 and line["training_seconds"] > 0
    speeds = {line["form"]: line["value"] for line in forms}
    assert ratios["partial_to_sync"] == speeds["partial"] / speeds["sync"]
    assert ratios["partial_to_sync-double"] == speeds["partial"] / speeds["sync-double"]

    (alone,) = lines_of("april-tiny", *sizes, "--forms", "sync", "--first-step", "7")
    assert alone["first_step"] == 7 and alone["training_seconds"] < forms[0]["training_seconds"]


def test_april_counts_drafts_of_a_given_acceptance():
    sizes = ["--prompts", "3", "--samples", "2", "--prompt-tokens", "20", "--length-scale", "0.02", "--steps", "1", "--forms", "sync"]
    (none,) = lines_of("april-tiny", *sizes, "--drafts", "3", "--acceptance", "0", "--draft-always")
    assert none["drafts"] == 3 and none["drafted"] > 0 and none["drafts_kept"] == 0 and none["tokens_per_step"] == 1
    (all_right,) = lines_of("april-tiny", *sizes, "--drafts", "3", "--acceptance", "1", "--draft-always")
    assert all_right["drafts_kept"] == all_right["drafted"] > 0 and all_right["kept_tokens"] == none["kept_tokens"]
    done = run_slime([str(SLIME), "bench", "april-tiny", "--draft-always", "--device", "cpu"], cwd=ROOT)
    assert done.returncode == 2 and "--drafts" in done.stderr


def test_a_form_or_mode_that_is_none_is_refused_with_those_there_are():
    for arguments, words in [
        (("april-tiny", "--forms", "async"), "sync, partial, partial-early, partial-late or sync-double"),
        (("update-pause-tiny", "--modes", "retract"), "keep, recompute or interrupt"),
        (("april-huge",), "qwen3-huge"),
    ]:
        done = run_slime([str(SLIME), "bench", *arguments, "--device", "cpu"], cwd=ROOT)
        assert done.returncode != 0 and words in done.stderr


def test_a_mistyped_name_is_answered_with_the_nearest_one():
    for name, nearest in [("plugin-call", "plugin-calls"), ("decode-4b-b33", "decode-4b-b32"), ("aprl-tiny", "april-tiny"), ("april-tinny", "qwen3-tiny")]:
        done = run_slime([str(SLIME), "bench", name], cwd=ROOT)
        assert done.returncode == 2 and f"did you mean {nearest}?" in done.stderr


def test_where_the_measurements_are_not_installed_it_says_how_to_build_them(tmp_path):
    shutil.copy(SLIME, tmp_path / "slime")
    done = run_slime([str(tmp_path / "slime"), "bench", "algo"], cwd=ROOT)
    assert done.returncode == 2 and "./dev build release slime-bench" in done.stderr


def test_update_pause_prints_each_mode():
    lines = lines_of("update-pause-tiny", "--sequences", "8", "--steps-per-update", "5", "--updates", "4")
    assert [line["mode"] for line in lines] == ["keep", "recompute", "interrupt"]
    for line in lines:
        assert line["updates"] == 4 and len(line["pauses_ms"]) == 4
        assert line["bytes_copied"] > 0 and line["copy_ms"] > 0 and line["normal_step_ms"] > 0
        assert line["worst_ms"] >= line["value"] >= 0


def test_update_pause_of_an_engine_apart_says_how_long_the_weights_were_on_their_way():
    (line,) = lines_of(
        "update-pause-tiny", "--engines-apart", "1", "--modes", "keep", "--sequences", "8", "--steps-per-update", "5", "--updates", "4"
    )
    assert line["updates"] == 4 and line["engines_apart"] == 1
    assert line["transfer_ms"] > 0 and line["transfer_gb_per_second"] > 0


@pytest.mark.parametrize("apart", [(), ("--engines-apart", "1")], ids=["here", "apart"])
def test_update_pause_of_an_adapter_says_when_it_is_in_use(apart):
    sizes = ["--modes", "keep", "--sequences", "8", "--steps-per-update", "5", "--updates", "4"]
    (line,) = lines_of("update-pause-tiny", "--lora-rank", "4", *sizes, *apart)
    (whole,) = lines_of("update-pause-tiny", *sizes, *apart)
    assert line["updates"] == 4 and line["lora_rank"] == 4
    assert 0 < line["bytes_copied"] < whole["bytes_copied"]  # the adapter alone
    for each in (line, whole):
        assert each["worst_in_use_ms"] >= each["in_use_ms"] > 0
        assert each["in_use_ms"] > each["copy_ms"]


def test_adapter_updates_print_each_source():
    sizes = ["--sequences", "4", "--lora-rank", "4", "--steps-per-update", "3", "--updates", "3", "--prompt-tokens", "20"]
    lines = lines_of("adapter-updates-tiny", *sizes)
    assert [line["source"] for line in lines] == ["trainer", "host", "directory"]
    for line in lines:
        assert line["updates"] == 3 and line["bytes"] > 0 and line["lora_rank"] == 4
        assert line["worst_ms"] >= line["value"] > line["loaded_ms"] > 0 and line["first_token_ms"] > 0
        assert line["worst_gap_ms"] >= line["longest_gap_ms"] > 0 and line["normal_step_ms"] > 0
    done = run_slime([str(SLIME), "bench", "adapter-updates-tiny", "--sources", "disk", "--device", "cpu"], cwd=ROOT)
    assert done.returncode != 0 and "--sources" in done.stderr


def test_a_made_up_model_is_a_directory_that_commands_take(tmp_path):
    made = [str(SLIME), "bench", "made-up-model", "--model", "qwen3-tiny", "--out", str(tmp_path / "model")]
    done = run_slime(made, cwd=ROOT)
    assert done.returncode == 0 and json.loads(done.stdout)["value"] > 0, done.stderr
    shown = run_slime([str(SLIME), "inspect", str(tmp_path / "model")], cwd=ROOT)
    assert shown.returncode == 0, shown.stderr
    again = run_slime(made, cwd=ROOT)
    assert again.returncode != 0 and "is there already" in again.stderr


def test_calls_of_tinker_are_measured_row_by_row():
    script = [sys.executable, str(ROOT / "bench/tinker/calls.py"), "--program", str(SLIME), "--shape", "qwen3-tiny", "--rank", "4"]
    done = run_slime([*script, "--calls", "3", "--row-seconds", "5", "--only", "optim_step", "sampler", "1 token"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = {row["call"]: row for row in map(json.loads, done.stdout.splitlines())}
    for name in ("optim_step", "save_weights_for_sampler", "save_weights_for_sampler, by name", "save_weights_for_sampler and 1 token of it"):
        assert rows[name]["whole_p50_ms"] > 0 and rows[name]["rank"] == 4, rows
    assert "healthz" not in rows and rows["optim_step"]["beyond_p50_ms"] > 0


def test_agents_print_tokens_per_second_and_their_waits():
    sizes = ["--agents", "3", "--turns", "2", "--prompt-tokens", "40", "--growth", "30", "--new-tokens", "8"]
    (line,) = lines_of("agents-tiny", *sizes, "--chunked-prefill-size", "16")
    assert line["prompt_tokens"] == 3 * (40 + 70) and line["cached_tokens"] > 3 * 40
    assert line["value"] * line["seconds"][0] == pytest.approx(line["output_tokens"])
    for waits in ("first_token_ms", "first_token_of_first_turn_ms", "token_gap_ms"):
        assert 0 < line[waits]["median"] <= line[waits]["p99"] <= line[waits]["worst"]
    done = run_slime([str(SLIME), "bench", "agents-tiny", "--growth", "10", "--new-tokens", "8", "--device", "cpu"], cwd=ROOT)
    assert done.returncode != 0 and "--growth 10 has no room for answers of up to 12 tokens" in done.stderr


def test_prompt_scores_print_the_speed_with_and_without():
    (line,) = lines_of("prompt-scores-tiny", "--prompts", "3", "--prompt-tokens", "50", "--top-logprobs", "2", "--repeats", "1")
    assert line["value"] * line["seconds"] == pytest.approx(3 * 50) and line["without_scores"] > 0


def test_engine_counts_compare_two_engines_with_one():
    one, two = lines_of("engines-tiny", "--sequences", "4", "--prompt-tokens", "16", "--new-tokens", "8", "--repeats", "1")
    assert (one["engines"], two["engines"]) == (1, 2) and (one["sequences"], two["sequences"]) == (4, 8)
    for line in (one, two):
        assert line["value"] * line["seconds"] == pytest.approx(line["sequences"] * 8)
    assert one["to_first"] == 1 and two["to_first"] == pytest.approx(two["value"] / one["value"])


def test_places_that_are_freed_group_by_group_lose_no_sample():
    sizes = ["--prompts", "3", "--samples", "2", "--prompt-tokens", "20", "--length-scale", "0.02", "--steps", "3", "--warm-up", "1"]
    early, late, ratios = lines_of("april-tiny", *sizes, "--forms", "partial-early,partial-late", "--max-running-requests", "5")
    for line in (early, late):
        assert line["generated_tokens"] == line["kept_tokens"] + line["discarded_tokens"] + line["pending_tokens"]
        assert line["groups"] == 9
    assert ratios["partial-early_to_partial-late"] == early["value"] / late["value"]


@pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")
def test_plugin_calls_are_counted():
    done = run_slime([str(SLIME), "bench", "plugin-calls", "--calls", "300", "--repeats", "1"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["calls"] == 300 and line["calls_per_second"] * line["seconds"] == pytest.approx(300)
    refused = run_slime([str(SLIME), "bench", "plugin-calls", "--plugin-python", "/bin/false"], cwd=ROOT)
    assert refused.returncode != 0 and "--plugin-python /bin/false" in refused.stderr
