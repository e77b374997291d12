"""Writes the folder of a run that never was: metrics, rollout files, settings, of any size.

    python tests/tools/made_up_run.py runs/large --steps 1000 --samples 512
    python tests/tools/made_up_run.py runs/grows --steps 200 --samples 64 --seconds-per-step 1

Numbers follow from --seed. The reward rises and levels off; responses grow; from --hack-at on the reward rises again while responses
triple, which the page's alarm for reward hacking has to find."""

import argparse
import json
import math
import os
import random
import time
from pathlib import Path

WORDS = (
    " the number of apples is then we have so that each term adds up to a total and therefore answer equals because if not"
    " check again step by first second multiply divide sum difference value let x be"
).split()
POOL = 400  # distinct responses of a step size; lines of samples are made of them


def system_text():
    return "<|im_start|>system\nYou solve arithmetic problems. Think step by step, then answer in \\boxed{}.<|im_end|>\n<|im_start|>user\n"


def body(rng, tokens):
    """The fields of a response that cost most to write, as JSON text without braces."""
    texts = [(" " if i else "") + rng.choice(WORDS) for i in range(tokens)]
    engine = [-rng.expovariate(2.5) for _ in range(tokens)]
    trainer = [value + rng.gauss(0, 0.004) for value in engine]
    numbers = lambda values: "[" + ",".join(f"{value:.9g}" for value in values) + "]"  # noqa: E731
    ids = ",".join(str(rng.randrange(50_000)) for _ in range(tokens + 24))
    return (
        f'"tokens":[{ids}],"response":{json.dumps("".join(texts))},"response_length":{tokens},"loss_mask":null,'
        f'"rollout_log_probs":{numbers(engine)},"train_log_probs":{numbers(trainer)},"token_texts":{json.dumps(texts)},'
    )


