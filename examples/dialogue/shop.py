"""The shop: orders, tools that read and write them, customers who follow a script. In the manner of tau-bench: an agent
that serves a customer is judged by what the database holds in the end, not by what it said.

The shop's policy: an order that is open is cancelled or changed as the customer asks; one that was sent stays as it is.
"""

import dataclasses
import random

COLOURS = ("red", "blue", "green")
STATUSES = ("open", "sent")
RULES = "cancel or set open orders only"


@dataclasses.dataclass
class Task:
    """What one customer wants. `colour` is None for one who wants to cancel; `names_it` customers say the number at once."""

    orders: dict  # number -> (status, colour)
    number: str
    colour: str
    names_it: bool

    @property
    def end_state(self):
        """The database after an agent that keeps to the policy."""
        status, _ = self.orders[self.number]
        if status == "sent":
            return self.orders
        changed = ("cancelled", self.orders[self.number][1]) if self.colour is None else (status, self.colour)
        return {**self.orders, self.number: changed}


def make_task(seed):
    rng = random.Random(seed)
    numbers = rng.sample("123456789", 3)
    orders = {number: (rng.choice(STATUSES), rng.choice(COLOURS)) for number in numbers}
    number = rng.choice(numbers)
    colour = None
    if rng.random() < 0.5:
        colour = rng.choice([each for each in COLOURS if each != orders[number][1]])
    return Task(orders, number, colour, rng.random() < 0.5)


class Customer:
    """Says what is wanted, the number when it is asked for, and goodbye when told how it went."""

    def __init__(self, task):
        self.task = task
        self.has_left = False

    def opening(self):
        which = f" {self.task.number}" if self.task.names_it else ""
        return f"cancel order{which}" if self.task.colour is None else f"order{which} in {self.task.colour}"

    def reply(self, said):
        if said in ("done", "sorry"):
            self.has_left = True
            return "bye"
        return f"order {self.task.number}" if said == "which?" else "pardon?"


class Shop:
    """The database and its tools: `get 4`, `cancel 4`, `set 4 blue`. They do what they are told; the policy is the agent's
    to keep."""

    TOOLS = ("get", "cancel", "set")

    def __init__(self, orders):
        self.orders = dict(orders)

    def call(self, command):
        name, *arguments = command.split(" ")
        if name not in self.TOOLS or len(arguments) != (2 if name == "set" else 1):
            return "no such tool"
        if arguments[0] not in self.orders:
            return "no such order"
        status, colour = self.orders[arguments[0]]
        if name == "get":
            return f"{status} {colour}"
        if name == "set":
            if arguments[1] not in COLOURS:
                return "no such colour"
            colour = arguments[1]
        else:
            status = "cancelled"
        self.orders[arguments[0]] = (status, colour)
        return "ok"
