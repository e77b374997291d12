"""A conversation is one sample: what the engine drew as it drew it, and behind it what the others said."""

import asyncio

import pytest
from agent_world import CharTokenizer
from slime.agent.conversation import Conversation
from slime.rollout.sglang_rollout import GenerateState
from slime.utils.misc import SingletonMeta
from slime.utils.types import Sample
from stub_engine import StubEngine
from test_adapters import END, Tokenizer, drawn
from test_stock_rollout import args_for

PARAMS = {"max_new_tokens": 8}
ASKED = [{"role": "user", "content": "q"}]


@pytest.fixture(autouse=True)
def fresh_state():
    SingletonMeta._instances.clear()
    yield
    SingletonMeta._instances.clear()


def begin(engine, messages=ASKED, tokenizer=None, **more):
    args = args_for(engine, **more)
    GenerateState(args).tokenizer = tokenizer or Tokenizer()
    return Conversation(args, Sample(index=3), messages)


def turns_of(*texts, finish="stop"):
    return [(drawn(text), text, finish) for text in texts]


def test_what_was_drawn_is_not_encoded_again():
    with StubEngine(turns_of("an answer" + END, "a" + END)) as engine:
        talk = begin(engine)

        async def talk_twice():
            first = await talk.say(PARAMS)
            talk.hear("and?", role="tool")
            return first, await talk.say(PARAMS)

        assert asyncio.run(talk_twice()) == ("an answer", "a") and talk.num_turns == 2
        sample, prompt = talk.sample, Tokenizer()(f"user:q{END}\nassistant:")["input_ids"]
        heard = Tokenizer()(f"\ntool:and?{END}\nassistant:")["input_ids"]
        first, second = drawn("an answer" + END), drawn("a" + END)
        assert 2000 in first and sample.tokens == prompt + first + heard + second
        assert sample.loss_mask == [1] * len(first) + [0] * len(heard) + [1] * len(second)
        assert [bool(each) for each in sample.rollout_log_probs] == [bool(each) for each in sample.loss_mask]
        assert engine.requests[1]["input_ids"] == prompt + first + heard
        assert sample.response == f"an answer{END}\ntool:and?{END}\nassistant:a{END}"
        assert sample.status is Sample.Status.COMPLETED and sample.weight_versions == ["4", "4"]


@pytest.mark.parametrize("finish, status", [("length", Sample.Status.TRUNCATED), ("abort", Sample.Status.ABORTED)])
def test_a_message_that_did_not_end_is_none(finish, status):
    with StubEngine(turns_of("x", finish=finish)) as engine:
        talk = begin(engine)
        assert asyncio.run(talk.say(PARAMS)) is None
        assert talk.sample.status is status and talk.num_turns == 0 and talk.messages == ASKED


def test_a_context_that_is_full_asks_no_more():
    with StubEngine(turns_of("b" + END)) as engine:
        room = len(f"user:q\nassistant:") + 1 + 3  # the end of a turn is one token
        talk = begin(engine, rollout_max_context_len=room)

        async def talk_on():
            first = await talk.say(PARAMS)
            talk.hear("a long message that no longer fits")
            return first, await talk.say(PARAMS)

        assert asyncio.run(talk_on()) == ("b", None)
        assert engine.requests[0]["sampling_params"]["max_new_tokens"] == 3 and len(engine.requests) == 1
        assert talk.sample.status is Sample.Status.TRUNCATED
        assert talk.sample.response == "b" + END  # what did not fit is not there


class Forgetful(Tokenizer):
    """Shows no message of the assistant but the last one, as templates that drop reasoning do."""

    def apply_chat_template(self, messages, **options):
        last = messages[-1]
        return super().apply_chat_template([each for each in messages if each["role"] != "assistant" or each is last], **options)


def test_a_template_that_rewrites_what_was_drawn_is_an_error():
    with StubEngine(turns_of("b" + END, "c" + END)) as engine:
        talk = begin(engine, tokenizer=Forgetful())

        async def talk_twice():
            await talk.say(PARAMS)
            talk.hear("and?")
            await talk.say(PARAMS)

        with pytest.raises(ValueError, match="otherwise than it was drawn"):
            asyncio.run(talk_twice())


def test_thoughts_that_a_template_would_drop_stay_as_they_were_sampled():
    tokenizer = CharTokenizer("thinking")
    turns = [tokenizer.sampled(f"<think>\na thought\n</think>\n\n{text}<|im_end|>") for text in ("one", "two")]
    with StubEngine([(ids, "", "stop") for ids in turns]) as engine:
        talk = begin(engine, tokenizer=tokenizer)

        async def talk_twice():
            await talk.say(PARAMS)
            talk.hear("and?")
            await talk.say(PARAMS)

        asyncio.run(talk_twice())
        first = engine.requests[0]["input_ids"]
        heard = tokenizer("\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
        assert engine.requests[1]["input_ids"] == first + turns[0] + heard
        assert talk.sample.loss_mask == [1] * len(turns[0]) + [0] * len(heard) + [1] * len(turns[1])
