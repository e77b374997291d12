"""What each option of the algorithms does to a step: `slime train` against plain Python.

Every run here trains on the same responses, which a policy some updates away drew, so that ratios, corrections and
divergences are far from one. Its first step's numbers are computed again from those responses, from the trainer's
log-probs of the first weights, and from formulas of docs/spec/algorithms.md.
"""

import json
import math
import struct

import pytest
from conftest import command_on, mean, metric, run_slime

ENDS = [str(token) for token in range(44)]  # so that lengths differ: one in six tokens ends a response
LONGEST = 12
ENGINE_IS_OLD = ["--use-rollout-logprobs"]
MIS = ["--custom-tis-function-path", "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"]
# Float32 in the trainer, sums of a few hundred terms of size one.
RELATIVE, ABSOLUTE = 2e-4, 2e-5


def close(expected):
    return pytest.approx(expected, rel=RELATIVE, abs=ABSOLUTE)


class Drawn:
    """Responses in a folder of dumps, and two models: the first weights and those that drew."""

    def __init__(self, work, data):
        self.work, self.data, self.dumps = work, data, work / "drawn_dumps"
        self.first, run_dir = work / "model", work / "drawn"
        lengths = ["--rollout-stop-token-ids", *ENDS, "--rollout-max-response-len", str(LONGEST)]
        dumps = ["--save-debug-rollout-data", str(work / "drawn_all" / "{rollout_id}.jsonl"), "--lr", "3e-3"]
        done = run_slime(command_on(work, data, run_dir, [*lengths, *dumps], rollouts=8))
        assert done.returncode == 0, done.stdout + done.stderr
        self.later = (run_dir / "latest").resolve()
        self.dumps.mkdir()
        for rollout in range(4):  # the same four times: what differs between steps is the trainer's doing
            (self.dumps / f"{rollout}.jsonl").write_bytes((work / "drawn_all" / "7.jsonl").read_bytes())
        self.samples = samples_of(self.dumps / "0.jsonl")
        self.now = self.scored_by(self.first)
        self.base = self.scored_by(self.later)
        self.runs = {}

    def scored_by(self, model):
        """The log-probs that the trainer gives each response with these weights."""
        run_dir = self.work / f"scored-{model.name}"
        done = run_slime([*self.command(run_dir, []), "--hf-checkpoint", str(model)])
        assert done.returncode == 0, done.stdout + done.stderr
        return [sample["train_log_probs"] for sample in samples_of(run_dir / "rollouts" / "step_000000.jsonl")]

    def command(self, run_dir, options, rollouts=1):
        offline = ["--load-debug-rollout-data", str(self.dumps / "{rollout_id}.jsonl"), "--max-tokens-per-gpu", "100000"]
        lengths = ["--rollout-max-response-len", str(LONGEST)]
        return command_on(self.work, self.data, run_dir, [*offline, *lengths, *options], rollouts=rollouts)

    def trained(self, *options, rollouts=1):
        """The run directory of training with these options; equal ones are run once."""
        key = (rollouts, *options)
        if key not in self.runs:
            run_dir = self.work / f"numbers-{len(self.runs)}"
            done = run_slime(self.command(run_dir, options, rollouts))
            assert done.returncode == 0, done.stdout + done.stderr
            self.runs[key] = run_dir
        return self.runs[key]

    def other_reference(self):
        """Without --load the actor would begin with the reference, as in the original."""
        return ["--ref-load", str(self.later), "--load", str(self.first)]

    def step(self, *options):
        """The numbers of its first step."""
        rows = (self.trained(*options) / "metrics.jsonl").read_text().splitlines()
        return {name: value for row in map(json.loads, rows) if row["step"] == 0 for name, value in row.items()}

    @property
    def engine(self):
        return [sample["rollout_log_probs"] for sample in self.samples]

    @property
    def rewards(self):
        return [sample["reward"] for sample in self.samples]

    def by_group(self, function, rewards=None):
        """function(own reward, rewards of its group), sample by sample."""
        rewards = self.rewards if rewards is None else rewards
        groups = {}
        for sample, reward in zip(self.samples, rewards):
            groups.setdefault(sample["group_index"], []).append(reward)
        return [function(reward, groups[sample["group_index"]]) for sample, reward in zip(self.samples, rewards)]

    def spread(self, scores):
        """A number per response to one per token."""
        return [[score] * len(tokens) for score, tokens in zip(scores, self.engine)]


