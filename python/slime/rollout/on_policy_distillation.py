"""A teacher behind --rm-url: its log-probs of a response's tokens in the place of a reward. The flags that name these two
functions select the program's own; they are here for code that calls them."""

from slime.utils.http_utils import post

__all__ = ["post_process_rewards", "reward_func"]


async def reward_func(args, sample, **kwargs):
    """What the teacher's server says about prompt and response: nothing is generated."""
    payload = {
        "input_ids": list(sample.tokens),
        "sampling_params": {"temperature": 0, "max_new_tokens": 0, "skip_special_tokens": False},
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    return await post(args.rm_url, payload)


def post_process_rewards(args, samples, **kwargs):
    """Sets teacher_log_probs of each sample; (rewards to log, rewards to train on), all 0."""
    for sample in samples:
        entries = sample.reward["meta_info"]["input_token_logprobs"]
        log_probs = [entry[0] for entry in entries[1:]]  # the first token has none
        if len(log_probs) < sample.response_length:
            raise ValueError(f"sample {sample.index}: {len(log_probs)} teacher log-probs for {sample.response_length} tokens")
        sample.teacher_log_probs = [float(each) for each in log_probs[len(log_probs) - sample.response_length :]]
    zeros = [0.0] * len(samples)
    return zeros, list(zeros)
