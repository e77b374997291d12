"""Log-probs and entropies from the logits of a custom loss."""

import math

import torch

from slime.host.logits import ProgramLogits

__all__ = ["get_log_probs_and_entropy"]


_NUCLEI = ("rollout_top_p_token_ids", "rollout_top_p_token_offsets")


def _are_same(one, other):
    """Whether two lists of tensors, or None, hold the same ones."""
    if one is None or other is None:
        return one is other
    return len(one) == len(other) and all(a is b for a, b in zip(one, other))


def _is_programs(logits, args, unconcat_tokens, total_lengths, response_lengths, nuclei):
    """Whether these are the log-probs that the program has computed: nothing was changed on the way."""
    if not isinstance(logits, ProgramLogits):
        return False
    batch = logits.batch
    return (
        _are_same(batch["unconcat_tokens"], unconcat_tokens)
        and all(_are_same(batch.get(name), each) for name, each in zip(_NUCLEI, nuclei))
        and list(total_lengths) == batch["total_lengths"]
        and list(response_lengths) == batch["response_lengths"]
        and getattr(args, "rollout_temperature", 1.0) == logits.temperature
    )


def _predicting_rows(total_lengths, response_lengths):
    """Row of the logits that predicts each response token."""
    rows, end = [], 0
    for total, response in zip(total_lengths, response_lengths):
        end += total
        rows.append(torch.arange(end - response - 1, end - 1))
    return torch.cat(rows)


def _outside(nuclei, targets, vocabulary):
    """[response tokens, vocabulary]: what is neither in the token's nucleus nor the token itself."""
    ids = torch.cat([each.reshape(-1) for each in nuclei[0]]).long()
    counts = torch.cat([torch.diff(each.reshape(-1).long()) for each in nuclei[1]])
    if len(counts) != len(targets) or int(counts.sum()) != len(ids):
        raise ValueError(f"{len(ids)} kept ids in {len(counts)} nuclei, for {len(targets)} response tokens")
    outside = torch.ones(len(targets), vocabulary, dtype=torch.bool, device=targets.device)
    outside[torch.arange(len(targets), device=targets.device).repeat_interleave(counts), ids] = False
    return outside.scatter_(1, targets.unsqueeze(1), False)


def get_log_probs_and_entropy(
    logits,
    *,
    args,
    unconcat_tokens,
    total_lengths,
    response_lengths,
    with_entropy=False,
    non_loss_data=True,
    top_p_token_ids=None,
    top_p_token_offsets=None,
):
    """(an empty tensor, {"log_probs": [one tensor for each sample], "entropy": the same}) of the response tokens, in nats
    at the rollout's temperature. `logits` is [1, tokens, vocabulary]. Entropies carry gradient where args.entropy_coef is
    not 0.

    With --rollout-top-p below 1 the batch has `rollout_top_p_token_ids` and `rollout_top_p_token_offsets`, one tensor of
    each for a sample: handed on as `top_p_token_ids` and `top_p_token_offsets` they make log-probs those among the ids
    that each token was drawn from, itself included. Entropies are of the whole vocabulary always."""
    if not non_loss_data:
        raise ValueError("non_loss_data is always true here")
    nuclei = (top_p_token_ids, top_p_token_offsets)
    if (top_p_token_ids is None) != (top_p_token_offsets is None):
        raise ValueError("top_p_token_ids and top_p_token_offsets belong together")
    lengths = list(response_lengths)
    if _is_programs(logits, args, unconcat_tokens, total_lengths, lengths, nuclei):
        log_probs, entropy = logits.log_probs, logits.entropy
    else:
        rows = _predicting_rows(total_lengths, lengths)
        targets = torch.cat([tokens[len(tokens) - length :] for tokens, length in zip(unconcat_tokens, lengths)])
        temperature = getattr(args, "rollout_temperature", 1.0)
        scaled = logits[0].index_select(0, rows.to(logits.device)) / temperature
        all_log_probs = torch.log_softmax(scaled, dim=-1)
        own = all_log_probs
        if top_p_token_ids is not None:
            outside = _outside(nuclei, targets, scaled.shape[-1])
            own = torch.log_softmax(scaled.masked_fill(outside, -math.inf), dim=-1)
        log_probs = own.gather(1, targets.unsqueeze(1)).squeeze(1)
        entropy = None
        if with_entropy:
            with torch.set_grad_enabled(getattr(args, "entropy_coef", 0.0) != 0 and torch.is_grad_enabled()):
                entropy = -(all_log_probs.exp() * all_log_probs).sum(dim=-1)
    found = {"log_probs": list(log_probs.split(lengths))}
    if with_entropy:
        found["entropy"] = list(entropy.split(lengths))
    return torch.empty(0), found
