"""A repository of one function with a bug in it, and its test. What it is judged by it never sees."""

import dataclasses
import random

EXPRESSIONS = ("a + b", "a - b", "b - a", "a * b", "max(a, b)", "min(a, b)")
SOURCE = "def f(a, b):\n    return {}\n"
TEST = """\
from f import f
got = f({a}, {b})
print("pass" if got == {wanted} else f"f({a}, {b}) is {{got}}, not {wanted}")
"""


@dataclasses.dataclass(frozen=True)
class Task:
    wrong: str
    right: str
    a: int
    b: int

    @property
    def files(self):
        wanted = eval(self.right, {"a": self.a, "b": self.b, "max": max, "min": min})
        return {"f.py": SOURCE.format(self.wrong), "test.py": TEST.format(a=self.a, b=self.b, wanted=wanted)}

    def hidden_case(self, count=5):
        """{"input", "expected"} for `run_code`: numbers by line, and what comes of them."""
        rng = random.Random(f"{self.right} {self.a} {self.b}")
        pairs = [(rng.randint(1, 99), rng.randint(1, 99)) for _ in range(count)]
        wanted = [eval(self.right, {"a": a, "b": b, "max": max, "min": min}) for a, b in pairs]
        return {"input": "\n".join(f"{a} {b}" for a, b in pairs), "expected": "\n".join(map(str, wanted))}


# What is run behind the agent's file to judge it.
JUDGE = """
import sys
for line in sys.stdin:
    print(f(*map(int, line.split())))
"""


def make_task(seed):
    """Numbers for which no two expressions agree."""
    rng = random.Random(seed)
    wrong, right = rng.sample(EXPRESSIONS, 2)
    while True:
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        values = [eval(each, {"a": a, "b": b, "max": max, "min": min}) for each in EXPRESSIONS]
        if len(set(values)) == len(values):
            return Task(wrong, right, a, b)