def samples_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def drawn(work, capitals):
    drawn = Drawn(work, capitals)
    # What the tests below need: mixed rewards, several lengths, log-probs well apart.
    assert any(0 < mean(group) < 1 for group in drawn.by_group(lambda _, group: group))
    assert len({len(tokens) for tokens in drawn.engine}) > 3
    assert mean([abs(d) for row in subtract(drawn.now, drawn.engine) for d in row]) > 0.05
    return drawn


def each(function, *columns):
    """function over the tokens of columns of lists."""
    return [[function(*values) for values in zip(*rows)] for rows in zip(*columns)]


def subtract(a, b):
    return each(lambda x, y: x - y, a, b)


def ratio(a, b):
    return each(lambda x, y: math.exp(x - y), a, b)


def reduced(rows):
    """Mean over responses of the mean over their tokens."""
    return mean([mean(row) for row in rows])


def clip(x, low, high):
    return min(max(x, low), high)


def against_group(reward, group):
    deviation = math.sqrt(sum((r - mean(group)) ** 2 for r in group) / (len(group) - 1))
    return (reward - mean(group)) / (deviation + 1e-6)


def against_mean(reward, group):
    return reward - mean(group)


def against_others(reward, group):
    return reward - (sum(group) - reward) / (len(group) - 1)


def whitened(rows):
    values = [x for row in rows for x in row]
    variance = sum((x - mean(values)) ** 2 for x in values) / (len(values) - 1)
    return each(lambda x: (x - mean(values)) / math.sqrt(variance + 1e-8), rows)


def clipped_loss(advantage, r, low=0.2, high=0.2, dual=None):
    loss = max(-r * advantage, -clip(r, 1 - low, 1 + high) * advantage)
    return min(loss, -dual * advantage) if dual and advantage < 0 else loss


def is_clipped(advantage, r, low, high):
    return float(-clip(r, 1 - low, 1 + high) * advantage > -r * advantage)


@pytest.fixture(scope="module")
def grpo(drawn):
    return drawn.spread(drawn.by_group(against_group))


def test_without_an_option_the_ratio_is_one(drawn, grpo):
    step = drawn.step()
    assert step["train/pg_loss"] == close(-reduced(grpo))
    assert step["train/pg_clipfrac"] == 0
    assert step["train/ppo_kl"] == close(0)
    assert step["train/loss"] == step["train/pg_loss"]
    absolute = each(abs, subtract(drawn.now, drawn.engine))
    assert step["train/train_rollout_logprob_abs_diff"] == close(reduced(absolute))
    assert not [name for name in step if "mis_" in name or "tis" in name or "opsm" in name or "kl_loss" in name or "critic" in name]


def test_use_rollout_logprobs_takes_the_ratio_to_the_engines(drawn, grpo):
    step = drawn.step(*ENGINE_IS_OLD, "--eps-clip", "0.1", "--eps-clip-high", "0.3")
    r = ratio(drawn.now, drawn.engine)
    share = reduced(each(lambda a, x: is_clipped(a, x, 0.1, 0.3), grpo, r))
    assert 0.05 < share < 0.95
    assert step["train/pg_clipfrac"] == close(share)
    assert step["train/pg_loss"] == close(reduced(each(lambda a, x: clipped_loss(a, x, 0.1, 0.3), grpo, r)))
    assert step["train/ppo_kl"] == close(reduced(subtract(drawn.engine, drawn.now)))


def test_eps_clip_bounds_below_and_eps_clip_high_above(drawn, grpo):
    r = ratio(drawn.now, drawn.engine)
    losses = set()
    for low, high in ((0.2, 0.2), (0.05, 0.2), (0.2, 0.5)):
        step = drawn.step(*ENGINE_IS_OLD, "--eps-clip", str(low), "--eps-clip-high", str(high))
        assert step["train/pg_loss"] == close(reduced(each(lambda a, x: clipped_loss(a, x, low, high), grpo, r)))
        losses.add(round(step["train/pg_loss"], 4))
    assert len(losses) == 3


