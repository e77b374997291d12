"""The rule `f1`: overlap of words."""

import re
import string

from slime.rollout.rm_hub.native import score_and_wait

__all__ = ["f1_score", "normalize_answer"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """The words that are compared: small letters, no punctuation, no articles, single spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def f1_score(prediction, ground_truth):
    """(F1,). Precision and recall, which stand behind it in the original, are not told."""
    return (0.0,) if prediction is None else (score_and_wait("f1", prediction, ground_truth),)
