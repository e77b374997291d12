"""Samples as the data of a training pass, and what passes and updates give."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slime.loop.calls import Sample
    from slime.loop.session import Session

__all__ = ["Pass", "Update"]

_LOSSES = ("policy", "ppo", "importance_sampling", "cispo", "dro", "gspo", "cross_entropy")
_REDUCTIONS = ("mean", "token", "sum")


class Pass:
    """What a ``forward_backward`` gave."""

    def __init__(self, answer: dict[str, Any], divisor: float) -> None:
        #: Sums over the tokens by name: "loss:sum", and of "policy" "pg_loss:sum", "ppo_kl:sum", ...
        self.metrics: dict[str, float] = answer["metrics"]
        #: Log-probs of the response tokens of each sample, before the update: [response length] each.
        self.logprobs: list[list[float]] = [each["logprobs"]["data"] for each in answer["loss_fn_outputs"]]
        #: The loss by the reduction of the pass.
        self.loss: float = self.metrics["loss:sum"] / divisor

    def __repr__(self) -> str:
        return f"<pass over {len(self.logprobs)} samples: loss {self.loss:.4g}>"


class Update:
    """What a ``step`` gave."""

    def __init__(self, answer: dict[str, Any]) -> None:
        metrics = answer["metrics"]
        #: L2 norm of the divided gradient, before it was clipped.
        self.grad_norm: float = metrics["grad_norm:mean"]
        self.lr: float = metrics["learning_rate:mean"]
        #: Updates of the optimizer so far, this one included.
        self.index = int(metrics["step:max"])

    def __repr__(self) -> str:
        return f"<update {self.index}: gradient norm {self.grad_norm:.4g}>"


def reduction_of(loss: str, reduction: str | None) -> str:
    """The one that is meant. Raises ValueError."""
    if loss not in _LOSSES:
        raise ValueError(f"loss {loss!r}: there are {', '.join(_LOSSES)}, or a function loss(logprobs, samples)")
    if reduction is None:
        return "sum" if loss in ("cross_entropy", "dro") else "mean"
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction {reduction!r}: there are {', '.join(_REDUCTIONS)}")
    if loss == "dro" and reduction != "sum":
        raise ValueError("loss 'dro' is a sum: its second term does not scale with the advantages")
    return reduction


def _tensor(values: Sequence[float], dtype: str = "float32") -> dict[str, Any]:
    return {"data": list(values), "dtype": dtype, "shape": [len(values)]}


def _per_token(value: Any, count: int, name: str, index: int) -> list[float]:
    """A number for all tokens, or one for each; lists, arrays and tensors."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(listed, (int, float)):
        return [float(listed)] * count
    if len(listed) != count:
        raise ValueError(f"sample {index}: {name} has {len(listed)} numbers for {count} response tokens")
    return [float(each) for each in listed]


def _column(sample: Sample, name: str, count: int, index: int) -> list[float] | None:
    """None where the sample has none; samples of a run have an empty list then."""
    value = sample.get(name)
    if value is None or (hasattr(value, "__len__") and len(value) == 0):
        return None
    numbers = _per_token(value, count, name, index)
    bad = next((place for place, each in enumerate(numbers) if not math.isfinite(each)), None)
    if bad is not None:
        raise ValueError(f"sample {index}: {name}[{bad}] is {numbers[bad]}")
    return numbers


def data_of(samples: Sequence[Sample], loss: str, reduction: str) -> tuple[list[dict[str, Any]], float]:
    """Tinker's data of these samples, and what their sum is divided by. Samples without a response token are left out of the data,
    and count in the divisor of "mean"."""
    data, tokens = [], 0.0
    if not samples:
        raise ValueError("there are no samples to train on")
    for index, sample in enumerate(samples):
        count = sample["response_length"]
        ids = list(sample["tokens"])
        if count < 1:
            raise ValueError(f"sample {index}: has no response token; leave it out")
        if count >= len(ids):
            raise ValueError(f"sample {index}: has no prompt; the first token is never trained")
        mask = _column(sample, "loss_mask", count, index) or [1.0] * count
        total = sum(1.0 for each in mask if each)
        tokens += total
        inputs: dict[str, Any] = {"target_tokens": _tensor(ids[-count:], "int64")}
        if loss == "cross_entropy":
            weights = _column(sample, "weights", count, index) or mask
            scale = 1.0 / max(total, 1.0) if reduction == "mean" else 1.0
            inputs["weights"] = _tensor([each * scale for each in weights])
        elif loss != "logprobs":
            _add_policy_columns(inputs, sample, loss, reduction, mask, total, index)
        data.append({"model_input": {"chunks": [{"type": "encoded_text", "tokens": ids[:-1]}]}, "loss_fn_inputs": inputs, "num_scored": count})
    divisor = {"mean": float(len(samples)), "token": max(tokens, 1.0), "sum": 1.0}[reduction]
    return data, divisor


