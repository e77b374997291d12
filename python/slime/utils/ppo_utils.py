"""Formulas of policy optimisation over torch tensors, for losses and advantage functions of one's own.

The trainer computes the same numbers by itself (`docs/spec/algorithms.md`). Sequences are whole here: what the original
gathers over context-parallel ranks is already gathered.
"""

import math

try:
    import torch
except ImportError as error:
    raise ImportError(
        "slime.utils.ppo_utils computes with torch tensors, and this Python has no torch: install it, or name an "
        "interpreter that has it: --plugin-python"
    ) from error

__all__ = [
    "calculate_log_probs_and_entropy",
    "calculate_ragged_log_probs",
    "calculate_topk_log_probs",
    "chunked_discounted_returns",
    "chunked_gae",
    "compute_approx_kl",
    "compute_cispo_loss",
    "compute_entropy_from_logits",
    "compute_gspo_kl",
    "compute_log_probs",
    "compute_opsm_mask",
    "compute_policy_loss",
    "get_advantages_and_returns_batch",
    "get_grpo_returns",
    "get_pg_loss_type",
    "get_reinforce_plus_plus_baseline_advantages",
    "get_reinforce_plus_plus_returns",
    "importance_weights",
    "vanilla_gae",
]

_LARGEST_KL = 10.0


# Divergences.


def compute_approx_kl(
    log_probs: torch.Tensor, log_probs_base: torch.Tensor, kl_loss_type: str, importance_ratio=None
) -> torch.Tensor:
    """An estimate for each token: k1, k2, k3, or low_var_kl, which is k3 within 10 of 0."""
    difference = log_probs.float() - log_probs_base.float()
    if kl_loss_type == "k1":
        estimate = difference
    elif kl_loss_type == "k2":
        estimate = difference.square() / 2
    elif kl_loss_type in ("k3", "low_var_kl"):
        estimate = torch.exp(-difference) - 1 + difference
    else:
        raise ValueError(f"kl_loss_type {kl_loss_type!r}: k1, k2, k3 or low_var_kl")
    if importance_ratio is not None:
        estimate = importance_ratio * estimate
    return estimate.clamp(-_LARGEST_KL, _LARGEST_KL) if kl_loss_type == "low_var_kl" else estimate


def _mean_difference(old, new, mask):
    return ((old - new) * mask).sum() / mask.sum().clamp_min(1)


def compute_gspo_kl(full_log_probs, full_old_log_probs, local_log_probs, loss_masks) -> torch.Tensor:
    """The mean difference over a sequence's trained tokens, for each of its tokens."""
    triples = zip(full_old_log_probs, full_log_probs, loss_masks)
    means = [_mean_difference(old, new, mask) for old, new, mask in triples]
    return torch.cat([mean.expand_as(tokens) for mean, tokens in zip(means, local_log_probs)])


def compute_opsm_mask(args, full_log_probs, full_old_log_probs, advantages, loss_masks):
    """(mask of tokens end to end, how many sequences it takes out). A token goes where its advantage is negative and its
    sequence has moved by more than args.opsm_delta."""
    kept, removed = [], torch.zeros((), device=advantages[0].device)
    for new, old, advantage, mask in zip(full_log_probs, full_old_log_probs, advantages, loss_masks):
        is_removed = (advantage < 0) & (_mean_difference(old, new, mask) > args.opsm_delta)
        removed = removed + is_removed.float().sum() / mask.sum().clamp_min(1)
        kept.append(1 - is_removed.float())
    return torch.cat(kept), removed


# Losses of a token.


def compute_policy_loss(ppo_kl, advantages, eps_clip: float, eps_clip_high: float, eps_clip_c=None):
    """(loss, whether it was clipped) of each token. `ppo_kl` is the old log-prob less the new one; `eps_clip_c` bounds the
    loss of negative advantages (dual clip)."""
    if eps_clip_c is not None and eps_clip_c <= 1:
        raise ValueError(f"eps_clip_c is {eps_clip_c}; it bounds a ratio from above and is more than 1")
    ratio = torch.exp(-ppo_kl)
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - eps_clip, 1 + eps_clip_high)
    loss = torch.maximum(plain, clipped)
    if eps_clip_c is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -eps_clip_c * advantages), loss)
    return loss, (clipped > plain).float()


