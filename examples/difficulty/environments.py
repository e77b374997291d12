"""Environments that make problems of any level, and know the answer: level n is a problem of n places.

A problem is text, "sort dbca", and so is its answer, "abcd". They are made from a seed: the same seed and level are the
same problem everywhere.
"""

import random

LETTERS = "abcdefgh"
DIGITS = "01234"


def reverse(rng, level):
    word = "".join(rng.choices(LETTERS, k=level))
    return word, word[::-1]


def sort(rng, level):
    word = "".join(rng.choices(LETTERS, k=level))
    return word, "".join(sorted(word))


def shift(rng, level):
    """Each letter becomes the next one, the last one the first."""
    word = "".join(rng.choices(LETTERS, k=level))
    return word, "".join(LETTERS[(LETTERS.index(letter) + 1) % len(LETTERS)] for letter in word)


def add(rng, level):
    """Sums of small digits, column by column: none has a carry."""
    first, second = ("".join(rng.choices(DIGITS, k=level)) for _ in range(2))
    return f"{first} {second}", "".join(str(int(x) + int(y)) for x, y in zip(first, second))


ENVIRONMENTS = {"reverse": reverse, "sort": sort, "shift": shift, "add": add}
HIGHEST_LEVEL = 12


def make_problem(environment, level, seed):
    """(question, answer)"""
    question, answer = ENVIRONMENTS[environment](random.Random(f"{environment} {level} {seed}"), level)
    return f"{environment} {question}", answer
