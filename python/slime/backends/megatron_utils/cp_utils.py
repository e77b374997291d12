"""Sums over samples, and the forms of context parallelism for one rank: users' losses see whole sequences here.

The program splits sequences over ranks by itself and hands hooks what is whole, so gathering and slicing return what
they got.
"""

__all__ = ["all_gather_with_cp", "get_sum_of_sample_mean", "slice_log_prob_with_cp", "slice_with_cp"]


def get_sum_of_sample_mean(
    total_lengths, response_lengths, loss_masks, sample_denoms=None, calculate_per_token_loss=False
):
    """A function of per-token values [sum(response_lengths)]: for each sample the sum over trained tokens, divided by
    `sample_denoms` (at least 1; the sample's own number of trained tokens without them), all added up. Per token
    nothing is divided."""
    import torch

    denominators = [mask.sum() for mask in loss_masks] if sample_denoms is None else sample_denoms

    def masked_sums(values):
        return [(part * mask).sum() for part, mask in zip(values.split(list(response_lengths), dim=0), loss_masks)]

    def sum_of_token(values):
        return sum(masked_sums(values))

    def sum_of_sample_mean(values):
        return sum(
            total / torch.clamp_min(torch.as_tensor(denominator), 1)
            for total, denominator in zip(masked_sums(values), denominators)
        )

    return sum_of_token if calculate_per_token_loss else sum_of_sample_mean


def all_gather_with_cp(tensor, total_length, response_length):
    return tensor


def slice_with_cp(tokens, pad_value=0):
    return tokens


def slice_log_prob_with_cp(log_prob, total_length, response_length):
    if len(log_prob) != response_length:
        raise ValueError(f"{len(log_prob)} log-probs for {response_length} response tokens of {total_length}")
    return log_prob