def _add_policy_columns(
    inputs: dict[str, Any], sample: Sample, loss: str, reduction: str, mask: list[float], total: float, index: int
) -> None:
    count = len(mask)
    advantages = _column(sample, "advantage", count, index)
    if advantages is None:
        raise ValueError(f"sample {index}: has no advantage; call advantages(groups), or set sample.advantage")
    # As a run has it: the mask by the response's trained tokens.
    weights = [each / max(total, 1.0) for each in mask] if reduction == "mean" else mask
    log_probs = _column(sample, "log_probs", count, index)
    if log_probs is not None:
        inputs["logprobs"] = _tensor(log_probs)
    elif loss != "policy":
        raise ValueError(f"sample {index}: has no log_probs, those of the sampler, which the loss {loss!r} needs")
    if loss == "policy":
        inputs["advantages"] = _tensor(advantages)
        inputs["weights"] = _tensor(weights)
        old = _column(sample, "old_log_probs", count, index)
        if old is not None:
            inputs["old_logprobs"] = _tensor(old)
    else:
        inputs["advantages"] = _tensor([advantage * weight for advantage, weight in zip(advantages, weights)])
    inputs["mask"] = _tensor([1.0 if each else 0.0 for each in mask])


def _result_of(loss: Callable[..., Any], log_probs: list[list[float]], samples: Sequence[Sample]) -> tuple[float, list[list[float]], dict[str, float]]:
    """The loss, its gradients by the log-probs, and metrics."""
    torch = sys.modules.get("torch")
    leaves = None
    if torch is not None and hasattr(torch, "tensor"):
        leaves = [torch.tensor(each, dtype=torch.float32, requires_grad=True) for each in log_probs]
    made = loss(leaves if leaves is not None else log_probs, samples)
    parts = list(made) if isinstance(made, tuple) else [made]
    metrics = parts.pop() if isinstance(parts[-1], dict) else {}
    value = parts[0]
    if leaves is not None and len(parts) == 1:
        if not getattr(value, "requires_grad", False):
            raise ValueError("the loss does not depend on the log-probs that it was given")
        value.backward()
        gradients = [[0.0] * len(each) if each.grad is None else each.grad.tolist() for each in leaves]
    elif len(parts) == 2:
        gradients = [_per_token(each, len(log_probs[i]), "gradient", i) for i, each in enumerate(parts[1])]
    else:
        raise ValueError("a loss function returns the loss and its gradients, a list for each sample; or import torch first and return a tensor")
    if len(gradients) != len(log_probs):
        raise ValueError(f"the loss gave {len(gradients)} gradients for {len(log_probs)} samples")
    return float(value.detach() if hasattr(value, "detach") else value), gradients, metrics


class _CustomPass(Pass):
    def __init__(self, answer: dict[str, Any], loss: float, metrics: dict[str, float]) -> None:
        super().__init__(answer, 1.0)
        self.metrics = {**metrics, "loss:sum": loss}
        self.loss = loss


def custom_pass(session: Session, samples: Sequence[Sample], loss: Callable[..., Any], wait: bool) -> Any:
    """Two requests: the log-probs; then their gradients as weights of a cross-entropy, which is linear in them."""
    log_probs = session.logprobs(samples)
    value, gradients, metrics = _result_of(loss, log_probs, samples)
    weighed = [type(sample)({**sample, "weights": [-each for each in of_sample]}) for sample, of_sample in zip(samples, gradients)]
    data, _ = data_of(weighed, "cross_entropy", "sum")
    body = {"forward_backward_input": {"data": data, "loss_fn": "cross_entropy", "loss_fn_config": {}}}
    pending = session._of_model("forward_backward", body, lambda answer: _CustomPass(answer, value, metrics))
    return pending.result() if wait else pending
