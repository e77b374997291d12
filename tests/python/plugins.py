"""Users' functions for the tests of the host."""

import asyncio
import os
import sys
import time

from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.utils.types import Sample


async def generate(args, sample, sampling_params, evaluation=False):
    await asyncio.sleep(0)
    sample.append_response_tokens(tokens=[7] * sampling_params["max_new_tokens"], log_probs=[-0.25] * sampling_params["max_new_tokens"], text="ja")
    sample.append_response_tokens(tokens=[8], trainable=False, text=" tool")
    sample.status = Sample.Status.COMPLETED
    sample.turns = 2
    sample.metadata["evaluation"] = evaluation
    args.calls = getattr(args, "calls", 0) + 1
    sample.metadata["calls"] = args.calls
    return sample


async def fan_out(args, sample, sampling_params):
    first = Sample(index=sample.index, rollout_id=4, tokens=[1, 2], response_length=1)
    return [first, Sample(index=sample.index, rollout_id=4, tokens=[1, 3, 4], response_length=2)]


async def until_aborted(args, sample, sampling_params):
    from slime.rollout.sglang_rollout import GenerateState

    state = GenerateState(args)
    while not state.aborted:
        await asyncio.sleep(0.01)
    sample.status = Sample.Status.ABORTED
    return sample


async def until_cancelled(args, sample, sampling_params):
    sample.append_response_tokens(args, tokens=[5], log_probs=[-0.5], text="a")
    await asyncio.sleep(600)


until_cancelled.abort_mode = "request"


def sample_hook(args, sample, *, rollout_id):
    sample.metadata["rollout_id"] = rollout_id


async def other_sample_hook(args, sample, **kwargs):
    return Sample(index=sample.index, response=sample.response + "!", metadata=kwargs)


async def reward(args, sample, **kwargs):
    return 1.0 if sample.response == sample.label else 0.0


def plain_reward(args, sample):
    return {"score": len(sample.response), "acc": True}


async def marking_reward(args, sample):
    sample.metadata["seen"] = {"by": "me"}
    sample.note = "kept"
    sample.remove_sample = True
    return 1


async def group_reward(args, samples, **kwargs):
    return [sample.index for sample in samples]


def dynamic_filter(args, samples, **kwargs):
    rewards = [sample.reward for sample in samples]
    return DynamicFilterOutput(keep=max(rewards) > min(rewards), reason="same", keep_when_insufficient=True)


def bool_filter(args, samples):
    return len(samples) > 1


def buffer_filter(args, rollout_id, buffer, num_samples):
    taken = sorted(buffer, key=lambda group: -group[0].index)[:num_samples]
    for group in taken:
        buffer.remove(group)
    return taken


def sample_filter(args, groups):
    for group in groups:
        group[-1].remove_sample = True


def all_samples(args, all_groups, data_source):
    all_groups[0][0].metadata["groups"] = len(all_groups)
    all_groups[0][0].metadata["more"] = data_source.get_samples(1)[0][0].index


class DataSource:
    def __init__(self, args):
        self.args, self.next, self.back = args, 0, []

    def get_samples(self, num_samples):
        groups = self.back[:num_samples]
        del self.back[:num_samples]
        while len(groups) < num_samples:
            groups.append([Sample(index=self.next, prompt="p")])
            self.next += 1
        return groups

    def add_samples(self, groups):
        self.back += groups

    def save(self, rollout_id):
        self.saved = rollout_id

    def load(self, rollout_id=None):
        self.next = rollout_id

    def __len__(self):
        return 100


def rollout(args, rollout_id, data_source, evaluation=False):
    if evaluation:
        samples = [Sample(index=i, reward=i) for i in range(2)]
        data = {"set": {"rewards": [0, 1], "truncated": [False, True], "samples": samples}}
        return RolloutFnEvalOutput(data=data, metrics={"m": 1.5})
    groups = data_source.get_samples(3)
    data_source.add_samples(groups[2:])
    for sample in (sample for group in groups for sample in group):
        sample.tokens, sample.response_length, sample.reward = list(range(20)), 20, rollout_id
    return RolloutFnTrainOutput(samples=groups[:2], metrics={"rollout/x": len(data_source)})


def bare_rollout(args, rollout_id, data_source, evaluation=False):
    from slime.utils.async_utils import run

    async def turn():
        await asyncio.sleep(0)
        return Sample(index=rollout_id)

    return {"set": {"rewards": [1.0]}} if evaluation else [[run(turn())]]


def reward_post_process(args, samples):
    raw = [sample.reward for sample in samples]
    return raw, [value - sum(raw) / len(raw) for value in raw]