def test_dual_clip_bounds_what_a_bad_response_costs(drawn, grpo):
    step = drawn.step(*ENGINE_IS_OLD, "--eps-clip-c", "1.1")
    r = ratio(drawn.now, drawn.engine)
    expected = reduced(each(lambda a, x: clipped_loss(a, x, dual=1.1), grpo, r))
    assert step["train/pg_loss"] == close(expected)
    assert expected < drawn.step(*ENGINE_IS_OLD)["train/pg_loss"] - 10 * ABSOLUTE


def test_gspo_has_one_ratio_for_a_response(drawn, grpo):
    step = drawn.step(*ENGINE_IS_OLD, "--advantage-estimator", "gspo", "--eps-clip", "0.05")
    k = drawn.spread([mean(row) for row in subtract(drawn.engine, drawn.now)])
    r = each(lambda x: math.exp(-x), k)
    assert step["train/ppo_kl"] == close(reduced(k))
    assert step["train/pg_clipfrac"] == close(reduced(each(lambda a, x: is_clipped(a, x, 0.05, 0.05), grpo, r)))
    assert step["train/pg_loss"] == close(reduced(each(lambda a, x: clipped_loss(a, x, 0.05, 0.05), grpo, r)))


def test_cispo_weighs_log_probs_with_a_clipped_ratio(drawn, grpo):
    step = drawn.step(*ENGINE_IS_OLD, "--advantage-estimator", "cispo", "--eps-clip", "1", "--eps-clip-high", "0.2")
    r = ratio(drawn.now, drawn.engine)
    assert step["train/pg_loss"] == close(reduced(each(lambda a, x, l: -clip(x, 0, 1.2) * a * l, grpo, r, drawn.now)))
    share = reduced(each(lambda x: float(x > 1.2), r))
    assert share > 0
    assert step["train/pg_clipfrac"] == close(share)


@pytest.mark.parametrize(
    ("options", "how"),
    [
        (["--disable-grpo-std-normalization"], against_mean),
        (["--disable-rewards-normalization"], lambda reward, _: reward),
        (["--advantage-estimator", "rloo"], against_others),
    ],
    ids=["no-std", "no-normalization", "rloo"],
)
def test_scores_are_compared_within_the_group_as_asked(drawn, options, how):
    advantages = drawn.spread(drawn.by_group(how))
    step = drawn.step(*ENGINE_IS_OLD, *options)
    assert step["train/pg_loss"] == close(reduced(each(clipped_loss, advantages, ratio(drawn.now, drawn.engine))))
    assert step["rollout/advantages"] == close(reduced(advantages))
    assert step["train/pg_loss"] != close(drawn.step(*ENGINE_IS_OLD)["train/pg_loss"])


@pytest.mark.parametrize(
    ("options", "divisor"),
    [
        (["--advantage-estimator", "dr_grpo"], LONGEST),
        (["--disable-grpo-std-normalization", "--policy-loss-divisor", "7"], 7),
        (["--disable-grpo-std-normalization", "--custom-pg-loss-reducer-function-path", "examples.DrGRPO.custom_reducer.get_pg_loss_reducer"], 1000),
    ],
    ids=["dr_grpo", "policy-loss-divisor", "custom-reducer"],
)  # fmt: skip
def test_dr_grpo_divides_sums_by_a_constant(drawn, options, divisor):
    losses = each(clipped_loss, drawn.spread(drawn.by_group(against_mean)), ratio(drawn.now, drawn.engine))
    step = drawn.step(*ENGINE_IS_OLD, *options)
    assert step["train/pg_loss"] == pytest.approx(mean([sum(row) / divisor for row in losses]), rel=RELATIVE, abs=ABSOLUTE / 10)


