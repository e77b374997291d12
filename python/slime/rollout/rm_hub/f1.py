"""The rule `f1`: overlap of words."""

import re
import string
from collections import Counter

from slime.rollout.rm_hub.native import score_and_wait

__all__ = ["f1_score", "normalize_answer"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """The words that are compared: small letters, no punctuation, no articles, single spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def f1_score(prediction, ground_truth):
    """(F1, precision, recall) of the words; zeros for a prediction that is None. The F1 is the program's own."""
    if prediction is None:
        return 0.0, 0.0, 0.0
    f1 = score_and_wait("f1", prediction, ground_truth)
    said, right = (Counter(normalize_answer(text).split()) for text in (prediction, ground_truth))
    common = sum((said & right).values())
    if not f1 or not common:
        return f1, 0.0, 0.0
    return f1, common / sum(said.values()), common / sum(right.values())
