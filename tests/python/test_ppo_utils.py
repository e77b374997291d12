"""slime.utils.ppo_utils against the original's numbers (tests/golden), its gradients, and a vocabulary on two ranks."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from golden_cases import golden

torch = pytest.importorskip("torch", reason="torch cannot be imported")

from slime.utils import ppo_utils as ppo  # noqa: E402


def wide(values):
    return torch.tensor(values, dtype=torch.float64)


def lists(values):
    return [wide(each) for each in values]


def close(found, expected, tolerance=1e-6):
    torch.testing.assert_close(found.double(), wide(expected), rtol=tolerance, atol=tolerance)


def ids(case):
    return case["name"]


@pytest.mark.parametrize("case", [case for case in golden("kl_estimators") if "kl" in case["expected"]], ids=ids)
def test_kl(case):
    given, expected = case["inputs"], case["expected"]
    log_probs, ratio = wide(given["log_probs"]).requires_grad_(), given.get("importance_ratio")
    ratio = None if ratio is None else wide(ratio)
    if case["params"].get("use_unbiased_kl"):
        ratio = torch.exp(log_probs - wide(given["old_log_probs"]))
    kl = ppo.compute_approx_kl(log_probs, wide(given["ref_log_probs"]), case["params"]["kl_loss_type"], ratio)
    close(kl.detach(), expected["kl"], 1e-5)  # in float32, as the original's
    if "dkl_dlogprob" in expected:
        kl.sum().backward()
        close(log_probs.grad, expected["dkl_dlogprob"], 1e-5)


@pytest.mark.parametrize("case", golden("policy_loss_tokens"), ids=ids)
def test_policy_loss(case):
    given, how = case["inputs"], case["params"]
    log_probs = wide(given["log_probs"]).requires_grad_()
    loss, clipped = ppo.compute_policy_loss(
        wide(given["old_log_probs"]) - log_probs, wide(given["advantages"]), how["eps_clip"], how["eps_clip_high"], how["eps_clip_c"]
    )
    loss.sum().backward()
    close(loss.detach(), case["expected"]["pg_loss"])
    close(clipped, case["expected"]["clipfrac"])
    close(log_probs.grad, case["expected"]["dloss_dlogprob"])


@pytest.mark.parametrize("case", golden("cispo_loss"), ids=ids)
def test_cispo_loss(case):
    given, how = case["inputs"], case["params"]
    log_probs = wide(given["log_probs"]).requires_grad_()
    difference = wide(given["old_log_probs"]) - log_probs
    loss, clipped = ppo.compute_cispo_loss(difference, log_probs, wide(given["advantages"]), how["eps_clip"], how["eps_clip_high"])
    loss.sum().backward()
    close(loss.detach(), case["expected"]["pg_loss"])
    close(clipped, case["expected"]["clipfrac"])
    close(log_probs.grad, case["expected"]["dloss_dlogprob"])


@pytest.mark.parametrize("case", golden("gspo_loss"), ids=ids)
def test_gspo_kl(case):
    old, new, masks = (lists(case["inputs"][name]) for name in ("old_log_probs", "log_probs", "loss_masks"))
    close(ppo.compute_gspo_kl(new, old, new, masks), case["expected"]["ppo_kl"])


@pytest.mark.parametrize("case", golden("opsm"), ids=ids)
def test_opsm(case):
    names = ("log_probs", "old_log_probs", "advantages", "loss_masks")
    mask, removed = ppo.compute_opsm_mask(Namespace(**case["params"]), *(lists(case["inputs"][name]) for name in names))
    close(mask, case["expected"]["opsm_mask"])
    close(removed, case["expected"]["opsm_clipfrac"])


@pytest.mark.parametrize("case", golden("gae"), ids=ids)
def test_returns_and_advantages(case):
    how, given, expected = case["params"], case["inputs"], case["expected"]
    if isinstance(given["rewards"][0], list):
        lengths = [len(row) for row in given["rewards"]]
        rows = lists(given["values"]), lists(given["rewards"])
        found = ppo.get_advantages_and_returns_batch(lengths, lengths, *rows, how["gamma"], how["lambd"])
        for name, rows in zip(("advantages", "returns"), found):
            for row, values in zip(rows, expected[name]):
                close(row, values)
        return
    rewards = wide(given["rewards"]).unsqueeze(0)
    if how["kind"] == "discounted_returns":
        close(ppo.chunked_discounted_returns(rewards, how["discount"])[0], expected["returns"])
        return
    for function in (ppo.chunked_gae, ppo.vanilla_gae):
        advantages, returns = function(rewards, wide(given["values"]).unsqueeze(0), how["gamma"], how["lambd"])
        close(advantages[0], expected["advantages"])
        close(returns[0], expected["returns"])


OF_SEQUENCES = [
    case
    for case in golden("advantages")
    if case["params"]["advantage_estimator"].startswith("reinforce") and not (case["params"]["normalize_advantages"] or case["params"]["use_opd"])
]


@pytest.mark.parametrize("case", OF_SEQUENCES, ids=ids)
def test_reinforce_plus_plus(case):
    how, given = case["params"], case["inputs"]
    kl, masks = lists(case["expected"]["kl"]), lists(given["loss_masks"])
    if how["advantage_estimator"] == "reinforce_plus_plus":
        lengths = given["response_lengths"], given["total_lengths"]
        found = ppo.get_reinforce_plus_plus_returns(given["rewards"], kl, masks, *lengths, how["kl_coef"], how["gamma"])
    else:
        found = ppo.get_reinforce_plus_plus_baseline_advantages(given["rewards"], kl, masks, how["kl_coef"])
    for tokens, expected in zip(found, case["expected"]["advantages"]):
        close(tokens, expected)


@pytest.mark.parametrize("chunk_size", [-1, 2])
@pytest.mark.parametrize("case", golden("logprob_entropy"), ids=ids)
def test_log_probs_and_entropies(case, chunk_size):
    given, expected = case["inputs"], case["expected"]
    logits = torch.tensor(given["logits"]).requires_grad_()
    keep = given["keep_mask"] if given["keep_mask"] is None else torch.tensor(given["keep_mask"])
    log_prob, entropy = ppo.calculate_log_probs_and_entropy(
        logits / case["params"]["temperature"], torch.tensor(given["targets"]), None, with_entropy=True, chunk_size=chunk_size, log_prob_keep_mask=keep
    )
    weights = torch.tensor(given["grad_log_prob_weight"]), torch.tensor(given["grad_entropy_weight"])
    ((log_prob.squeeze(-1) * weights[0]).sum() + (entropy * weights[1]).sum()).backward()
    close(log_prob.detach().squeeze(-1), expected["log_prob"], 2e-5)
    close(entropy.detach(), expected["entropy"], 2e-5)
    close(logits.grad, expected["dlogits"], 2e-5)


def test_heads_and_nuclei_have_the_log_probs_of_the_whole_vocabulary():
    logits = torch.randn(5, 11, generator=torch.Generator().manual_seed(1))
    ids = torch.stack([torch.randperm(11, generator=torch.Generator().manual_seed(i))[:3] for i in range(5)])
    expected = torch.log_softmax(logits / 0.7, dim=-1).gather(1, ids)
    torch.testing.assert_close(ppo.calculate_topk_log_probs(logits, ids, None, chunk_size=2, temperature=0.7), expected)
    counts = [3, 0, 2, 1, 3]
    offsets = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])
    ragged = torch.cat([row[:count] for row, count in zip(ids, counts)])
    found = ppo.calculate_ragged_log_probs(logits, ragged, offsets, None, temperature=0.7)
    torch.testing.assert_close(found, torch.cat([row[:count] for row, count in zip(expected, counts)]))
    with pytest.raises(ValueError, match="6 offsets to 8 ids"):
        ppo.calculate_ragged_log_probs(logits, ragged[1:], offsets, None)


def test_the_objective_is_chosen_as_the_original_chooses():
    choose = lambda **args: ppo.get_pg_loss_type(Namespace(**args))  # noqa: E731
    assert choose() == "ppo" and choose(advantage_estimator="cispo") == "cispo"
    assert choose(use_score_centering=True) == "reinforce" and choose(pg_loss_type="reinforce", advantage_estimator="grpo") == "reinforce"
    for wrong in (
        {"use_score_centering": True, "pg_loss_type": "ppo"},
        {"pg_loss_type": "reinforce", "advantage_estimator": "gspo"},
        {"pg_loss_type": "ppo", "advantage_estimator": "cispo"},
    ):
        with pytest.raises(ValueError, match="--pg-loss-type"):
            choose(**wrong)


def test_importance_weights():
    ratio = torch.tensor([0.2, 0.5, 1.0, 3.0])
    assert ppo.importance_weights(ratio, "none", 0.4, 2.0).tolist() == [1, 1, 1, 1]
    assert ppo.importance_weights(ratio, "tis", 0.4, 2.0).tolist() == pytest.approx([0.4, 0.5, 1, 2])
    assert ppo.importance_weights(ratio, "icepop", 0.4, 2.0).tolist() == pytest.approx([0, 0.5, 1, 0])


TWO_RANKS = """
import sys, torch
import torch.distributed as dist
from slime.utils import ppo_utils as ppo
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
whole = torch.randn(4, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
targets, heads = torch.tensor([0, 4, 5, 9]), torch.tensor([[1, 8], [4, 5], [9, 0], [3, 7]])
one, part = whole.clone().requires_grad_(), whole[:, rank * 5 : rank * 5 + 5].clone().requires_grad_()
expected = torch.log_softmax(one, -1)
entropy = -(expected.exp() * expected).sum(-1)
(expected.gather(1, targets[:, None]).sum() + 0.5 * entropy.sum() + 0.25 * expected.gather(1, heads).sum()).backward()
log_prob, found = ppo.calculate_log_probs_and_entropy(part, targets, dist.group.WORLD, with_entropy=True)
head = ppo.calculate_topk_log_probs(part, heads, dist.group.WORLD)
(log_prob.sum() + 0.5 * found.sum() + 0.25 * head.sum()).backward()
for a, b in ((log_prob, expected.gather(1, targets[:, None])), (found, entropy), (head, expected.gather(1, heads)),
             (part.grad, one.grad[:, rank * 5 : rank * 5 + 5])):
    torch.testing.assert_close(a.detach().double(), b.detach().double(), rtol=1e-5, atol=1e-5)
"""


def test_a_vocabulary_on_two_ranks_gives_the_numbers_of_one(tmp_path):
    command = [sys.executable, "-c", TWO_RANKS]
    packages = os.pathsep.join([str(Path(ppo.__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": packages}
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path / "meeting")], env=environment) for rank in (0, 1)]
    assert [rank.wait(timeout=240) for rank in ranks] == [0, 0]