def test_calculate_per_token_loss_is_a_mean_over_tokens(drawn, grpo):
    losses = [x for row in each(clipped_loss, grpo, ratio(drawn.now, drawn.engine)) for x in row]
    assert mean(losses) != close(reduced(each(clipped_loss, grpo, ratio(drawn.now, drawn.engine))))
    assert drawn.step(*ENGINE_IS_OLD, "--calculate-per-token-loss")["train/pg_loss"] == close(mean(losses))


def test_overlong_responses_lose_reward_before_groups_are_compared(drawn):
    buffer = 4
    penalties = [-max(0, len(row) - (LONGEST - buffer)) / buffer * 0.5 for row in drawn.engine]
    assert len(set(penalties)) > 2
    rewards = [r + p for r, p in zip(drawn.rewards, penalties)]
    advantages = drawn.spread(drawn.by_group(against_group, rewards))
    step = drawn.step(*ENGINE_IS_OLD, "--overlong-buffer-len", str(buffer), "--overlong-penalty-factor", "0.5")
    assert step["train/pg_loss"] == close(reduced(each(clipped_loss, advantages, ratio(drawn.now, drawn.engine))))


@pytest.mark.parametrize("kl_coef", [0, 0.1])
@pytest.mark.parametrize("estimator", ["reinforce_plus_plus", "reinforce_plus_plus_baseline"])
def test_reinforce_plus_plus_whitens_returns(drawn, estimator, kl_coef):
    reference = ["--kl-coef", str(kl_coef), *drawn.other_reference()] if kl_coef else []
    options = ["--advantage-estimator", estimator, "--normalize-advantages", "--gamma", "0.9", *reference]
    kl = subtract(drawn.now, drawn.base)
    if estimator == "reinforce_plus_plus":
        returns = []
        for reward, row in zip(drawn.rewards, kl):
            total, backwards = reward, []
            for t, x in enumerate(reversed(row)):
                total = (total if t == 0 else 0.9 * total) - kl_coef * x
                backwards.append(total)
            returns.append(backwards[::-1])
    else:
        scores = drawn.spread(drawn.by_group(against_mean))
        returns = each(lambda score, x: score - kl_coef * x, scores, kl)
    step = drawn.step(*options)
    assert step["rollout/returns"] == close(reduced(returns))
    assert step["rollout/advantages"] == close(reduced(whitened(returns)))
    assert step["train/pg_loss"] == close(-reduced(whitened(returns)))
    if kl_coef:
        tokens = [x for row in kl for x in row]  # as in the original: a mean over tokens, not over responses
        assert step["rollout/kl"] == close(sum(tokens) / len(tokens))
    assert step["rollout/advantages"] != close(reduced(returns))


def test_ppo_learns_values_and_waits_for_them(drawn):
    run_dir = drawn.trained("--advantage-estimator", "ppo", "--num-critic-only-steps", "2", rollouts=4)
    returns, values, advantages = (metric(run_dir, f"rollout/{name}") for name in ("returns", "values", "advantages"))
    rewards = drawn.spread(drawn.rewards)
    for row in range(4):  # gamma and lambda are 1: a return is the reward, an advantage what the value lacks
        assert returns[row] == close(reduced(rewards))
        assert advantages[row] == close(returns[row] - values[row])
    assert len(metric(run_dir, "train/pg_loss")) == 2
    losses = metric(run_dir, "train/critic-value_loss")
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert losses[0] >= (returns[0] - values[0]) ** 2 - ABSOLUTE  # a mean of squares is no less than the square of the mean
    assert metric(run_dir, "rollout/value_explained_variance")[0] <= 1
    first = tensors_of(drawn.first)
    critic_only = drawn.trained("--advantage-estimator", "ppo", "--num-critic-only-steps", "2", rollouts=2)
    assert tensors_of(critic_only / "latest") == first
    assert tensors_of(run_dir / "latest") != first


def test_the_entropy_bonus_is_taken_off_the_loss(drawn):
    plain, step = drawn.step(), drawn.step("--entropy-coef", "0.5")
    assert step["train/entropy_loss"] == close(plain["train/entropy_loss"])
    assert step["train/entropy_loss"] > 1
    assert step["train/loss"] == close(plain["train/pg_loss"] - 0.5 * step["train/entropy_loss"])
    assert plain["train/loss"] == plain["train/pg_loss"]
    assert step["train/grad_norm"] != close(plain["train/grad_norm"])


