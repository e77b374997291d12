"""`allowed_token_ids` and `bad_words` over the routes of `slime serve`, with an untrained model.

    python -m pytest tests/http/test_token_lists.py
"""

import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from server_process import ROOT, Server

SCRATCH = tempfile.TemporaryDirectory()
ASK = [{"role": "user", "content": "hi"}]


def setUpModule():
    global SERVER
    folder = Path(SCRATCH.name) / "model"
    subprocess.run([sys.executable, ROOT / "tools/tiny_model.py", folder], check=True)
    SERVER = Server(str(folder), "--served-model-name", "m", "--grammar-backend", "none")


def tearDownModule():
    SERVER.stop()
    SCRATCH.cleanup()


class Test(unittest.TestCase):
    def post(self, path, body, status=200):
        got, answer = SERVER.request("POST", path, body)
        self.assertEqual(got, status, answer)
        return answer

    def ids_of(self, text):
        return self.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    def test_each_route_draws_of_the_list_alone(self):
        allowed = [self.ids_of("a")[0], self.ids_of("b")[0]]
        lists = {"allowed_token_ids": allowed}
        drawn = self.post("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 12, **lists}})
        self.assertLessEqual(set(drawn["output_ids"]), set(allowed))
        self.assertEqual(drawn["meta_info"]["num_constrained_tokens"], 12)
        texts = [
            self.post("/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 12, **lists})["choices"][0]["text"],
            self.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 12, **lists})["choices"][0]["message"]["content"],
            self.post("/v1/messages", {"messages": ASK, "max_tokens": 12, **lists})["content"][0]["text"],
            self.post("/v1/responses", {"input": "x", "max_output_tokens": 12, **lists})["output"][-1]["content"][0]["text"],
        ]
        for text in texts:
            self.assertLessEqual(set(text), set("ab"), text)
        params = {"max_tokens": 12, "logprobs": 1, **lists}
        choice = self.post("/inference/v1/generate", {"token_ids": [1], "sampling_params": params})["choices"][0]
        self.assertLessEqual(set(choice["token_ids"]), set(allowed))

    def test_log_probs_are_among_the_list_and_free_ones_among_all(self):
        allowed = [self.ids_of("a")[0], self.ids_of("b")[0]]
        params = {"max_new_tokens": 6, "temperature": 1.0, "allowed_token_ids": allowed}
        asked = {"text": "x", "return_logprob": True, "return_free_logprobs": True, "top_logprobs_num": 2, "sampling_params": params}
        meta = self.post("/generate", asked)["meta_info"]
        for best in meta["output_top_logprobs"]:
            self.assertAlmostEqual(sum(math.exp(entry[0]) for entry in best), 1, places=4)
        for bound, free in zip(meta["output_token_logprobs"], meta["output_token_free_logprobs"], strict=True):
            self.assertLess(free[0] if isinstance(free, list) else free, bound[0] - 1)

    def test_a_banned_word_does_not_come(self):
        first = self.post("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 4, "temperature": 0}})
        word = first["text"].strip()
        self.assertTrue(word)
        params = {"max_new_tokens": 4, "temperature": 0, "bad_words": [word[0]]}
        other = self.post("/generate", {"text": "x", "sampling_params": params})
        self.assertNotIn(self.ids_of(word[0])[0], other["output_ids"])

    def test_lists_that_leave_nothing_are_told(self):
        for params, part in [
            ({"allowed_token_ids": []}, "allowed_token_ids must not be empty"),
            ({"allowed_token_ids": [10**6]}, "allowed_token_ids"),
            ({"bad_words": ["a", 7]}, "bad_words"),
            ({"allowed_token_ids": self.ids_of("a"), "bad_words": ["a"]}, "leave no token"),
        ]:
            answer = self.post("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 3, **params}}, 400)
            self.assertIn(part, str(answer))

    def test_a_grammar_is_refused_where_there_are_none(self):
        answer = self.post("/generate", {"text": "x", "sampling_params": {"regex": "a"}}, 400)
        self.assertIn("regex asks for constrained decoding", str(answer))


if __name__ == "__main__":
    unittest.main()
