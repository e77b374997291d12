"""Problems as hard as the model can bear.

    slime train ... --custom-generate-function-path examples/difficulty/rollout.py \
                    --custom-rollout-log-function-path examples/difficulty/rollout.py

A row of the data names an environment; its problem is made here, at the level that the environment has reached. Rows of an
evaluation name their level too. Levels are counted in one process: --plugin-hosts 1, the default.
"""

from environments import make_problem
from levels import Levels
from slime.agent.conversation import Conversation

_levels = None
_problem_of_group = {}


def levels_of(args):
    global _levels
    if _levels is None:
        _levels = Levels(args.run_dir)
    return _levels


def problem_of(args, sample, evaluation):
    """(level, question, answer): one for all samples of a prompt, also where the level rises between two of them."""
    environment, _, fixed = sample.label.partition(" ")
    if evaluation:
        return int(fixed), *make_problem(environment, int(fixed), f"test {sample.index}")
    key = sample.group_index
    if key not in _problem_of_group:
        level = levels_of(args).level(environment)
        _problem_of_group[key] = level, *make_problem(environment, level, key)
        while len(_problem_of_group) > 4096:
            del _problem_of_group[next(iter(_problem_of_group))]
    return _problem_of_group[key]


async def generate(args, sample, sampling_params, evaluation=False):
    level, question, answer = problem_of(args, sample, evaluation)
    talk = Conversation(args, sample, [{"role": "user", "content": question}])
    said = await talk.say({**sampling_params, "max_new_tokens": len(answer) + 4})
    sample.reward = float(said == answer)
    sample.metadata |= {"environment": sample.label.partition(" ")[0], "level": level, "question": question}
    return sample


def log_rollout(rollout_id, args, samples, rollout_extra_metrics, rollout_time):
    """Counts the step's answers. False: the program writes its metrics as ever."""
    levels = levels_of(args)
    for sample in samples:
        levels.count(sample.metadata["environment"], sample.metadata["level"], sample.reward)
    levels.end_step(rollout_id)
    print(f"step {rollout_id}: levels", {name: each["level"] for name, each in levels.now.items()}, flush=True)
    return False