ESTIMATES = {
    "k1": lambda d: d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: math.exp(-d) - 1 + d,
    "low_var_kl": lambda d: clip(math.exp(-d) - 1 + d, -10, 10),
}


@pytest.mark.parametrize("unbiased", [False, True], ids=["plain", "unbiased"])
@pytest.mark.parametrize("name", ESTIMATES)
def test_the_kl_loss_is_its_estimator(drawn, grpo, name, unbiased):
    options = ["--use-kl-loss", "--kl-loss-coef", "0.3", "--kl-loss-type", name, *drawn.other_reference()]
    step = drawn.step(*ENGINE_IS_OLD, *options, *(["--use-unbiased-kl"] if unbiased else []))
    kl = each(ESTIMATES[name], subtract(drawn.now, drawn.base))
    if unbiased:
        kl = each(lambda x, r: x * r, kl, ratio(drawn.now, drawn.engine))
    assert step["train/kl_loss"] == close(reduced(kl))
    assert step["train/loss"] == close(step["train/pg_loss"] + 0.3 * reduced(kl))
    assert step["train/pg_loss"] == close(reduced(each(clipped_loss, grpo, ratio(drawn.now, drawn.engine))))
    assert step["rollout/ref_log_probs"] == close(reduced(drawn.base))


def test_ref_update_interval_moves_the_reference_to_the_policy(drawn):
    options = ["--use-kl-loss", "--kl-loss-coef", "0.001", "--kl-loss-type", "k2"]
    fixed = metric(drawn.trained(*options, rollouts=4), "train/kl_loss")
    moved = metric(drawn.trained(*options, "--ref-update-interval", "2", rollouts=4), "train/kl_loss")
    assert fixed[0] == moved[0] == 0
    assert fixed[1] == close(moved[1])
    assert min(fixed[1:]) > 1e-8
    assert moved[2] == 0
    assert moved[3] > 1e-8


def test_tis_weighs_with_the_ratio_cut_at_its_bounds(drawn, grpo):
    step = drawn.step("--use-tis", "--tis-clip", "1.1", "--tis-clip-low", "0.7")
    r = ratio(drawn.now, drawn.engine)
    cut = reduced(each(lambda x: float(not 0.7 <= x <= 1.1), r))
    assert 0.05 < cut < 0.95
    assert step["train/tis"] == close(reduced(r))
    assert step["train/tis_clipfrac"] == close(cut)
    assert step["train/tis_abs"] == close(reduced(each(lambda x: abs(x - 1), r)))
    assert step["train/pg_loss"] == close(reduced(each(lambda a, x: -a * clip(x, 0.7, 1.1), grpo, r)))
    assert step["train/ois"] == close(1)


def test_icepop_drops_what_is_outside_its_bounds(drawn, grpo):
    path = ["--custom-tis-function-path", "slime.backends.megatron_utils.loss.icepop_function"]
    step = drawn.step("--use-tis", *path, "--tis-clip", "1.1", "--tis-clip-low", "0.7")
    r = ratio(drawn.now, drawn.engine)
    assert step["train/pg_loss"] == close(reduced(each(lambda a, x: -a * x * (0.7 <= x <= 1.1), grpo, r)))
    assert step["train/tis_clipfrac"] == close(reduced(each(lambda x: float(not 0.7 <= x <= 1.1), r)))