def compute_cispo_loss(ppo_kl, log_probs, advantages, eps_clip: float, eps_clip_high: float):
    """(loss, whether the ratio was clipped): the clipped ratio is a weight without gradient."""
    ratio = torch.exp(-ppo_kl)
    weight = ratio.clamp(1 - eps_clip, 1 + eps_clip_high)
    return -weight.detach() * advantages * log_probs, (weight != ratio).float()


def get_pg_loss_type(args) -> str:
    """ppo, reinforce or cispo: --pg-loss-type where it is set, else what estimator and score centering make it."""
    stated = getattr(args, "pg_loss_type", None)
    centers = bool(getattr(args, "use_score_centering", False))
    estimator = getattr(args, "advantage_estimator", None)
    if centers and stated not in (None, "reinforce"):
        raise ValueError(f"--pg-loss-type {stated}: --use-score-centering goes with reinforce")
    if stated is None:
        return "reinforce" if centers else "cispo" if estimator == "cispo" else "ppo"
    if estimator == "cispo" or (estimator == "gspo" and stated != "ppo"):
        raise ValueError(f"--pg-loss-type {stated}: --advantage-estimator {estimator} has its own objective")
    return stated


def importance_weights(ratio: torch.Tensor, mode: str, low: float, high: float) -> torch.Tensor:
    """Weights of tokens by how much likelier the trainer's policy made them: none (1), tis (the ratio within its bounds),
    icepop or mis (the ratio inside its bounds, 0 outside)."""
    if mode in (None, "none"):
        return torch.ones_like(ratio)
    if mode in ("tis", "vanilla"):
        return ratio.clamp(low, high)
    if mode in ("icepop", "mis"):
        return torch.where((ratio >= low) & (ratio <= high), ratio, torch.zeros_like(ratio))
    raise ValueError(f"mode {mode!r}: none, tis or icepop")


# Returns and advantages.


def get_grpo_returns(rewards, kl):
    """The reward of each sample at each of its tokens."""
    return [torch.ones_like(tokens) * reward for tokens, reward in zip(kl, rewards)]


def get_reinforce_plus_plus_baseline_advantages(rewards, kl, loss_masks, kl_coef: float):
    """Rewards whose baseline was subtracted, less the penalty of each token."""
    return [torch.ones_like(tokens) * reward - kl_coef * tokens for tokens, reward in zip(kl, rewards)]


def get_reinforce_plus_plus_returns(
    rewards, kl, loss_masks, response_lengths, total_lengths, kl_coef: float, gamma: float
):
    """Discounted sums: each trained token's penalty, and the reward at the last trained one."""
    returns = []
    for i, (reward, tokens, mask) in enumerate(zip(rewards, kl, loss_masks)):
        trained = mask.nonzero()
        if len(trained) == 0:
            raise ValueError(f"sample {i}: no token is trained")
        gains = -kl_coef * tokens * mask
        gains[trained[-1, 0]] += reward
        returns.append(chunked_discounted_returns(gains.unsqueeze(0), gamma)[0])
    return returns


def chunked_discounted_returns(rewards: torch.Tensor, discount: float, chunk_size: int = 128) -> torch.Tensor:
    """[samples, tokens]: at each token the sum of what follows, each step `discount` less. A chunk is one product."""
    if rewards.ndim != 2:
        raise ValueError(f"rewards are [samples, tokens], not {list(rewards.shape)}")
    count = rewards.shape[1]
    behind = rewards.new_zeros(rewards.shape[0])  # what follows the chunk
    parts = []
    for end in range(count, 0, -chunk_size):
        chunk = rewards[:, max(0, end - chunk_size) : end]
        places = torch.arange(chunk.shape[1], device=rewards.device)
        steps = places.unsqueeze(0) - places.unsqueeze(1)  # from token (row) to gain (column)
        weights = torch.where(steps >= 0, discount ** steps.clamp_min(0).to(rewards.dtype), rewards.new_zeros(()))
        to_end = discount ** (chunk.shape[1] - places).to(rewards.dtype)
        sums = chunk @ weights.T + behind.unsqueeze(1) * to_end
        behind = sums[:, 0]
        parts.append(sums)
    return torch.cat(parts[::-1], dim=1) if parts else torch.zeros_like(rewards)


