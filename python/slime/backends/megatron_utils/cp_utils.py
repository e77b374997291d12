"""Sums over samples, and the forms of context parallelism for one rank: users' losses see whole sequences here.

The program splits sequences over ranks by itself and hands hooks what is whole, so gathering and slicing return what
they got.
"""

__all__ = [
    "all_gather_with_cp",
    "get_logits_and_tokens_offset_with_cp",
    "get_sum_of_sample_mean",
    "slice_log_prob_with_cp",
    "slice_with_cp",
]


def get_sum_of_sample_mean(
    total_lengths, response_lengths, loss_masks, sample_denoms=None, calculate_per_token_loss=False
):
    """A function of per-token values [sum(response_lengths)]: for each sample the sum over trained tokens, divided by
    `sample_denoms` (at least 1; the sample's own number of trained tokens without them), all added up. Per token
    nothing is divided."""
    import torch

    mask = torch.cat([each.reshape(-1) for each in loss_masks])
    lengths = torch.as_tensor(list(response_lengths), device=mask.device)
    weights = {}  # of each token, by precision: made once, used for every metric

    def weight(dtype):
        if dtype not in weights:
            weights[dtype] = mask.to(dtype)
            if not calculate_per_token_loss:
                sums = [each.sum() for each in loss_masks] if sample_denoms is None else sample_denoms
                denominators = torch.as_tensor([float(each) for each in sums], dtype=dtype, device=mask.device).clamp_min(1)
                weights[dtype] = weights[dtype] / denominators.repeat_interleave(lengths)
        return weights[dtype]

    def reduce(values):
        if values.shape != mask.shape:
            raise ValueError(f"values of shape {list(values.shape)} for {mask.numel()} response tokens, end to end")
        dtype = values.dtype if values.is_floating_point() else torch.get_default_dtype()
        return (values * weight(dtype)).sum()

    return reduce


def get_logits_and_tokens_offset_with_cp(
    total_length, response_length, qkv_format="thd", max_seq_len=None, *, cp_rank=0, cp_size=1
):
    """(length of a piece, the rank's two pieces, the logits in each that predict the response, the tokens that those predict): half-open
    ranges from the beginning of the prompt, (0, 0) where a piece has none. A sequence is cut into 2 * cp_size pieces, and rank r has r and
    2 * cp_size - 1 - r. A hook has whole sequences, which is one rank: both pieces."""
    if qkv_format != "thd" and max_seq_len is None:
        raise ValueError(f"max_seq_len: is needed with qkv_format {qkv_format}")
    length = -(-(total_length if qkv_format == "thd" else max_seq_len) // (2 * cp_size))
    pieces = tuple((index * length, (index + 1) * length) for index in (cp_rank, 2 * cp_size - 1 - cp_rank))
    first = total_length - response_length - 1  # the logits there predict the first token of the response
    clamped = [(max(begin, first), min(end, total_length - 1)) for begin, end in pieces]
    logits = tuple((begin, end) if begin < end else (0, 0) for begin, end in clamped)
    tokens = tuple((begin + 1, end + 1) if end else (0, 0) for begin, end in logits)
    return length, pieces, logits, tokens


def all_gather_with_cp(tensor, total_length, response_length):
    return tensor


def slice_with_cp(tokens, pad_value=0):
    return tokens


def slice_log_prob_with_cp(log_prob, total_length, response_length):
    if len(log_prob) != response_length:
        raise ValueError(f"{len(log_prob)} log-probs for {response_length} response tokens of {total_length}")
    return log_prob