@pytest.mark.parametrize(("level", "mode"), [("token", "truncate"), ("sequence", "clip"), ("geometric", "mask")])
def test_mis_weighs_at_its_level_in_its_mode(drawn, grpo, level, mode):
    step = drawn.step("--use-tis", *MIS, "--tis-level", level, "--tis-mode", mode, "--tis-upper-bound", "1.1", "--tis-lower-bound", "0.9")
    d = subtract(drawn.now, drawn.engine)
    levels = {"token": d, "sequence": drawn.spread([sum(row) for row in d]), "geometric": drawn.spread([mean(row) for row in d])}
    w = each(math.exp, levels[level])
    bounded = {"truncate": lambda x: min(x, 1.1), "clip": lambda x: clip(x, 0.9, 1.1), "mask": lambda x: x * (0.9 <= x <= 1.1)}
    assert step["train/pg_loss"] == close(reduced(each(lambda a, x: -a * bounded[mode](x), grpo, w)))
    assert step["train/mis_tis_weight_before_bound"] == close(reduced(w))
    high = {"truncate": "truncate_fraction", "clip": "clip_fraction_high", "mask": "mask_fraction_high"}[mode]
    assert step[f"train/mis_tis_{high}"] == close(reduced(each(lambda x: float(x > 1.1), w)))
    assert step["train/mis_kl"] == close(-reduced(d))


def test_mis_rejects_tokens_and_vetoes_responses(drawn, grpo):
    d = subtract(drawn.now, drawn.engine)
    threshold = math.exp(sorted(min(row) for row in d)[4] + 1e-3)  # five of the responses
    bounds = ["--rs-lower-bound", "0.5", "--rs-upper-bound", "1.5", "--rs-veto-threshold", repr(threshold)]
    step = drawn.step("--use-tis", *MIS, "--use-rs", *bounds)
    vetoed = [float(min(row) < math.log(threshold)) for row in d]
    assert sum(vetoed) == 5
    kept = each(lambda x, out: float(0.5 <= math.exp(x) <= 1.5 and not out), d, drawn.spread(vetoed))
    loss = reduced(each(lambda a, x, keep: -a * min(math.exp(x), 2.0) * keep, grpo, d, kept))
    assert step["train/pg_loss"] == close(loss)
    assert step["train/mis_rs_catastrophic_seq_fraction"] == close(mean(vetoed))
    assert step["train/mis_rs_mask_fraction_high"] == close(reduced(each(lambda x: float(math.exp(x) > 1.5), d)))


def test_mismatch_metrics_report_and_change_nothing(drawn):
    step = drawn.step("--get-mismatch-metrics", *MIS)
    d = subtract(drawn.now, drawn.engine)
    assert step["train/mis_kl"] == close(-reduced(d))
    assert step["train/mis_k3_kl"] == close(reduced(each(lambda x: math.exp(x) - 1 - x, d)))
    assert step["train/pg_loss"] == close(drawn.step()["train/pg_loss"])
    assert tensors_of(drawn.trained("--get-mismatch-metrics", *MIS) / "latest") == tensors_of(drawn.trained() / "latest")


def test_opsm_drops_bad_responses_that_the_policy_left(drawn, grpo):
    delta = 0.02
    step = drawn.step(*ENGINE_IS_OLD, "--use-opsm", "--opsm-delta", str(delta))
    k = drawn.spread([mean(row) for row in subtract(drawn.engine, drawn.now)])
    dropped = each(lambda a, x: float(a < 0 and x > delta), grpo, k)
    assert 0 < reduced(dropped) < 1
    assert step["train/opsm_clipfrac"] == close(reduced(dropped))
    losses = each(lambda a, r, out: clipped_loss(a, r) * (1 - out), grpo, ratio(drawn.now, drawn.engine), dropped)
    assert step["train/pg_loss"] == close(reduced(losses))


def test_distillation_adds_the_teachers_log_probs_to_advantages(drawn, grpo):
    step = drawn.step("--use-opd", "--opd-type", "megatron", "--opd-teacher-load", str(drawn.later), "--opd-kl-coef", "0.7")
    gap = subtract(drawn.now, drawn.base)
    assert step["rollout/opd_reverse_kl"] == close(reduced(gap))
    assert step["rollout/teacher_log_probs"] == close(reduced(drawn.base))
    assert step["rollout/advantages"] == close(reduced(each(lambda a, x: a - 0.7 * x, grpo, gap)))


def tensors_of(folder):
    """Name -> float32 values of a model's safetensors file."""
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "F32", entry
        tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return tensors


def moved(before, after):
    return {name for name in before if before[name] != after[name]}


