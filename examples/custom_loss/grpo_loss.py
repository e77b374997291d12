"""GRPO's loss, written as a function of one's own: the numbers are those of --loss-type policy_loss.

    slime train ... --loss-type custom_loss --custom-loss-function-path examples/custom_loss/grpo_loss.py
"""

import torch
from slime.backends.megatron_utils.loss import get_log_probs_and_entropy


def loss(args, batch, logits, sum_of_sample_mean):
    _, found = get_log_probs_and_entropy(
        logits,
        args=args,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        with_entropy=True,
        top_p_token_ids=batch.get("rollout_top_p_token_ids"),
        top_p_token_offsets=batch.get("rollout_top_p_token_offsets"),
    )
    log_probs, entropy = torch.cat(found["log_probs"]), torch.cat(found["entropy"])
    old_log_probs, advantages = torch.cat(batch["log_probs"]), torch.cat(batch["advantages"])

    ppo_kl = old_log_probs - log_probs
    ratio = torch.exp(-ppo_kl)
    free = -ratio * advantages
    clipped = -ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip_high) * advantages
    pg_loss = sum_of_sample_mean(torch.maximum(free, clipped))
    entropy_loss = sum_of_sample_mean(entropy)

    with torch.no_grad():
        metrics = {
            "pg_loss": pg_loss,
            "pg_clipfrac": sum_of_sample_mean((clipped > free).float()),
            "ppo_kl": sum_of_sample_mean(ppo_kl),
            "entropy_loss": entropy_loss,
        }
    if args.entropy_coef != 0:
        return pg_loss - args.entropy_coef * entropy_loss, metrics
    return pg_loss, metrics