class Run:
    def __init__(self, folder, *, steps, samples, group, tokens, seed, hack_at, flags):
        self.folder, self.steps, self.samples, self.group = Path(folder), steps, samples, group
        self.tokens, self.hack_at = tokens, hack_at
        self.rng = random.Random(seed)
        self.pools = {}
        (self.folder / "rollouts").mkdir(parents=True, exist_ok=True)
        record = {
            "run_id": f"made-up-{seed}", "model": "made-up/0.5B", "num_rollout": steps, "loss_type": "policy_loss",
            "flags": {"--hf-checkpoint": "made-up/0.5B", "--rollout-batch-size": samples // group, "--n-samples-per-prompt": group,
                      "--advantage-estimator": "grpo", "--lr": 1e-6, **flags},
        }  # fmt: skip
        (self.folder / "run.json").write_text(json.dumps(record))

    def is_hacked(self, step):
        return self.hack_at is not None and step >= self.hack_at

    def reward(self, step):
        base = 0.08 + 0.62 * (1 - math.exp(-step / (0.28 * self.steps)))
        return min(0.98, base + (0.25 if self.is_hacked(step) else 0))

    def length(self, step):
        return int(self.tokens * (1 + 0.5 * step / self.steps) * (3.2 if self.is_hacked(step) else 1))

    def write_step(self, step, start):
        rng, groups = self.rng, self.samples // self.group
        mean_tokens = max(4, self.length(step))
        bucket = max(1, round(mean_tokens / 8)) * 8
        if bucket not in self.pools:
            self.pools[bucket] = [(n, body(rng, n)) for n in (max(2, int(rng.gauss(bucket, bucket / 4))) for _ in range(POOL))]
        lines, rewards, lengths, truncated, dead = [], [], [], 0, {}
        for g in range(groups):
            ordinal = step * groups + g
            chance = min(0.97, max(0.03, rng.gauss(self.reward(step), 0.25)))
            a, b = rng.randrange(10, 99), rng.randrange(10, 99)
            prompt = json.dumps(system_text() + f"What is {a} * {b}?<|im_end|>\n<|im_start|>assistant\n")
            own = []
            for k in range(self.group):
                tokens, text = rng.choice(self.pools[bucket])
                reward = 1.0 if rng.random() < chance else 0.0
                cut = rng.random() < 0.04
                own.append(reward)
                lengths.append(tokens)
                truncated += cut
                newest, behind = max(0, step - 1), rng.random() < 0.3
                versions = f"[[{max(0, newest - 1)},{tokens // 2}],[{newest},{tokens - tokens // 2}]]" if behind else f"[[{newest},{tokens}]]"
                lines.append(
                    f'{{"group_index":{ordinal},"index":{ordinal * self.group + k},"index_in_group":{k},"prompt":{prompt},{text}'
                    f'"label":"{a * b}","reward":{reward},"weight_versions":{versions},"status":"{"truncated" if cut else "completed"}",'
                    f'"remove_sample":false,"metadata":{{}},"cached_tokens":16,"generation_seconds":{rng.uniform(0.4, 2):.3f}}}\n'
                )
            rewards += own
            if len(set(own)) == 1:
                dead[own[0]] = dead.get(own[0], 0) + 1
        path = self.folder / "rollouts" / f"step_{step:06d}.jsonl"
        path.with_suffix(".part").write_text("".join(lines))
        os.replace(path.with_suffix(".part"), path)
        self.write_metrics(step, start, rewards, lengths, truncated, dead)

    def write_metrics(self, step, start, rewards, lengths, truncated, dead):
        rng, n = self.rng, len(rewards)
        generate, train = abs(rng.gauss(14, 1.5)) + 0.002 * step, abs(rng.gauss(9, 0.7))
        late = self.is_hacked(step)
        row = {
            "step": step, "time": start, "rollout/raw_reward": sum(rewards) / n, "rollout/response_len/mean": sum(lengths) / n,
            "rollout/response_len/min": min(lengths), "rollout/response_len/max": max(lengths),
            "rollout/truncated_ratio": truncated / n, "rollout/repetition_frac": abs(rng.gauss(0.2 if late else 0.01, 0.01)),
            "train/loss": rng.gauss(0, 0.02), "train/entropy_loss": 0.85 * math.exp(-step / self.steps) + rng.gauss(0, 0.01),
            "train/grad_norm": abs(rng.gauss(0.6, 0.15)), "train/kl_loss": 0.02 * step / self.steps + abs(rng.gauss(0, 0.001)),
            "train/ppo_kl": abs(rng.gauss(0.0004, 0.0002)), "train/pg_clipfrac": abs(rng.gauss(0.004, 0.002)),
            "train/lr-pg_0": 1e-6, "train/step": step, "train/train_rollout_logprob_abs_diff": abs(rng.gauss(0.0035, 0.0004)),
            "rollout/weight_version/lag_mean": 1 + rng.random() * 0.3, "rollout/weight_version/lag_max": 2,
            "rollout/weight_version/lag_share/0": 0.1, "rollout/weight_version/lag_share/1": 0.75, "rollout/weight_version/lag_share/2": 0.15,
            "perf/tokens_per_gpu_per_sec": abs(rng.gauss(2600, 120)), "perf/actor_train_tok_per_s": abs(rng.gauss(7400, 200)),
            "phase/generate": generate, "phase/score": abs(rng.gauss(0.6, 0.1)), "phase/train": train, "phase/publish": abs(rng.gauss(0.8, 0.1)),
            **{f"rollout/zero_std/count_{reward:.1f}": count for reward, count in dead.items()},
        }  # fmt: skip
        if step % 20 == 0:
            row["eval/gsm8k"] = min(0.95, self.reward(step) * (0.6 if late else 1) + rng.gauss(0, 0.01))
        with open(self.folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")


def write_run(folder, *, steps=20, samples=16, group=8, tokens=48, seed=1, hack_at=None, seconds_per_step=0.0, flags=None):
    run = Run(folder, steps=steps, samples=samples, group=group, tokens=tokens, seed=seed, hack_at=hack_at, flags=flags or {})
    begin = time.time() - (0 if seconds_per_step else steps * 25)
    for step in range(steps):
        run.write_step(step, time.time() if seconds_per_step else begin + step * 25)
        time.sleep(seconds_per_step)
    return run.folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=512, help="of a step")
    parser.add_argument("--group", type=int, default=8, help="samples of a prompt")
    parser.add_argument("--tokens", type=int, default=48, help="of a response, at the beginning")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hack-at", type=int, help="step from which the reward is hacked")
    parser.add_argument("--seconds-per-step", type=float, default=0, help="grow at this pace")
    parser.add_argument("--lr", type=float, default=1e-6, help="what run.json says")
    a = parser.parse_args()
    write_run(a.folder, steps=a.steps, samples=a.samples, group=a.group, tokens=a.tokens, seed=a.seed, hack_at=a.hack_at,
              seconds_per_step=a.seconds_per_step, flags={"--lr": a.lr})  # fmt: skip


if __name__ == "__main__":
    main()