def test_frozen_weights_stay_and_the_others_move(drawn):
    before = tensors_of(drawn.first)
    mlp = {name for name in before if ".mlp." in name}
    assert mlp < moved(before, tensors_of(drawn.trained() / "latest"))
    assert moved(before, tensors_of(drawn.trained("--freeze-params-name-list", "mlp") / "latest")) == moved(
        before, tensors_of(drawn.trained() / "latest")
    ) - mlp
    assert moved(before, tensors_of(drawn.trained("--only-train-params-name-list", "mlp") / "latest")) == mlp


def test_reset_optimizer_states_makes_each_update_a_first_one(drawn):
    """Adam's first update is the learning rate in the gradient's direction, whatever its size."""
    rate = 1e-3

    def share_of_full_updates(*options):
        words = ["--lr", str(rate), "--weight-decay", "0", *options]
        one, two = (tensors_of(drawn.trained(*words, rollouts=n) / "latest") for n in (1, 2))
        steps = [abs(b - a) for name in one if ".mlp." in name for a, b in zip(one[name], two[name])]
        return mean([float(abs(step - rate) < 0.02 * rate) for step in steps])

    assert share_of_full_updates("--reset-optimizer-states") > 0.9
    assert share_of_full_updates() < 0.5


def test_keep_old_actor_scores_with_the_weights_before_the_last_update(drawn):
    kept, plain = (drawn.trained(*options, rollouts=3) for options in (["--keep-old-actor"], []))
    log_probs = metric(kept, "rollout/log_probs")
    assert log_probs[0] == close(reduced(drawn.now))
    assert log_probs[1] == close(log_probs[0])
    assert log_probs[2] != close(log_probs[1])
    assert metric(kept, "train/ppo_kl")[0] == close(0)
    assert abs(metric(kept, "train/ppo_kl")[1]) > 10 * ABSOLUTE
    assert metric(plain, "train/ppo_kl") == close([0, 0, 0])


def test_top_p_is_replayed_by_the_trainer(work, capitals):
    """The engine draws from a nucleus; the trainer's log-probs are those of the same nucleus."""
    nucleus, whole = work / "nucleus", work / "whole"
    for run_dir, extra in ((nucleus, ["--rollout-top-p", "0.8"]), (whole, [])):
        done = run_slime(command_on(work, capitals, run_dir, extra, rollouts=2))
        assert done.returncode == 0, done.stdout + done.stderr
    kept = metric(nucleus, "rollout/top_p_kept_vocab_per_token")
    assert 1 < kept[0] < 250  # of 256 and a few tokens
    assert not metric(whole, "rollout/top_p_kept_vocab_per_token")
    assert max(metric(nucleus, "train/train_rollout_logprob_abs_diff")) < 1e-4
    for sample in samples_of(nucleus / "rollouts" / "step_000000.jsonl"):
        counts = sample["rollout_top_p_token_offsets"]
        assert len(counts) == sample["response_length"] + 1
        assert all(lp > math.log(1 / (end - begin)) - 4 for lp, begin, end in zip(sample["train_log_probs"], counts, counts[1:]))


def test_streaming_reads_rows_when_they_are_due(work, capitals):
    """A row that cannot be read is met when its turn comes: never in a run that ends before."""
    broken = work / "capitals_then_broken.jsonl"
    broken.write_text(capitals.read_text() + '{"prompt": \n')
    for name, options, code in (("streamed", ["--streaming-data"], 0), ("whole-file", [], 2)):
        command = command_on(work, broken, work / name, options, rollouts=2)
        command.remove("--rollout-shuffle")
        done = run_slime(command)
        assert done.returncode == code, done.stdout + done.stderr
    assert "line 65" in done.stderr
    prompts = [sample["prompt"] for step in (0, 1) for sample in samples_of(work / "streamed" / "rollouts" / f"step_00000{step}.jsonl")]
    rows = [json.loads(line)["prompt"] for line in capitals.read_text().splitlines()]
    for prompt, row in zip(prompts[::8], rows):
        assert row in prompt, "rows in their order"
