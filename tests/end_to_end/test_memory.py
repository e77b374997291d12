"""Memory that runs out on the CPU: who has it, what would help, and a checkpoint that is as it was."""

import json
import resource
import subprocess
import time
from pathlib import Path

import pytest
from conftest import run_slime, sft_command, train_command

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def long_rows(work):
    """Conversations of 500 tokens or so, close to the longest that the model has positions for."""
    path = work / "long.jsonl"
    rows = []
    for n in range(400):
        text = " ".join(str(n * k) for k in range(1, 120))[:440]
        rows.append({"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": text}]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def peak_addresses(command):
    """Runs it; the most virtual memory it had, in bytes."""
    process, peak = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), 0
    while process.poll() is None:
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except OSError:
            break
        peak = max([peak] + [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmPeak")])
        time.sleep(0.01)
    assert process.wait() == 0, process.stderr.read()
    return peak


def checkpoint(run_dir):
    return {path.name: path.read_bytes() for path in sorted((run_dir / "latest").resolve().iterdir()) if path.is_file()}


def test_a_run_out_of_memory_says_who_has_it_and_leaves_its_checkpoint(work, long_rows):
    run_dir = work / "starved"
    small = ["--rollout-batch-size", "4", "--global-batch-size", "4", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "1024"]
    room = peak_addresses(sft_command(work, run_dir, long_rows, rollouts=2, extra=small))
    saved = checkpoint(run_dir)
    # 400 sequences in one micro-batch keep more than a gibibyte for their backward pass.
    large = ["--rollout-batch-size", "400", "--global-batch-size", "400", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "400000"]
    limit = room + 300 * MEBIBYTE
    starved = run_slime(
        sft_command(work, run_dir, long_rows, rollouts=4, extra=large),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert starved.returncode == 2, starved.stdout + starved.stderr
    assert "memory ran out while training" in starved.stderr
    assert "held by activations of" in starved.stderr
    assert "--max-tokens-per-gpu" in starved.stderr
    assert "checkpoint of rollout 1" in starved.stderr
    assert checkpoint(run_dir) == saved
    done = run_slime(sft_command(work, run_dir, long_rows, rollouts=4, extra=small))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing after rollout 1" in done.stdout


def test_a_cache_that_does_not_fit_is_named_with_its_flag(work):
    command = train_command(work, work / "crowded", extra=["--kv-cache-gb", "64"])
    limit = 16 << 30
    done = run_slime(command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "this machine's memory ran out while generating: 16.00 GiB" in done.stderr
    assert "--kv-cache-gb" in done.stderr
    assert "GiB of keys of a layer" in done.stderr


def test_the_table_before_the_run_is_near_what_was_used(work, long_rows):
    """Half of a gibibyte of activations; what LibTorch and the C library add is small beside it."""
    run_dir = work / "predicted"
    flags = ["--rollout-batch-size", "100", "--global-batch-size", "100", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "60000"]
    done = run_slime(sft_command(work, run_dir, long_rows, rollouts=2, extra=flags))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "memory of this process, MiB" in done.stdout
    measured = next(line for line in done.stdout.splitlines() if "memory of this process, measured" in line)
    words = measured.split()
    used = float(words[words.index("MiB") - 1])
    predicted = float(measured.split("(")[1].split()[0])
    assert 0.85 * predicted < used < 1.15 * predicted, measured
    assert "GiB, peak" in done.stdout
