"""A game of two agents with one set of weights: one thinks of a letter, the other finds it by questions.

    slime train ... --custom-generate-function-path examples/two_agents/game.py

The guesser asks "h" and means: does the letter come before h? The keeper, who sees the letter, says yes or no. Within
four questions the guesser says "=k". Both are rewarded when that is the letter. Each has a conversation of its own, and
so a game is two samples with one rollout_id: they count as one execution.
"""

from slime.agent.conversation import Conversation
from slime.utils.types import Sample

LETTERS = "abcdefghijklmnop"
QUESTIONS = 4  # as many as halving 16 letters takes
TASK = "find a-p"
TURN_TOKENS = 8


async def play(guesser, keeper, sampling_params):
    """What the guesser says it is; None when one of them did not keep to the rules."""
    for number in range(QUESTIONS + 1):
        said = await guesser.say(sampling_params)
        if said and said.startswith("="):
            return said[1:]
        if said not in tuple(LETTERS) or number == QUESTIONS:
            return None
        keeper.hear(said)
        answer = await keeper.say(sampling_params)
        if answer not in ("yes", "no"):
            return None
        guesser.hear(answer)


def sample_of(sample, agent):
    """A sample for one agent of an execution."""
    common = {"index": sample.index, "group_index": sample.group_index, "rollout_id": sample.index}
    return Sample(**common, label=sample.label, metadata={"agent": agent})


async def generate(args, sample, sampling_params):
    secret = sample.label
    guesser = Conversation(args, sample_of(sample, "guesser"), [{"role": "user", "content": TASK}])
    keeper = Conversation(args, sample_of(sample, "keeper"), [{"role": "system", "content": secret}])
    found = await play(guesser, keeper, {**sampling_params, "max_new_tokens": TURN_TOKENS})
    samples = []
    for agent in (guesser, keeper):
        if agent.sample.status == Sample.Status.ABORTED:
            sample.status = Sample.Status.ABORTED  # the game begins anew in a later step
            return sample
        if not agent.sample.tokens:
            continue  # a guess without a question leaves the keeper nothing to say
        agent.sample.reward = float(found == secret)
        agent.sample.metadata["turns"] = agent.num_turns
        samples.append(agent.sample)
    return samples
