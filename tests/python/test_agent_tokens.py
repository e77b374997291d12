"""Every token that the engine sampled for an agent is trained once, behind the tokens that it was sampled behind, whatever
the client sends back."""

import contextvars
import copy
import json
import random

import pytest
from agent_world import FAMILIES, World
from trained_once import assert_each_token_is_trained_once
from slime import turns

TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "book", "description": "d", "parameters": {"type": "object"}}}
ASKED = [{"role": "system", "content": "You help."}, {"role": "user", "content": "a question"}]


def call(**arguments):
    return "<tool_call>\n" + json.dumps({"name": "look", "arguments": arguments}) + "\n</tool_call>"


def play(world, texts, rewrite=lambda message: message, tools=(TOOL,), follow="and then?"):
    """A client that repeats what it got, as `rewrite` makes it."""
    world.adapter.open_session("s")
    messages = list(ASKED)
    for text in texts:
        end = world.tokenizer.end_of_calls if "<tool_call>" in text else world.tokenizer.eos_token
        status, answer = world.ask({"messages": messages, "tools": list(tools)}, (text, end))
        assert status == 200, answer
        message = answer["choices"][0]["message"]
        messages = messages + [rewrite(copy.deepcopy(message))]
        calls = message.get("tool_calls") or []
        messages += [{"role": "tool", "tool_call_id": each["id"], "content": "sunny"} for each in calls]
        if not calls:
            messages += [{"role": "user", "content": follow}]
    return world.finish()


