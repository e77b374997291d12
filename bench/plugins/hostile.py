"""How much a well-behaved function is slowed by twelve hostile ones beside it.

    bench/plugins/hostile.py [SLIME [PAIRS]]

A generate function holds conversations of four turns, and a reward function scores them, in two hosts that have both. In pairs of runs,
each form first in turn: once all rewards behave, once twelve of them raise, hang, crash, leak, start 400 processes, write 1 GB and so
on (tests/end_to_end/test_hostile_plugins.py). What counts is the time that the conversations take.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS, PROMPTS, SAMPLES = 12, 32, 8
MISDEEDS = [
    "raise ValueError('no such luck')",
    "time.sleep(1000)",
    "ctypes.string_at(0)",
    "[held.append(b'x' * (32 << 20)) or time.sleep(0.02) for _ in range(80)]",
    "held.extend(subprocess.Popen(['sleep', '1000'], start_new_session=True) for _ in range(400)); time.sleep(1000)",
    "[sys.stdout.write('x' * (1 << 20)) for _ in range(1024)]",
    "return float('nan')",
    "return 'much'",
    "sample.loss_mask = [1] * 99",
    "await asyncio.sleep(1000)",
    "os._exit(0)",
    "os.close(3)",
]


GENERATE = """
import time
from slime.utils.http_utils import post

async def generate(args, sample, sampling_params):
    begin = time.monotonic()
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    for turn in range(4):
        output = await post(url, {"input_ids": sample.tokens, "return_logprob": True,
                                  "sampling_params": {**sampling_params, "max_new_tokens": 16, "ignore_eos": True}})
        drawn = output["meta_info"]["output_token_logprobs"]
        sample.append_response_tokens(args, tokens=[each[1] for each in drawn], log_probs=[each[0] for each in drawn],
                                      meta_info=output["meta_info"], text=output["text"])
    sample.metadata["seconds"] = time.monotonic() - begin
    return sample
"""


def code(is_hostile):
    lines = ["import asyncio, ctypes, os, subprocess, sys, time", "held = []", "async def reward(args, sample, **kwargs):"]
    if is_hostile:
        for i, misdeed in enumerate(MISDEEDS):  # one for each step
            lines.append(f"    if sample.index == {(i * PROMPTS + 3) * SAMPLES}: {misdeed}")
    lines += ["    await asyncio.sleep(0.05)", "    return float(sum(sample.tokens) % 7)"]
    return "\n".join(lines) + "\n"


def seconds_of(slime, folder, name, is_hostile):
    run_dir = folder / name
    (folder / "rewards.py").write_text(code(is_hostile))
    (folder / "turns.py").write_text(GENERATE)
    command = [
        slime, "train", "--hf-checkpoint", folder / "model", "--prompt-data", folder / "data" / "rl.jsonl",
        "--input-key", "prompt", "--label-key", "label", "--apply-chat-template", "--rollout-batch-size", PROMPTS,
        "--n-samples-per-prompt", SAMPLES, "--rollout-max-response-len", "64", "--num-rollout", STEPS,
        "--debug-rollout-only", "--fp32", "--num-threads", "1", "--run-dir", run_dir, "--custom-rm-path", "rewards.py",
        "--custom-generate-function-path", "turns.py", "--sglang-server-concurrency", "16", "--plugin-hosts", "2",
        "--plugin-timeout-seconds", "2", "--generate-timeout-seconds", "300", "--plugin-memory-gb", "0.5",
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    lines = [line for file in sorted((run_dir / "rollouts").glob("*.jsonl")) for line in file.open()]
    return statistics.mean(json.loads(line)["metadata"]["seconds"] for line in lines)


def main():
    slime = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "release" / "slime"
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model"], check=True, stdout=subprocess.DEVNULL)
        task = [sys.executable, ROOT / "tools" / "arithmetic_task.py", folder / "data", "--digits", "2"]
        subprocess.run([*task, "--corpus", "200", "--problems", "200", "--test", "20"], check=True, stdout=subprocess.DEVNULL)
        slower = []
        for i in range(pairs):
            order = (False, True) if i % 2 == 0 else (True, False)
            took = {is_hostile: seconds_of(slime, folder, f"run-{i}-{is_hostile}", is_hostile) for is_hostile in order}
            slower.append(100 * (took[True] / took[False] - 1))
            print(f"pair {i}: {1000 * took[False]:.1f} ms a conversation, {1000 * took[True]:.1f} beside hostile rewards, {slower[-1]:+.1f} %")
        print(f"median {statistics.median(slower):+.1f} % over {STEPS * PROMPTS * SAMPLES} conversations, 12 of them with a hostile reward")


if __name__ == "__main__":
    main()