def chunked_gae(rewards, values, gamma: float, lambd: float, chunk_size: int = 128):
    """(advantages, returns) of [samples, tokens]; behind the last token the value is 0."""
    if rewards.shape != values.shape or rewards.ndim != 2:
        raise ValueError(f"rewards {list(rewards.shape)} and values {list(values.shape)}: both [samples, tokens]")
    following = torch.nn.functional.pad(values[:, 1:], (0, 1))
    errors = rewards + gamma * following - values
    advantages = chunked_discounted_returns(errors, gamma * lambd, chunk_size)
    return advantages, advantages + values


def vanilla_gae(rewards, values, gamma: float, lambd: float):
    """The same token by token."""
    advantages = torch.zeros_like(rewards)
    following = last = rewards.new_zeros(rewards.shape[0])
    for t in range(rewards.shape[1] - 1, -1, -1):
        last = rewards[:, t] + gamma * following - values[:, t] + gamma * lambd * last
        advantages[:, t], following = last, values[:, t]
    return advantages, advantages + values


@torch.no_grad()
def get_advantages_and_returns_batch(
    total_lengths, response_lengths, values_list, rewards_list, gamma: float, lambd: float, chunked: bool = True
):
    """(advantages, returns), a tensor for each sample."""
    longest = max(response_lengths)
    values, rewards = (
        torch.stack([torch.nn.functional.pad(row[:length], (0, longest - length)) for row, length in zip(rows, response_lengths)])
        for rows in (values_list, rewards_list)
    )
    advantages, returns = (chunked_gae if chunked else vanilla_gae)(rewards, values, gamma, lambd)
    cut = [[row[:length] for row, length in zip(rows, response_lengths)] for rows in (advantages, returns)]
    return cut[0], cut[1]


# Log-probs over a vocabulary that may be divided over the ranks of a group.


class _Sum(torch.autograd.Function):
    """The sum over the ranks of a group; each rank's part has the gradient of the sum."""

    @staticmethod
    def forward(ctx, tensor, group):
        total = tensor.clone()
        torch.distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class _Same(torch.autograd.Function):
    """What all ranks of a group have, for each rank's own use of it: the gradients of those are added up."""

    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()
        torch.distributed.all_reduce(total, group=ctx.group)
        return total, None


class _Vocabulary:
    """The columns of the logits that this rank has."""

    def __init__(self, group, num_columns):
        distributed = torch.distributed
        self.group = group
        is_divided = distributed.is_available() and distributed.is_initialized()
        if group is not None and hasattr(group, "rank") and hasattr(group, "size"):
            rank, size = group.rank(), group.size()
        else:
            rank, size = (distributed.get_rank(group), distributed.get_world_size(group)) if is_divided else (0, 1)
        self.is_divided = is_divided and size > 1
        self.begin, self.num_columns = rank * num_columns, num_columns

    def sum(self, tensor):
        return _Sum.apply(tensor, self.group) if self.is_divided else tensor

    def entropy(self, logits):
        """[rows]"""
        total = self.log_sum(logits)
        log_probs = logits - (_Same.apply(total, self.group) if self.is_divided else total).unsqueeze(-1)
        probs = torch.exp(log_probs)
        return -self.sum((probs * torch.where(probs > 0, log_probs, torch.zeros_like(log_probs))).sum(dim=-1))

    def log_sum(self, logits):
        """[rows]: the logarithm of the sum over the whole vocabulary."""
        largest = logits.detach().amax(dim=-1, keepdim=True)
        if self.is_divided:
            torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=self.group)
        largest = largest.clamp_min(torch.finfo(largest.dtype).min)  # a row that has nothing here
        return self.sum(torch.exp(logits - largest).sum(dim=-1)).log() + largest.squeeze(-1)

    def at(self, logits, rows, ids):
        """The logits of (row, id), wherever the columns are."""
        local = ids - self.begin
        is_here = (local >= 0) & (local < self.num_columns)
        found = logits[rows, local.clamp(0, self.num_columns - 1)]
        return self.sum(torch.where(is_here, found, torch.zeros_like(found)))

    def has(self, ids):
        return (ids >= self.begin) & (ids < self.begin + self.num_columns)


