"""Answers in boxes, and whether one equals a label."""

from slime.rollout.rm_hub.native import score_and_wait

__all__ = ["extract_answer", "extract_boxed_answer", "grade_answer_verl", "last_boxed_only_string", "remove_boxed"]


def last_boxed_only_string(string, commands=("\\boxed", "\\fbox")):
    """The last box with its command and braces; None without one, or when it is not closed."""
    begin = next((place for place in map(string.rfind, commands) if place >= 0), -1)
    if begin < 0:
        return None
    depth = 0
    for i in range(begin, len(string)):
        if string[i] == "{":
            depth += 1
        elif string[i] == "}":
            depth -= 1
            if depth == 0:
                return string[begin : i + 1]
    return None


def remove_boxed(boxed):
    """What stands in \\boxed{...}; None for anything else."""
    if boxed is None or not (boxed.startswith("\\boxed{") and boxed.endswith("}")):
        return None
    return boxed[len("\\boxed{") : -1]


def extract_boxed_answer(solution):
    return remove_boxed(last_boxed_only_string(solution))


def extract_answer(passage):
    """What the last \\boxed{...} holds; None without one."""
    return extract_boxed_answer(passage) if "\\boxed" in passage else None


def grade_answer_verl(solution_str, ground_truth):
    """Whether the last box of the solution equals the label, itself a box or not: the rule `math`."""
    if not ground_truth or extract_answer(solution_str) is None:
        return False
    return score_and_wait("math", solution_str, str(ground_truth)) == 1


def grade_answer_sympy(given_answer, ground_truth):
    """Whether two answers are equal, as `math` sees them."""
    return grade_answer_verl(f"\\boxed{{{given_answer}}}", ground_truth)


# The original tells letters that are equal from expressions that are; the program's rule is both at once.
grade_answer_mathd = grade_answer_sympy
