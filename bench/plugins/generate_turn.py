"""What a turn of a custom generate function costs beyond the engine's own time.

    bench/plugins/generate_turn.py [SLIME]

Draws with a tiny model through the door of a run: first one conversation at a time, where a turn's cost is what the function
waits for it less what the engine says that it took (`e2e_latency`); then 64 at once, where it is the turns of a second.
The same prompts drawn by the engine alone, in one turn, stand beside them.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TURNS, TOKENS = 8, 4

FUNCTION = f"""
import json, time
from slime.utils.http_utils import post

async def generate(args, sample, sampling_params):
    url = f"http://{{args.sglang_router_ip}}:{{args.sglang_router_port}}/generate"
    costs = []
    for turn in range({TURNS}):
        before = time.perf_counter()
        output = await post(url, {{"input_ids": sample.tokens, "return_logprob": True,
                                  "sampling_params": {{**sampling_params, "max_new_tokens": {TOKENS}, "ignore_eos": True}}}})
        costs.append(time.perf_counter() - before - output["meta_info"]["e2e_latency"])
        drawn = output["meta_info"]["output_token_logprobs"]
        sample.append_response_tokens(args, tokens=[each[1] for each in drawn], log_probs=[each[0] for each in drawn],
                                      meta_info=output["meta_info"], text=output["text"])
    sample.reward = 0.0
    sample.metadata["costs"] = costs
    return sample
"""


def run(slime, folder, name, at_once, function):
    run_dir = folder / name
    command = [
        slime, "train", "--hf-checkpoint", folder / "model", "--prompt-data", folder / "data" / "rl.jsonl",
        "--input-key", "prompt", "--label-key", "label", "--apply-chat-template", "--rollout-batch-size", "64",
        "--n-samples-per-prompt", "4", "--rollout-max-response-len", TURNS * TOKENS, "--num-rollout", "2",
        "--debug-rollout-only", "--fp32", "--num-threads", "1", "--sglang-server-concurrency", at_once,
        "--run-dir", run_dir,
    ]  # fmt: skip
    if function:
        command += ["--custom-generate-function-path", "turns.py"]
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    # The first step loads things; the second counts.
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().split("\n")[:-1]]
    seconds = [row["perf/rollout_time"] for row in rows if "perf/rollout_time" in row][-1]
    lines = (run_dir / "rollouts" / "step_000001.jsonl").read_text().split("\n")[:-1]
    return seconds, [json.loads(line) for line in lines]


def main():
    slime = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release" / "slime"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "turns.py").write_text(FUNCTION)
        subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model"], check=True, stdout=subprocess.DEVNULL)
        task = [sys.executable, ROOT / "tools" / "arithmetic_task.py", folder / "data", "--digits", "2"]
        subprocess.run([*task, "--corpus", "200", "--problems", "200", "--test", "20"], check=True, stdout=subprocess.DEVNULL)
        _, samples = run(slime, folder, "one", 1, True)
        costs = [cost * 1000 for sample in samples for cost in sample["metadata"]["costs"]]
        print(f"one at a time: {statistics.median(costs):.2f} ms a turn beyond the engine (mean {statistics.mean(costs):.2f})")
        seconds, samples = run(slime, folder, "many", 64, True)
        turns = TURNS * len(samples)
        alone, _ = run(slime, folder, "alone", 64, False)
        print(f"64 at once: {turns / seconds:.0f} turns a second, {1000 * seconds / turns:.2f} ms each; "
              f"the engine alone, one turn a sample: {1000 * alone / len(samples):.2f} ms a sample")


if __name__ == "__main__":
    main()
