"""Sessions of the running `slime serve`, and what `slime.agent.server_sessions` makes of them.

    python -m pytest tests/http/test_sessions.py        or        python tests/http/test_sessions.py
"""

import asyncio
import sys
import tempfile
import unittest
from pathlib import Path

from server_process import ROOT, Server
from test_serve import make_model

sys.path.insert(0, str(ROOT / "python"))

from slime.agent.server_sessions import ServerSessions  # noqa: E402
from slime.utils.http_utils import HttpStatusError  # noqa: E402
from slime.utils.types import Sample  # noqa: E402

MODEL = None  # directory, set by setUpModule
SCRATCH = tempfile.TemporaryDirectory()


def setUpModule():
    global MODEL
    MODEL = make_model(Path(SCRATCH.name))


def tearDownModule():
    SCRATCH.cleanup()


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(str(MODEL), "--require-sessions", "--max-sessions", "3", "--weight-version", "4")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def ask(self, name, messages, **fields):
        body = {"messages": messages, "ignore_eos": True, **fields}
        return self.server.request("POST", f"/sessions/{name}/v1/chat/completions", body)

    def test_turns_become_samples_with_their_own_tokens_and_log_probs(self):
        sessions = ServerSessions(self.server.url)
        defaults = {"max_new_tokens": 6, "temperature": 1.0, "stop": None, "skip_special_tokens": False}
        name = asyncio.run(sessions.open("a-1", sampling_defaults=defaults))
        messages = [{"role": "user", "content": "hello"}]
        for _ in range(3):
            status, answer = self.ask(name, messages, return_token_ids=True)
            self.assertEqual(status, 200, answer)
            messages = messages + [answer["choices"][0]["message"], {"role": "user", "content": "and then?"}]
        status, other = self.ask(name, [{"role": "user", "content": "other"}])
        self.assertEqual(status, 200)
        turns = asyncio.run(sessions.recorded(name))
        self.assertEqual([turn["parent"] for turn in turns], [None, 1, 2, None])
        samples = asyncio.run(sessions.finish(name, base_sample=Sample(index=5, prompt="p"), reward=2.0))
        self.assertEqual([sample.rollout_id for sample in samples], [5, 5])
        whole, alone = samples
        trained = [token for token, mask in zip(whole.tokens[-whole.response_length:], whole.loss_mask) if mask]
        self.assertEqual(trained, [token for turn in turns[:3] for token in turn["output_ids"]])
        log_probs = [value for value, mask in zip(whole.rollout_log_probs, whole.loss_mask) if mask]
        self.assertEqual(log_probs, [value for turn in turns[:3] for value in turn["output_log_probs"]])
        self.assertEqual(whole.tokens[:turns[2]["num_prompt_tokens"]], answer["prompt_token_ids"])
        self.assertEqual(sum(alone.loss_mask), 6)
        self.assertEqual(alone.status, Sample.Status.TRUNCATED)
        self.assertEqual(turns[0]["weight_versions"], [{"start": 0, "end": 6, "version": "4"}])
        self.assertEqual(self.server.request("GET", f"/sessions/{name}")[0], 404)

    def test_a_session_may_have_parsers_of_its_own(self):
        async def open_both():
            sessions = ServerSessions(self.server.url)
            await sessions.drop(await sessions.open(tool_parser="hermes", reasoning_parser="none"))
            try:
                await sessions.open(tool_parser="nobodys")
            except HttpStatusError as error:
                return error.status, error.text

        status, text = asyncio.run(open_both())
        self.assertEqual(status, 400)
        self.assertIn("nobodys", text)

    def test_a_chat_without_a_session_is_refused(self):
        body = {"messages": [{"role": "user", "content": "x"}]}
        self.assertEqual(self.server.request("POST", "/v1/chat/completions", body)[0], 401)
        self.assertEqual(self.ask("nobody", body["messages"])[0], 401)

    def test_no_more_sessions_are_open_than_may_be(self):
        async def fill():
            sessions = ServerSessions(self.server.url)
            names = [await sessions.open() for _ in range(3)]
            try:
                await sessions.open()
            except HttpStatusError as error:
                return error.status
            finally:
                for name in names:
                    await sessions.drop(name)
                await sessions.drop(names[0])  # is not there any more

        self.assertEqual(asyncio.run(fill()), 429)


if __name__ == "__main__":
    unittest.main()