def convert(args, samples):
    return {
        "tokens": [sample.tokens for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "rewards": [sample.reward for sample in samples],
        "names": ["a", "b"],
        "rollout_log_probs": [[-0.5], [-0.25, -1.5]],
    }


def log_rollout(rollout_id, args, samples, rollout_extra_metrics, rollout_time):
    return rollout_id == 3 and len(samples) == 1 and rollout_time == 0.5


def log_eval(rollout_id, args, data, extra_metrics):
    return isinstance(data["set"]["samples"][0], Sample)


# What goes wrong.


def helper(sample):
    return {}[sample.index]


async def raises(args, sample):
    return helper(sample)


async def returns_nan(args, sample):
    return float("nan")


async def returns_text(args, sample):
    return "good"


async def returns_object(args, sample):
    return {"score": 1.0, "what": object()}


async def returns_few(args, samples):
    return [1.0]


async def generates_nothing(args, sample, sampling_params):
    return []


async def generates_rubbish(args, sample, sampling_params):
    sample.tokens = ["a", "b"]
    return sample


async def sleeps(args, sample):
    await asyncio.sleep(60)


def blocks(args, sample):
    time.sleep(1.2)
    return 1


async def exits(args, sample):
    sys.exit(3)


async def dies(args, sample):
    os._exit(9)


async def prints(args, sample):
    print("printed by a reward")
    return 0


async def scores_natively(args, sample):
    from slime.rollout.rm_hub import async_rm
    from slime.rollout.rm_hub.math_utils import grade_answer_verl

    args.rm_type = "math"
    waited = grade_answer_verl("\\boxed{1}", "1")
    return {"waited": int(waited), "awaited": await async_rm(args, sample)}


# The trainer's.


def _scored(args, batch, logits, **more):
    from slime.backends.megatron_utils.loss import get_log_probs_and_entropy

    names = ("unconcat_tokens", "total_lengths", "response_lengths")
    given = {**{name: batch[name] for name in names}, **more}
    return get_log_probs_and_entropy(logits, args=args, with_entropy=True, **given)[1]


def _weighted(found, batch, sum_of_sample_mean):
    import torch

    picked = torch.cat(found["log_probs"])
    total = -sum_of_sample_mean(picked * torch.cat(batch["advantages"]))
    return total, {"picked": picked.detach().mean(), "plain": 2}


def loss(args, batch, logits, sum_of_sample_mean):
    assert logits.dim() == 3 and logits.shape[-1] == 4 and logits.requires_grad and len(logits) == 1
    return _weighted(_scored(args, batch, logits), batch, sum_of_sample_mean)


def loss_of_logits(args, batch, logits, sum_of_sample_mean):
    import torch

    rows = logits.squeeze(0)
    assert type(rows) is torch.Tensor
    end, kept = 0, []
    for total, response in zip(batch["total_lengths"], batch["response_lengths"]):
        end += total
        kept.append(rows[end - response - 1 : end - 1])
    all_log_probs = torch.log_softmax(torch.cat(kept), -1)
    return sum_of_sample_mean(all_log_probs[:, 1] * torch.cat(batch["advantages"])) + rows[0].square().sum(), {}


def loss_of_changed_tokens(args, batch, logits, sum_of_sample_mean):
    tokens = [(each + 1) % 4 for each in batch["unconcat_tokens"]]
    return _weighted(_scored(args, batch, logits, unconcat_tokens=tokens), batch, sum_of_sample_mean)


def entropy_loss(args, batch, logits, sum_of_sample_mean):
    import torch

    return sum_of_sample_mean(torch.cat(_scored(args, batch, logits)["entropy"])), {}


def nan_loss(args, batch, logits, sum_of_sample_mean):
    return _weighted(_scored(args, batch, logits), batch, sum_of_sample_mean)[0] * float("nan"), {}


def vector_loss(args, batch, logits, sum_of_sample_mean):
    return _scored(args, batch, logits)["log_probs"][0], {}


def lonely_loss(args, batch, logits, sum_of_sample_mean):
    return _weighted(_scored(args, batch, logits), batch, sum_of_sample_mean)[0]


def nan_gradient(args, batch, logits, sum_of_sample_mean):
    import torch

    zeros = torch.cat(_scored(args, batch, logits)["log_probs"]).detach() * 0
    return (torch.cat(_scored(args, batch, logits)["log_probs"]) * 0 + zeros).sqrt().sum(), {}


def text_metric(args, batch, logits, sum_of_sample_mean):
    return _weighted(_scored(args, batch, logits), batch, sum_of_sample_mean)[0], {"word": "high"}


def advantages(args, rollout_data):
    rollout_data["advantages"] = [mask * 1.0 + i for i, mask in enumerate(rollout_data["loss_masks"])]
    rollout_data["returns"] = [mask * 0.5 for mask in rollout_data["loss_masks"]]


def tis(args, *, pg_loss, train_log_probs, rollout_log_probs, loss_masks, total_lengths, response_lengths, **kwargs):
    import torch

    weight = torch.exp(torch.cat(train_log_probs) - torch.cat(rollout_log_probs))
    return pg_loss * weight, [mask * (i > 0) for i, mask in enumerate(loss_masks)], {"weight": weight}


def reducer(total_lengths, response_lengths, loss_masks, calculate_per_token_loss):
    return lambda values: sum(part.sum() for part in values.split(response_lengths)) / 10


def data_postprocess(args, rollout_id, rollout_data):
    rollout_data["log_probs"] = [part * 2 for part in rollout_data["log_probs"]]


def spoiled_in_place(args, rollout_id, rollout_data):
    rollout_data["log_probs"][1].fill_(float("inf"))


def shifted_lengths(args, rollout_id, rollout_data):
    first, second = rollout_data["log_probs"]
    rollout_data["log_probs"] = [second, first]


def fractional_masks(args, rollout_id, rollout_data):
    rollout_data["loss_masks"] = [mask * 0.5 for mask in rollout_data["loss_masks"]]


def removed(args, rollout_id, rollout_data):
    del rollout_data["log_probs"]


def init(args):
    args.was_initialised = True


def before_train_step(args, rollout_id, step_id, model, optimizer, opt_param_scheduler):
    assert args.was_initialised
    model.parameters()
