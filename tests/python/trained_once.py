"""Proof that what was sampled is what is trained."""

__all__ = ["assert_each_token_is_trained_once"]


def assert_each_token_is_trained_once(samples, calls):
    """Each call is in one sample behind exactly its prompt, with its log-probs, and nothing else is trained."""
    covered = [[False] * len(sample.tokens) for sample in samples]
    for prompt, ids, log_probs in calls:
        begin, end, hits = len(prompt), len(prompt) + len(ids), 0
        for sample, cover in zip(samples, covered):
            offset = len(sample.tokens) - sample.response_length
            if begin < offset or sample.tokens[:begin] != prompt or sample.tokens[begin:end] != ids:
                continue
            span = slice(begin - offset, end - offset)
            # Equal calls are told apart by their log-probs.
            is_it = all(sample.loss_mask[span]) and sample.rollout_log_probs[span] == log_probs
            if is_it and not any(cover[begin:end]):
                cover[begin:end] = [True] * len(ids)
                hits += 1
                break
        assert hits == 1, f"{len(ids)} sampled tokens are trained nowhere behind their own context"
    for sample, cover in zip(samples, covered):
        offset = len(sample.tokens) - sample.response_length
        assert [bool(trained) for trained in sample.loss_mask] == cover[offset:], "a token is trained that was not sampled there"
