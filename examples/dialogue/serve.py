"""An agent serves a customer: slime train ... --custom-generate-function-path examples/dialogue/serve.py

A message that begins with the name of a tool is a call, any other one goes to the customer.
"""

from shop import RULES, Customer, Shop, make_task
from slime.agent.conversation import Conversation
from slime.utils.types import Sample

MESSAGES = 8  # of the agent, in one conversation
TURN_TOKENS = 16


async def generate(args, sample, sampling_params):
    task = make_task(sample.label)
    shop, customer = Shop(task.orders), Customer(task)
    opening = [{"role": "system", "content": RULES}, {"role": "user", "content": customer.opening()}]
    talk = Conversation(args, sample, opening)
    num_calls = 0
    for _ in range(MESSAGES):
        said = await talk.say({**sampling_params, "max_new_tokens": TURN_TOKENS})
        if said is None:
            break
        if said.split(" ")[0] in Shop.TOOLS:
            num_calls += 1
            talk.hear(shop.call(said), role="tool")
            continue
        talk.hear(customer.reply(said))
        if customer.has_left:
            break
    if sample.status == Sample.Status.ABORTED:
        return sample
    sample.reward = float(customer.has_left and shop.orders == task.end_state)
    sample.metadata |= {"turns": talk.num_turns, "calls": num_calls, "served": customer.has_left}
    return sample
