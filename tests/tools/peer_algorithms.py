#!/usr/bin/env python3
"""Golden numbers of the algorithms that the original does not have: RLOO, Dr. GRPO, DAPO's overlong penalty, DPO.

    python3 tests/tools/peer_algorithms.py      # writes tests/golden/peer_*.json

Plain loops over the papers' formulas, no tensor library; gradients by closed form, each checked against central
differences. It shares nothing with the implementation under test.
"""

import json
import math
import random
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "golden"
RNG = random.Random(20260)


def draw(low, high, digits=4):
    return round(RNG.uniform(low, high), digits)


def write(name, cases):
    (FOLDER / f"peer_{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
    print(f"peer_{name}.json: {len(cases)} cases")


def check_gradient(function, point, gradient, where):
    """`function` of a flat list; central differences."""
    step = 1e-6
    for i, slope in enumerate(gradient):
        up, down = list(point), list(point)
        up[i] += step
        down[i] -= step
        measured = (function(up) - function(down)) / (2 * step)
        assert abs(measured - slope) <= 1e-6 * max(1, abs(slope)), (where, i, measured, slope)


# RLOO, arXiv 2402.14740: A_i = r_i - 1/(k-1) sum_{j != i} r_j.
def leave_one_out(rewards):
    k = len(rewards)
    if k == 1:
        return [0.0]
    return [r - sum(rewards[j] for j in range(k) if j != i) / (k - 1) for i, r in enumerate(rewards)]


def rloo_cases():
    groups = {
        "binary": [[1, 0, 0, 1]],
        "two_groups": [[1, 0, 0.5], [-2, 3, 0]],
        "pair": [[0.25, 0.75]],
        "equal_rewards": [[0.5, 0.5, 0.5, 0.5]],
        "group_of_one": [[1.0]],
        "random": [[draw(-2, 2) for _ in range(8)] for _ in range(3)],
    }
    return [
        {
            "name": name,
            "params": {"advantage_estimator": "rloo"},
            "inputs": {"groups": value},
            "expected": {"advantages": [leave_one_out(group) for group in value]},
        }
        for name, value in groups.items()
    ]


# DAPO, arXiv 2503.14476, equation 13.
def overlong(length, longest, cache):
    if length <= longest - cache:
        return 0.0
    if length <= longest:
        return ((longest - cache) - length) / cache
    return -1.0


def overlong_cases():
    lengths = [0, 1, 11, 12, 13, 15, 16, 17, 40]
    cases = []
    for longest, cache, factor in [(16, 4, 1.0), (16, 16, 1.0), (20, 8, 0.5), (16384, 4096, 1.0)]:
        at = lengths + [longest - cache, longest - cache + 1, longest - cache // 2, longest, longest + 1]
        cases.append(
            {
                "name": f"max_{longest}_cache_{cache}_factor_{factor}",
                "params": {"max_length": longest, "buffer": cache, "factor": factor},
                "inputs": {"lengths": at},
                "expected": {"penalties": [factor * overlong(length, longest, cache) for length in at]},
            }
        )
    return cases


# Dr. GRPO, arXiv 2503.20783, equation 4: clipped terms, summed over tokens, divided by a constant; A = r - mean(r).
def clipped_term(logprob, old, advantage, low, high):
    ratio = math.exp(logprob - old)
    bounded = min(max(ratio, 1 - low), 1 + high)
    free, bound = ratio * advantage, bounded * advantage
    slope = -free if free <= bound else 0.0  # no tie occurs in the drawn numbers off ratio 1
    if free == bound and bounded == ratio:
        slope = -free
    return -min(free, bound), slope


def dr_grpo_cases():
    cases = []
    for name, lengths, divisor in [("two_responses", [3, 2], 8), ("one_token", [1, 1], 1000), ("ragged", [5, 1, 4, 2], 16)]:
        rewards = [draw(-1, 1) for _ in lengths]
        mean = sum(rewards) / len(rewards)
        logprobs = [[draw(-3, -0.1) for _ in range(n)] for n in lengths]
        old = [[round(l + draw(-0.5, 0.5), 4) for l in row] for row in logprobs]
        masks = [[1 if RNG.random() > 0.2 or t == 0 else 0 for t in range(n)] for n in lengths]
        advantages = [r - mean for r in rewards]

        def loss_of(flat, lengths=lengths, old=old, masks=masks, advantages=advantages, divisor=divisor):
            total, at = 0.0, 0
            for i, n in enumerate(lengths):
                for t in range(n):
                    total += masks[i][t] * clipped_term(flat[at], old[i][t], advantages[i], 0.2, 0.28)[0]
                    at += 1
            return total / divisor

        gradient = [
            [masks[i][t] * clipped_term(logprobs[i][t], old[i][t], advantages[i], 0.2, 0.28)[1] / divisor for t in range(n)]
            for i, n in enumerate(lengths)
        ]
        flat = [x for row in logprobs for x in row]
        check_gradient(loss_of, flat, [x for row in gradient for x in row], name)
        cases.append(
            {
                "name": name,
                "params": {"divisor": divisor, "eps_clip": 0.2, "eps_clip_high": 0.28},
                "inputs": {"rewards": rewards, "log_probs": logprobs, "old_log_probs": old, "loss_masks": masks},
                "expected": {"advantages": advantages, "pg_loss": loss_of(flat), "dloss_dlogprob": gradient},
            }
        )
    return cases


# DPO, arXiv 2305.18290, equation 7.
def log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


def dpo_cases():
    cases = []
    for name, pairs, beta, smoothing in [
        ("one_pair", 1, 0.1, 0.0),
        ("three_pairs", 3, 0.5, 0.0),
        ("label_smoothing", 2, 0.3, 0.1),
        ("large_margin", 2, 20.0, 0.0),
    ]:
        rows = [[draw(-3, -0.1) for _ in range(RNG.randint(1, 5))] for _ in range(2 * pairs)]
        ref = [[draw(-3, -0.1) for _ in row] for row in rows]
        masks = [[1 if RNG.random() > 0.25 or t == 0 else 0 for t in range(len(row))] for row in rows]

        def parts(flat, rows=rows, ref=ref, masks=masks, beta=beta):
            rewards, policy, at = [], [], 0
            for i, row in enumerate(rows):
                p = sum(masks[i][t] * flat[at + t] for t in range(len(row)))
                q = sum(masks[i][t] * ref[i][t] for t in range(len(row)))
                at += len(row)
                policy.append(p)
                rewards.append(beta * (p - q))
            return rewards, policy

        def loss_of(flat, pairs=pairs, smoothing=smoothing):
            rewards, _ = parts(flat)
            total = 0.0
            for k in range(pairs):
                margin = rewards[2 * k] - rewards[2 * k + 1]
                total += -(1 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin)
            return total

        flat = [x for row in rows for x in row]
        rewards, policy = parts(flat)
        gradient = []
        for i, row in enumerate(rows):
            margin = rewards[i - i % 2] - rewards[i - i % 2 + 1]
            sigmoid = 1 / (1 + math.exp(-margin)) if margin > -700 else 0.0
            slope = sigmoid - 1 + smoothing  # d loss / d margin
            sign = 1 if i % 2 == 0 else -1
            gradient.append([masks[i][t] * sign * beta * slope for t in range(len(row))])
        if beta < 1:
            check_gradient(loss_of, flat, [x for row in gradient for x in row], name)
        margins = [rewards[2 * k] - rewards[2 * k + 1] for k in range(pairs)]
        cases.append(
            {
                "name": name,
                "params": {"beta": beta, "label_smoothing": smoothing},
                "inputs": {"log_probs": rows, "ref_log_probs": ref, "loss_masks": masks},
                "expected": {
                    "loss": loss_of(flat),
                    "dloss_dlogprob": gradient,
                    "metrics": {
                        "rewards/chosen": sum(rewards[0::2]),
                        "rewards/rejected": sum(rewards[1::2]),
                        "rewards/margins": sum(margins),
                        "rewards/accuracies": sum(margin > 0 for margin in margins),
                        "logps/chosen": sum(policy[0::2]),
                        "logps/rejected": sum(policy[1::2]),
                    },
                },
            }
        )
    return cases


if __name__ == "__main__":
    write("rloo", rloo_cases())
    write("overlong", overlong_cases())
    write("dr_grpo", dr_grpo_cases())
    write("dpo", dpo_cases())
