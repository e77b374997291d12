"""Log-probs and entropies from the logits of a custom loss."""

import torch

from slime.host.logits import ProgramLogits

__all__ = ["get_log_probs_and_entropy"]


def _is_programs(logits, args, unconcat_tokens, total_lengths, response_lengths):
    """Whether these are the log-probs that the program has computed: nothing was changed on the way."""
    if not isinstance(logits, ProgramLogits):
        return False
    batch = logits.batch
    given = batch["unconcat_tokens"]
    return (
        len(given) == len(unconcat_tokens)
        and all(one is other for one, other in zip(given, unconcat_tokens))
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
    not 0."""
    if not non_loss_data:
        raise ValueError("non_loss_data is always true here")
    if top_p_token_ids is not None or top_p_token_offsets is not None:
        raise ValueError("the nuclei of --rollout-top-p are not replayed for custom losses")
    lengths = list(response_lengths)
    if _is_programs(logits, args, unconcat_tokens, total_lengths, lengths):
        log_probs, entropy = logits.log_probs, logits.entropy
    else:
        rows = _predicting_rows(total_lengths, lengths)
        targets = torch.cat([tokens[len(tokens) - length :] for tokens, length in zip(unconcat_tokens, lengths)])
        temperature = getattr(args, "rollout_temperature", 1.0)
        all_log_probs = torch.log_softmax(logits[0].index_select(0, rows) / temperature, dim=-1)
        log_probs = all_log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
        entropy = None
        if with_entropy:
            with torch.set_grad_enabled(getattr(args, "entropy_coef", 0.0) != 0 and torch.is_grad_enabled()):
                entropy = -(all_log_probs.exp() * all_log_probs).sum(dim=-1)
    found = {"log_probs": list(log_probs.split(lengths))}
    if with_entropy:
        found["entropy"] = list(entropy.split(lengths))
    return torch.empty(0), found
