"""What an attempt is worth, what a conversation of several is worth, and the flags of the example that decide it.

A turn's score, from what the grader found:

    0.0         no code, or it does not compile, or it broke a rule
    0.05        it compiles, and is wrong
    0.1 .. 1.0  it is right: the grader's reward, which rises with the logarithm of its speed-up over eager PyTorch (grade.py)

A conversation's score is one number, since a trajectory has one reward: with `--turn-reward best` (the default) the highest of
discount^t * score of turn t, with `last` that of the last turn. README.md says why.
"""

import dataclasses

COMPILES = 0.05  # less than any right kernel is worth
TURN_REWARDS = ("best", "last")
BACKENDS = ("cpp", "triton")


@dataclasses.dataclass(frozen=True)
class Rules:
    """The example's own flags, which slime passes on as attributes of `args`."""

    max_turns: int = 3  # --max-turns N; --single-turn is 1
    turn_reward: str = "best"  # --turn-reward best|last
    turn_discount: float = 0.9  # --turn-discount: factor of each turn after the first
    backend: str = "cpp"  # --kernel-backend cpp|triton
    tasks: str = ""  # --kernel-tasks FOLDER; "": the example's own
    gpu: int | str | None = None  # --kernel-gpu N|interpreter, of triton: the grader's GPU; None: the only one

    @classmethod
    def of(cls, args):
        """ValueError for a value that makes no sense, with what would."""
        given = {
            "max_turns": getattr(args, "max_turns", None),
            "turn_reward": getattr(args, "turn_reward", None),
            "turn_discount": getattr(args, "turn_discount", None),
            "backend": getattr(args, "kernel_backend", None),
            "tasks": getattr(args, "kernel_tasks", None),
            "gpu": getattr(args, "kernel_gpu", None),
        }
        rules = cls(**{name: value for name, value in given.items() if value is not None})
        is_single = getattr(args, "single_turn", None)
        if is_single not in (None, True, False):
            raise ValueError(f"--single-turn {is_single}: takes no value")
        if is_single:
            if given["max_turns"] not in (None, 1):
                raise ValueError(
                    f"--single-turn and --max-turns {rules.max_turns} contradict each other: give one of them"
                )
            rules = dataclasses.replace(rules, max_turns=1)
        rules.check()
        return rules

    def check(self):
        if isinstance(self.max_turns, bool) or not isinstance(self.max_turns, int) or self.max_turns < 1:
            raise ValueError(f"--max-turns {self.max_turns}: should be a whole number from 1 on")
        if self.turn_reward not in TURN_REWARDS:
            raise ValueError(f"--turn-reward {self.turn_reward}: should be one of {', '.join(TURN_REWARDS)}")
        discount = self.turn_discount
        if isinstance(discount, bool) or not isinstance(discount, (int, float)) or not 0 < discount <= 1:
            raise ValueError(f"--turn-discount {discount}: should be above 0, and at most 1")
        if self.backend not in BACKENDS:
            raise ValueError(f"--kernel-backend {self.backend}: should be one of {', '.join(BACKENDS)}")
        if not isinstance(self.tasks, str):
            raise ValueError(f"--kernel-tasks {self.tasks}: should be one folder")
        if self.gpu not in (None, "interpreter") and (
            isinstance(self.gpu, bool) or not isinstance(self.gpu, int) or self.gpu < 0
        ):
            raise ValueError(f"--kernel-gpu {self.gpu}: should be a GPU's number, or interpreter")
        if self.gpu is not None and self.backend != "triton":
            raise ValueError(f"--kernel-gpu {self.gpu}: is of --kernel-backend triton alone")


def turn_score(found):
    """`found`: what the grader says of one kernel, as a dictionary."""
    if found["correct"]:
        return found["reward"]
    return COMPILES if found["compiled"] else 0.0


def trajectory_score(scores, rules):
    """Of the scores of a conversation's turns, in their order."""
    worth = [score * rules.turn_discount**turn for turn, score in enumerate(scores)]
    if not worth:
        return 0.0
    return max(worth) if rules.turn_reward == "best" else worth[-1]
