"""Which weights drew an answer, from the moment it comes until its sample is made.

A framework's trace has an answer's tokens and log-probs and no more, so they are the key. Answers that never become a sample (of an episode
that was aborted, say) are forgotten when newer ones need their place.
"""

__all__ = ["DrawnVersions"]


class DrawnVersions:
    def __init__(self, most_tokens=1 << 22):
        self._runs = {}  # of equal answers a list; the oldest first
        self._num_tokens = 0
        self._most_tokens = most_tokens

    def __len__(self):
        return sum(map(len, self._runs.values()))

    def note(self, ids, log_probs, runs):
        """`runs`: [[version, tokens], ...]."""
        self._runs.setdefault((tuple(ids), tuple(log_probs)), []).append(runs)
        self._num_tokens += len(ids)
        while self._num_tokens > self._most_tokens and self._num_tokens > len(ids):
            self.take(*next(iter(self._runs)))

    def take(self, ids, log_probs):
        """The runs of an answer, which is forgotten; None where it is not known."""
        key = (tuple(ids), tuple(log_probs))
        equal = self._runs.get(key)
        if equal is None:
            return None
        runs = equal.pop(0)
        if not equal:
            del self._runs[key]
        self._num_tokens -= len(ids)
        return runs
