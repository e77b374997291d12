"""BM25 over a list of texts: an inverted index in memory, with the usual k1 and b. Nothing but Python's own library."""

import math
import re
from collections import Counter, defaultdict


def words_of(text):
    return re.findall(r"[a-z0-9]+", text.lower())


class Bm25:
    """Okapi BM25 (Robertson and Zaragoza 2009, section 3.4), with the idf that is never negative."""

    def __init__(self, texts, k1=1.2, b=0.75):
        words = [words_of(text) for text in texts]
        lengths = [len(each) for each in words]
        mean_length = sum(lengths) / max(1, len(lengths))
        postings = defaultdict(list)  # word -> [(index of a text, its weight in it)]
        for i, each in enumerate(words):
            room = k1 * (1 - b + b * lengths[i] / mean_length) if mean_length else k1
            for word, count in Counter(each).items():
                postings[word].append((i, count * (k1 + 1) / (count + room)))
        total = len(words)
        self._postings = {
            word: (math.log(1 + (total - len(places) + 0.5) / (len(places) + 0.5)), places)
            for word, places in postings.items()
        }

    def search(self, query, limit=1):
        """Numbers of the `limit` best texts, best first; of equals the earlier one. Texts without a word of the query are none."""
        scores = defaultdict(float)
        for word in words_of(query):
            idf, places = self._postings.get(word, (0.0, ()))
            for i, weight in places:
                scores[i] += idf * weight
        return sorted(scores, key=lambda i: (-scores[i], i))[:limit]