TURNS = {
    "thought and call": "<think>\na thought\n</think>\n\n" + call(city="Paris"),
    "text and call": "I look at that.\n\n" + call(city="Paris"),
    "two calls": call(city="Paris") + "\n" + call(city="Rome"),
    "thought and answer": "<think>\na thought\n</think>\n\nan answer",
    "white space": "  an answer with a tail \n\n",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("turn", TURNS)
def test_turns_of_each_kind_are_one_sample_in_each_family_of_templates(monkeypatch, family, turn):
    world = World(monkeypatch, family, reasoning_parser="qwen3")
    samples = play(world, [TURNS[turn]] * 4)
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 1


def test_the_second_prompt_is_the_first_its_turn_and_what_the_template_puts_behind(monkeypatch):
    world = World(monkeypatch)
    (sample,) = play(world, ["I look." + call(city="x"), "done"])
    (first, ids, _), (second, _, _) = world.calls
    behind = world.tokenizer.decode(second[len(first) + len(ids) :])
    assert second[: len(first) + len(ids)] == first + ids
    assert behind == "\n<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n"


def test_text_behind_a_turn_is_encoded_as_it_is_behind_its_end(monkeypatch):
    world = World(monkeypatch)
    encode = type(world.tokenizer).__call__

    def with_space(self, text, add_special_tokens=True):  # before a text that does not begin with a control token
        return encode(self, text if text.startswith("<|") else " " + text)

    monkeypatch.setattr(type(world.tokenizer), "__call__", with_space)
    (sample,) = play(world, ["an answer", "an end"])
    assert "<|im_end|>\n<|im_start|>user" in world.tokenizer.decode(sample.tokens)


def strip_thoughts(message):
    message.pop("reasoning_content", None)
    return message


def rewrite_arguments(message):
    for each in message.get("tool_calls") or []:
        arguments = json.loads(each["function"]["arguments"])
        each["function"]["arguments"] = json.dumps({"none": None, **dict(reversed(arguments.items()))}, indent=2)
        each["id"] = "other"
    return message


def with_parts(message):
    message["content"] = [{"type": "text", "text": message["content"] or ""}]
    return message


def with_white_space(message):
    message["content"] = " \n" + (message["content"] or "").replace(" ", "  ") + "\n"
    return message


def with_thought_in_text(message):
    message["content"] = f"<think>{message.pop('reasoning_content', '')}</think>{message['content'] or ''}"
    return message


def without_text_next_to_calls(message):
    return {**message, "content": None} if message.get("tool_calls") else message


@pytest.mark.parametrize(
    "rewrite",
    [strip_thoughts, rewrite_arguments, with_parts, with_white_space, with_thought_in_text, without_text_next_to_calls],
)
def test_what_clients_change_in_a_turn_does_not_divide_its_history(monkeypatch, rewrite):
    world = World(monkeypatch, reasoning_parser="qwen3")
    turn = "<think>\na thought\n</think>\n\nsome text\n\n" + call(city="Paris", day="today")
    samples = play(world, [turn, turn, "an answer"], rewrite)
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 1


@pytest.mark.parametrize("keeps, num_samples", [(True, 1), (False, 2)])
def test_thoughts_of_earlier_questions_stay_or_go_as_the_adapter_is_made(monkeypatch, keeps, num_samples):
    world = World(monkeypatch, reasoning_parser="qwen3", keep_thoughts=keeps)
    thinks = "<think>\na thought\n</think>\n\n"
    # Two steps of one question, then another question: the template drops what was thought before that one.
    samples = play(world, [thinks + call(city="x"), thinks + "an answer", thinks + "another"], strip_thoughts)
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == num_samples
    assert world.tokenizer.decode(world.calls[2][0]).count("a thought") == (2 if keeps else 0)


def test_a_turn_that_came_back_in_other_words_is_a_sample_of_its_own(monkeypatch):
    world = World(monkeypatch)
    samples = play(world, ["an answer"] * 3, lambda message: {**message, "content": "other words"})
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 3
    assert "other words" in world.tokenizer.decode(samples[-1].tokens)


def test_tools_that_change_are_shown(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    messages = list(ASKED)
    for tools in ([TOOL], [TOOL, OTHER], [OTHER], [TOOL]):
        _, answer = world.ask({"messages": messages, "tools": tools}, ("an answer", "<|im_end|>"))
        shown = world.tokenizer.decode(world.calls[-1][0])
        assert ["look" in shown, "book" in shown] == [TOOL in tools, OTHER in tools]
        messages = messages + [answer["choices"][0]["message"], {"role": "user", "content": "on"}]
    assert_each_token_is_trained_once(world.finish(), world.calls)


def test_a_turn_that_was_cut_off_goes_on_behind_the_templates_own_end(monkeypatch):
    world = World(monkeypatch, "plain")
    world.adapter.open_session("s")
    messages = list(ASKED)
    for _ in range(3):
        _, answer = world.ask({"messages": messages}, ("it is \n", None))
        assert answer["choices"][0]["finish_reason"] == "length"
        messages = messages + [answer["choices"][0]["message"], {"role": "user", "content": "on"}]
    (sample,) = samples = world.finish()
    assert_each_token_is_trained_once(samples, world.calls)
    assert sample.metadata["truncated"] and sample.status.value == "truncated"
    assert "it is \n<|im_end|>\n<|im_start|>user\non" in world.tokenizer.decode(sample.tokens)


def test_the_token_that_ended_a_turn_is_no_text(monkeypatch):
    for family, (_, _, end, end_of_calls) in FAMILIES.items():
        world = World(monkeypatch, family)
        world.adapter.open_session("s")
        for mark in (end, end_of_calls):
            _, answer = world.ask({"messages": ASKED}, ("an answer", mark))
            assert answer["choices"][0]["message"]["content"] == "an answer"
        # A mark that the model spelled is text.
        _, answer = world.ask({"messages": ASKED}, ("the mark </s>" if family != "words" else "x", end))
        assert answer["choices"][0]["message"]["content"] == ("the mark </s>" if family != "words" else "x")


@pytest.mark.parametrize("with_it", [False, True])
def test_a_stop_string_is_no_text_and_its_tokens_stay(monkeypatch, with_it):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    messages = list(ASKED)
    for _ in range(3):
        _, answer = world.ask({"messages": messages, "stop": ["Observation:"]}, ("Thought: look\n", "Observation:"))
        message = answer["choices"][0]["message"]
        assert message["content"] == "Thought: look" and answer["choices"][0]["finish_reason"] == "stop"
        if with_it:  # some clients write it again
            message["content"] += "\nObservation:"
        messages = messages + [message, {"role": "user", "content": "sunny"}]
    samples = world.finish()
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 1 and "look\nObservation:<|im_end|>" in world.tokenizer.decode(samples[0].tokens)


def test_a_user_that_writes_marks_does_not_move_what_is_cut(monkeypatch):
    world = World(monkeypatch, "words")
    samples = play(world, ["an answer"] * 3, follow="is this </s> the end? </s>")
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 1 and world.tokenizer.decode(samples[0].tokens).count("is this </s> the end? </s>") == 2


def test_answers_that_are_equal_are_told_apart_by_the_ids_of_their_calls(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    answers = [world.ask({"messages": ASKED, "tools": [TOOL]}, (f"<think>{i}</think>" + call(), "<|im_end|>"))[1] for i in range(3)]
    for i in (1, 0, 2):
        message = answers[i]["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "r"}
        world.ask({"messages": ASKED + [message, result], "tools": [TOOL]}, ("an end", "<|im_end|>"))
        assert f"<think>{i}</think>" in world.tokenizer.decode(world.calls[-1][0])
    samples = world.finish()
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 3


def test_agents_that_sample_the_same_have_a_sample_each(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    talks = [list(ASKED) for _ in range(4)]
    for turn in range(3):
        for talk in talks if turn != 1 else reversed(talks):
            _, answer = world.ask({"messages": talk, "tools": [TOOL]}, (call(city="Paris"), "<|im_end|>"))
            message = answer["choices"][0]["message"]
            talk += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny"}]
    samples = world.finish()
    assert_each_token_is_trained_once(samples, world.calls)
    assert len(samples) == 4


def test_a_branch_has_what_it_shares_as_context(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    _, answer = world.ask({"messages": ASKED}, ("an answer", "<|im_end|>"))
    said = answer["choices"][0]["message"]
    for text in ("left", "right", "back"):
        world.ask({"messages": ASKED + [said, {"role": "user", "content": text}]}, (text, "<|im_end|>"))
    samples = world.finish()
    assert_each_token_is_trained_once(samples, world.calls)
    first = len(world.calls[0][1])
    assert len(samples) == 3 and [sum(sample.loss_mask[:first]) for sample in samples] == [first, 0, 0]


def test_the_function_that_waits_is_told_of_every_turn(monkeypatch):
    world = World(monkeypatch)
    noted = []

    def finish():
        turns.watch(noted)  # as the host of a generate function does
        return world.finish()

    world.adapter.open_session("s")
    messages = list(ASKED)
    for text in ("one", "two"):
        _, answer = world.ask({"messages": messages}, (text, "<|im_end|>"))
        messages = messages + [answer["choices"][0]["message"], {"role": "user", "content": "on"}]
    world.is_gone = True
    world.ask({"messages": messages}, ("never read", "<|im_end|>"))
    samples = contextvars.copy_context().run(finish)
    rows = [(list(each.tokens), len(each.tokens) - each.response_length, each.loss_mask) for each in samples]
    assert [ids for ids, _, _ in noted] == [ids for _, ids, _ in world.calls]
    assert turns.untrained_tokens(rows, noted) == len(world.calls[2][1])  # the answer that was never read
    (sample,) = samples
    runs = turns.version_runs(sample.tokens[-sample.response_length :], noted, prompt=sample.tokens[: -sample.response_length])
    lengths = [len(world.calls[0][1]), len(world.calls[1][1])]
    assert [run for run in runs if run[0] == 3] == [[3, length] for length in lengths]


class Client:
    """A client that rewrites, branches, compacts, changes its tools; it follows no rule but the protocol."""

    def __init__(self, world, seed):
        self.world, self.random = world, random.Random(seed)
        self.talks = [list(ASKED)]

    def text(self):
        words = [self.random.choice(["a", "an answer", "x\n\ny", " ", "42", "look"]) for _ in range(self.random.randint(0, 3))]
        return " ".join(words)

    def turn(self):
        parts = [f"<think>\n{self.text()}\n</think>\n\n"] if self.random.random() < 0.5 else []
        parts.append(self.text())
        calls = [call(n=i, city=self.text()) for i in range(self.random.choice([0, 0, 1, 2]))]
        text = "".join(parts) + "\n".join(calls)
        tokenizer = self.world.tokenizer
        if self.random.random() < 0.15:
            return text[: self.random.randint(0, len(text))] or "a", None
        return text, tokenizer.end_of_calls if calls else tokenizer.eos_token

    def rewritten(self, message):
        message = copy.deepcopy(message)
        for change in (strip_thoughts, rewrite_arguments, with_white_space, with_parts, without_text_next_to_calls):
            if self.random.random() < 0.2 and not isinstance(message.get("content"), list):
                message = change(message)
        if self.random.random() < 0.05:
            message["content"] = "somebody's own words"
        if self.random.random() < 0.1 and message.get("tool_calls") and isinstance(message.get("content"), str):
            calls = message.pop("tool_calls")
            return [message, {"role": "assistant", "content": None, "tool_calls": calls}]
        return [message]

    def step(self):
        talk = self.random.choice(self.talks)
        sent = []
        for message in talk:
            sent += self.rewritten(message) if message["role"] == "assistant" else [message]
        if self.random.random() < 0.05 and len(talk) > 4:
            sent = sent[:2] + [{"role": "user", "content": "what was before is forgotten"}]
        tools = [TOOL] if self.random.random() < 0.9 else [TOOL, OTHER]
        status, answer = self.world.ask({"messages": sent, "tools": tools}, self.turn())
        assert status == 200, answer
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        heard = [{"role": "tool", "tool_call_id": each["id"], "content": self.text()} for each in calls]
        after = [message, *(heard or [{"role": "user", "content": self.text() + "?"}])]
        if self.random.random() < 0.2:
            self.talks.append(talk + after)
        else:
            talk += after


@pytest.mark.parametrize("family", FAMILIES)
def test_no_client_makes_a_sampled_token_untrained_or_trained_twice(monkeypatch, family):
    for seed in range(20):
        world = World(monkeypatch, family, reasoning_parser="qwen3" if seed % 2 else None)
        world.adapter.open_session("s")
        client = Client(world, seed)
        for _ in range(12):
            client.step()
        assert_each_token_is_trained_once(world.finish(), world.calls)