def _chunks(count, chunk_size):
    size = chunk_size if chunk_size > 0 else max(count, 1)
    return [slice(begin, begin + size) for begin in range(0, count, size)]


def calculate_log_probs_and_entropy(
    logits,
    tokens,
    tp_group,
    with_entropy: bool = False,
    chunk_size: int = -1,
    log_prob_keep_mask=None,
    with_entropy_grad: bool = True,
):
    """(log-probs [rows, 1], entropies [rows] or None) of [rows, vocabulary of this rank]. `log_prob_keep_mask`, of the
    same shape, leaves only what it has, and the token itself, in the log-prob; entropies are of everything."""
    if logits.shape[0] == 0:
        return logits.new_zeros((0,)), logits.new_zeros((0,)) if with_entropy else None
    found, entropies = [], []
    for part in _chunks(logits.shape[0], chunk_size):
        rows, ids = logits[part].float(), tokens[part]
        vocabulary, places = _Vocabulary(tp_group, rows.shape[1]), torch.arange(len(ids), device=rows.device)
        kept = rows
        if log_prob_keep_mask is not None:
            keep, here = log_prob_keep_mask[part].clone(), vocabulary.has(ids)
            keep[places[here], (ids - vocabulary.begin)[here]] = True
            kept = rows.masked_fill(~keep, -math.inf)
        found.append(vocabulary.at(rows, places, ids) - vocabulary.log_sum(kept))
        if with_entropy:
            with torch.set_grad_enabled(with_entropy_grad and torch.is_grad_enabled()):
                entropies.append(vocabulary.entropy(rows))
    return torch.cat(found).unsqueeze(-1), torch.cat(entropies) if with_entropy else None


def compute_log_probs(logits, tokens, process_group):
    """[rows, 1]"""
    return calculate_log_probs_and_entropy(logits, tokens, process_group)[0]


def compute_entropy_from_logits(logits, process_group):
    """[rows]"""
    rows = logits.float()
    return _Vocabulary(process_group, rows.shape[1]).entropy(rows)


def calculate_topk_log_probs(logits, token_ids, process_group, chunk_size: int = -1, temperature: float = 1.0):
    """[rows, K]: log-probs of K tokens of each row, over the whole vocabulary."""
    if logits.shape[0] == 0:
        return logits.new_zeros(token_ids.shape, dtype=torch.float32)
    found = []
    for part in _chunks(logits.shape[0], chunk_size):
        rows, ids = logits[part].float() / temperature, token_ids[part].long()
        vocabulary = _Vocabulary(process_group, rows.shape[1])
        places = torch.arange(len(ids), device=rows.device).unsqueeze(1).expand_as(ids)
        found.append(vocabulary.at(rows, places, ids) - vocabulary.log_sum(rows).unsqueeze(1))
    return torch.cat(found)


def calculate_ragged_log_probs(logits, token_ids, offsets, process_group, temperature: float = 1.0):
    """Log-probs of the ids of row i, token_ids[offsets[i]:offsets[i + 1]], over the whole vocabulary, end to end."""
    offsets = offsets.long()
    if len(offsets) != logits.shape[0] + 1 or int(offsets[-1]) != len(token_ids):
        raise ValueError(f"{len(offsets)} offsets to {len(token_ids)} ids, for {logits.shape[0]} rows")
    rows = logits.float() / temperature
    vocabulary = _Vocabulary(process_group, rows.shape[1])
    places = torch.arange(rows.shape[0], device=rows.device).repeat_interleave(torch.diff(offsets).to(rows.device))
    return vocabulary.at(rows, places, token_ids.long()) - vocabulary.log_sum(rows)[places]
