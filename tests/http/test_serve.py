"""The running `slime serve` as clients see it: SGLang's routes over plain urllib, OpenAI's with the official client.

    python -m pytest tests/http        or        python tests/http/test_serve.py

$SLIME names another program than build/release/slime, $SLIME_TEST_MODEL a model directory. Without the latter a tiny random
llama is made from tests/fixtures (plain Python, no packages). Tests that need `openai` are skipped, and say so, where it is
not installed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from server_process import PROGRAM, ROOT, Server

try:
    import openai
except ImportError:
    openai = None
    print("NOTE: the `openai` package is not installed: its tests are SKIPPED (pip install openai)", file=sys.stderr)

MODEL = None  # directory, set by setUpModule
SCRATCH = tempfile.TemporaryDirectory()
LONG = {"max_new_tokens": 1_000_000, "ignore_eos": True}


def byte_alphabet() -> list[str]:
    """The character that byte-level BPE writes for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in plain}, 256
    for byte in range(256):
        if byte not in table:
            table[byte], extra = chr(extra), extra + 1
    return [table[byte] for byte in range(256)]


def make_model(directory: Path) -> Path:
    """The llama fixture's weights with a byte-level tokenizer cut to its vocabulary and a small chat template."""
    model = directory / "model"
    shutil.copytree(ROOT / "tests/fixtures/models/llama", model)
    config = json.loads((model / "config.json").read_text())
    config["max_position_embeddings"] = 65536  # room for requests that are still running when they are aborted
    (model / "config.json").write_text(json.dumps(config))
    size = config["vocab_size"]
    vocab = {c: i for i, c in enumerate(byte_alphabet()[: size - 2])}
    special = {"<|im_start|>": size - 2, "<|im_end|>": size - 1}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    (model / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, **flags} for t, i in special.items()],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []},
    }))
    (model / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
        "chat_template": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
                         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    }))
    return model


def setUpModule():
    global MODEL
    given = os.environ.get("SLIME_TEST_MODEL")
    MODEL = Path(given).resolve() if given else make_model(Path(SCRATCH.name))


def tearDownModule():
    SCRATCH.cleanup()


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(str(MODEL))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def generate(self, **fields):
        status, reply = self.server.post("/generate", {"input_ids": [5, 6, 7], **fields})
        self.assertEqual(status, 200, reply)
        return reply

    def wait_for_load(self, running: int):
        for _ in range(500):
            load = self.server.get("/v1/loads?include=core")[1]["loads"][0]
            if load["num_running_reqs"] + load["num_waiting_reqs"] == running:
                return
            time.sleep(0.02)
        self.fail(f"the load did not become {running}: {load}")


class NativeRoutes(ServeTest):
    def test_greedy_generation_repeats_and_has_log_probs(self):
        params = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True, "no_stop_trim": True}
        first = self.generate(sampling_params=params, return_logprob=True)
        second = self.generate(sampling_params=params, return_logprob=True)
        self.assertEqual(first["output_ids"], second["output_ids"])
        meta = first["meta_info"]
        self.assertEqual(meta["prompt_tokens"], 3)
        self.assertEqual(meta["completion_tokens"], 8)
        self.assertEqual(meta["finish_reason"], {"type": "length", "length": 8})
        self.assertEqual([t[1] for t in meta["output_token_logprobs"]], first["output_ids"])
        self.assertTrue(all(t[0] <= 0 and t[2] is None for t in meta["output_token_logprobs"]))

    def test_scoring_a_prompt_agrees_with_generating_it(self):
        params = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
        made = self.generate(sampling_params=params, return_logprob=True)
        scored = self.generate(input_ids=[5, 6, 7, *made["output_ids"]], return_logprob=True, logprob_start_len=0,
                               sampling_params={"temperature": 0, "max_new_tokens": 0})
        self.assertEqual(scored["output_ids"], [])
        self.assertIsNone(scored["meta_info"]["input_token_logprobs"][0][0])
        for made_token, scored_token in zip(made["meta_info"]["output_token_logprobs"],
                                            scored["meta_info"]["input_token_logprobs"][3:]):
            self.assertEqual(made_token[1], scored_token[1])
            self.assertAlmostEqual(made_token[0], scored_token[0], delta=0.05)

    def test_a_seed_makes_samples_repeat(self):
        params = {"max_new_tokens": 8, "sampling_seed": 3, "n": 3, "ignore_eos": True}
        first, second = self.generate(sampling_params=params), self.generate(sampling_params=params)
        self.assertEqual([r["output_ids"] for r in first], [r["output_ids"] for r in second])
        self.assertGreater(len({tuple(r["output_ids"]) for r in first}), 1)

    def test_a_stream_repeats_everything_and_ends_like_the_whole_answer(self):
        body = {"input_ids": [9, 8], "return_logprob": True,
                "sampling_params": {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}}
        frames = list(self.server.frames("/generate", {**body, "stream": True}))
        lengths = [len(f["output_ids"]) for f in frames]
        self.assertEqual(lengths, sorted(lengths))
        self.assertTrue(all(f["meta_info"]["finish_reason"] is None for f in frames[:-1]))
        whole = self.server.post("/generate", body)[1]
        for key in ("text", "output_ids"):
            self.assertEqual(frames[-1][key], whole[key])

    def test_abort_by_rid_keeps_what_was_made(self):
        replies = []
        thread = threading.Thread(target=lambda: replies.append(self.generate(rid="x1", sampling_params=LONG)))
        thread.start()
        self.wait_for_load(1)
        self.assertEqual(self.server.post("/abort_request", {"rid": "x1"})[0], 200)
        thread.join(timeout=60)
        self.assertEqual(replies[0]["meta_info"]["finish_reason"]["type"], "abort")
        self.assertEqual(len(replies[0]["output_ids"]), replies[0]["meta_info"]["completion_tokens"])
        self.wait_for_load(0)

    def test_abort_by_the_base_rid_ends_all_samples_of_a_request(self):
        replies = []
        thread = threading.Thread(target=lambda: replies.append(
            self.generate(input_ids=[[5, 6], [7, 8]], rid="base", sampling_params=LONG)))
        thread.start()
        self.wait_for_load(2)
        self.assertEqual(self.server.post("/abort_request", {"rid": "base"})[0], 200)
        thread.join(timeout=60)
        self.assertEqual([r["meta_info"]["id"] for r in replies[0]], ["base_0", "base_1"])
        self.assertEqual({r["meta_info"]["finish_reason"]["type"] for r in replies[0]}, {"abort"})

    def test_abort_all(self):
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(self.generate(sampling_params=LONG))) for _ in range(4)]
        for thread in threads:
            thread.start()
        self.wait_for_load(4)
        self.server.post("/abort_request", {"abort_all": True})
        for thread in threads:
            thread.join(timeout=120)
        self.assertEqual(len(replies), 4)
        self.wait_for_load(0)

    def test_pause_holds_requests_until_continue(self):
        self.assertEqual(self.server.post("/pause_generation", {"mode": "in_place"})[1]["status"], "ok")
        replies = []
        thread = threading.Thread(target=lambda: replies.append(self.generate(sampling_params={"max_new_tokens": 2})))
        thread.start()
        time.sleep(0.3)
        self.assertEqual(replies, [])
        self.assertEqual(self.server.get("/health_generate")[0], 200)
        self.assertEqual(self.server.post("/continue_generation", {})[1]["status"], "ok")
        thread.join(timeout=60)
        self.assertEqual(len(replies), 1)

    def test_new_weights_get_a_version(self):
        before = self.generate(sampling_params={"temperature": 0, "max_new_tokens": 4, "ignore_eos": True})
        status, reply = self.server.post("/update_weights_from_disk", {"model_path": str(MODEL), "weight_version": "41"})
        self.assertEqual((status, reply["success"]), (200, True), reply)
        self.assertEqual(self.server.get("/get_weight_version")[1], {"weight_version": "41"})
        after = self.generate(sampling_params={"temperature": 0, "max_new_tokens": 4, "ignore_eos": True})
        self.assertEqual(after["meta_info"]["weight_version"], "41")
        self.assertEqual(after["meta_info"]["cached_tokens"], 0)  # keys of old weights serve nothing
        self.assertEqual(before["output_ids"], after["output_ids"])
        self.assertEqual(self.server.post("/update_weights_from_disk", {"model_path": "/etc"})[0], 400)

    def test_weights_are_compared_with_a_snapshot_and_brought_again(self):
        check = lambda action: self.server.post("/weights_checker", {"action": action})
        status, first = check("snapshot")
        self.assertEqual((status, first["success"]), (200, True), first)
        self.assertEqual(check("compare")[0], 200)
        self.assertEqual(check("reset_tensors")[0], 200)
        status, reply = check("compare")
        self.assertEqual((status, reply["success"]), (400, False))
        self.assertIn("differ from the snapshot: ", reply["message"])
        self.assertEqual(self.server.post("/update_weights_from_disk", {"model_path": str(MODEL)})[0], 200)
        self.assertEqual(check("compare")[0], 200)
        self.assertEqual(check("checksum")[1]["per_engine_checksum"], first["per_engine_checksum"])

    def test_a_refused_update_neither_aborts_nor_pauses(self):
        other = MODEL.parent / "no_model"
        other.mkdir(exist_ok=True)
        self.addCleanup(other.rmdir)
        replies = []
        thread = threading.Thread(target=lambda: replies.append(self.generate(sampling_params={**LONG, "max_new_tokens": 6000})))
        thread.start()
        self.wait_for_load(1)
        status, reply = self.server.post("/update_weights_from_disk", {"model_path": str(other), "abort_all_requests": True,
                                                                       "keep_pause": True})
        self.assertEqual((status, reply["success"]), (400, False), reply)
        thread.join(timeout=120)
        self.assertEqual(replies[0]["meta_info"]["finish_reason"], {"type": "length", "length": 6000})

    def test_health_is_good_right_after_a_long_pause(self):
        with Server(str(MODEL), "--watchdog-timeout", "1") as server:
            server.post("/pause_generation", {"mode": "in_place"})
            thread = threading.Thread(target=lambda: server.post(
                "/generate", {"input_ids": [5], "sampling_params": {**LONG, "max_new_tokens": 200}}))
            thread.start()
            time.sleep(2.5)
            self.assertEqual(server.get("/health")[0], 200)
            server.post("/continue_generation", {})
            statuses = {server.get("/health")[0] for _ in range(20)}
            self.assertEqual(statuses, {200})
            thread.join(timeout=60)

    def test_a_huge_text_is_refused_by_its_size(self):
        status, reply = self.server.post("/generate", {"text": "x" * 60_000_000})
        self.assertEqual(status, 400)
        self.assertIn("60000000 bytes", reply["error"]["message"])

    def test_flush_health_and_information(self):
        self.wait_for_load(0)
        for method in ("GET", "POST"):
            self.assertEqual(self.server.request(method, "/flush_cache")[0], 200)
        for path in ("/health", "/health_generate", "/metrics"):
            self.assertEqual(self.server.request("GET", path, headers={"Authorization": "Bearer None"})[0], 200, path)
        self.assertEqual(self.server.get("/get_model_info")[1]["is_generation"], True)
        self.assertEqual(self.server.get("/server_info")[1]["tp_size"], 1)

    def test_bad_requests_name_the_field(self):
        for body, name in (
            ({"sampling_params": {}}, "text"),
            ({"input_ids": [-1]}, "input_ids"),
            ({"input_ids": [1], "sampling_params": {"top_p": 2}}, "top_p"),
            ({"input_ids": [1], "sampling_params": {"n": 0}}, "n "),
            ({"input_ids": [1] * 1_000_000}, "prompt"),
        ):
            status, reply = self.server.post("/generate", body)
            self.assertEqual(status, 400, reply)
            self.assertIn(name, reply["error"]["message"])
        self.assertEqual(self.server.get("/nowhere")[0], 404)
        self.assertEqual(self.server.get("/generate")[0], 405)


@unittest.skipIf(openai is None, "openai is not installed")
class OpenAiRoutes(ServeTest):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="None", max_retries=0)

    def test_models(self):
        self.assertEqual(len(self.client.models.list().data), 1)

    def test_chat(self):
        reply = self.client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hi"}], max_tokens=6, n=2, logprobs=True,
            top_logprobs=2, seed=1, extra_body={"ignore_eos": True, "chat_template_kwargs": {"enable_thinking": False}})
        self.assertEqual(len(reply.choices), 2)
        self.assertEqual(reply.choices[0].finish_reason, "length")
        self.assertEqual(len(reply.choices[0].logprobs.content), 6)
        self.assertEqual(len(reply.choices[0].logprobs.content[0].top_logprobs), 2)
        self.assertEqual(reply.usage.completion_tokens, 12)

    def test_chat_stream_equals_the_whole_reply(self):
        call = dict(model="default", messages=[{"role": "user", "content": "Hi"}], max_tokens=12, temperature=0,
                    extra_body={"ignore_eos": True})
        whole = self.client.chat.completions.create(**call)
        text, usage = "", None
        for chunk in self.client.chat.completions.create(**call, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, 12)

    def test_completions_of_text_and_tokens(self):
        reply = self.client.completions.create(model="default", prompt=["a", "b"], max_tokens=3, echo=True, logprobs=1,
                                               extra_body={"ignore_eos": True})
        self.assertEqual([c.text[0] for c in reply.choices], ["a", "b"])
        self.assertIsNone(reply.choices[0].logprobs.token_logprobs[0])
        reply = self.client.completions.create(model="default", prompt=[5, 6], max_tokens=3, extra_body={"ignore_eos": True})
        self.assertEqual(reply.usage.prompt_tokens, 2)

    def test_a_cancelled_stream_stops_the_engine(self):
        stream = self.client.completions.create(model="default", prompt="a", max_tokens=1_000_000, stream=True,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.wait_for_load(0)

    def test_errors_are_bad_request_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="default", messages=[{"role": "user", "content": "x"}], temperature=-1)
        self.assertIn("temperature", str(caught.exception))


class Process(unittest.TestCase):
    def test_keys_guard_the_routes(self):
        with Server(str(MODEL), env={"SLIME_API_KEY": "k1", "SLIME_ADMIN_API_KEY": "k2"}) as server:
            def status(method, path, key=None):
                return server.request(method, path, {} if method == "POST" else None,
                                      {"Authorization": f"Bearer {key}"} if key else {})[0]

            self.assertEqual(status("GET", "/health"), 200)
            self.assertEqual(status("GET", "/v1/models"), 401)
            self.assertEqual(status("GET", "/v1/models", "k2"), 401)
            self.assertEqual(status("GET", "/v1/models", "k1"), 200)
            self.assertEqual(status("POST", "/continue_generation", "k1"), 401)
            self.assertEqual(status("POST", "/continue_generation", "k2"), 200)

    def test_ids_in_and_out_need_no_tokenizer(self):
        with tempfile.TemporaryDirectory() as folder:
            bare = Path(folder) / "bare"
            shutil.copytree(MODEL, bare)
            for file in ("tokenizer.json", "tokenizer_config.json"):
                (bare / file).unlink(missing_ok=True)
            params = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
            with Server(str(MODEL)) as server:
                expected = server.post("/generate", {"input_ids": [5, 6], "sampling_params": params})[1]
            with Server(str(bare)) as server:
                status, reply = server.post("/generate", {"input_ids": [5, 6], "sampling_params": params})
                self.assertEqual(status, 200, reply)
                self.assertEqual(reply["output_ids"], expected["output_ids"])
                self.assertNotIn("text", reply)
                status, reply = server.post("/generate", {"text": "x"})
                self.assertEqual(status, 400)
                self.assertIn("tokenizer", reply["error"]["message"])
            lines = json.dumps({"ids": [5, 6], "sampling_params": params}) + "\n"
            done = subprocess.run([str(PROGRAM), "generate", "--model", str(bare), "--device", "cpu"], input=lines, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["output_ids"], expected["output_ids"])

    def test_a_parser_of_an_unknown_name_is_refused_before_the_model_is_read(self):
        for flag in ("--tool-call-parser", "--reasoning-parser"):
            command = [str(PROGRAM), "serve", "--model-path", str(MODEL), "--device", "cpu", "--skip-tokenizer-init", flag, "hermez"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(flag, done.stderr)
            self.assertIn('"hermez"', done.stderr)

    def test_lines_of_a_file_that_are_no_requests_are_told_at_once_and_nothing_is_generated(self):
        good = {"ids": [5, 6], "sampling_params": {"temperature": 0, "max_new_tokens": 2}}
        bad = [
            ({"idss": [5]}, "line 2: idss is unknown; did you mean ids?"),
            ({"message": [{"role": "user", "content": "x"}]}, "line 3: message is unknown; did you mean messages?"),
            ({"ids": ["5"]}, "line 4: input_ids must be a list of token ids"),
            ({"ids": [5], "sampling_params": {"temprature": 0, "top_p": 7}},
             "line 5: sampling_params.temprature is unknown; did you mean temperature?"),
            ({"ids": [5], "text": "x"}, "line 6: text, input_ids, ids and messages are several prompts"),
            ({"ids": [5], "options": {}}, "line 7: options are those of messages"),
            ({"messages": "hello"}, "line 8: messages must be a list"),
        ]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prompts.jsonl"
            file.write_text("".join(json.dumps(line) + "\n" for line in [good] + [line for line, _ in bad]) + "{not json\n")
            done = subprocess.run([str(PROGRAM), "generate", "--model", str(MODEL), "--device", "cpu", str(file)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stdout, "")
            for _, message in bad:
                self.assertIn(f"prompts.jsonl, {message}", done.stderr)
            self.assertIn("prompts.jsonl, line 5: sampling_params.top_p must be", done.stderr)
            self.assertIn("prompts.jsonl, line 9: ", done.stderr)
            file.write_text(json.dumps(bad[0][0]) + ("\n" + json.dumps(bad[0][0])) * 999)
            done = subprocess.run([str(PROGRAM), "generate", "--model", str(MODEL), "--device", "cpu", str(file)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertLess(len(done.stderr.splitlines()), 50)
            self.assertIn("more lines are no requests", done.stderr)
        # What can be read once only: the answers of the lines before it are printed.
        lines = json.dumps(good) + "\n" + json.dumps(bad[0][0]) + "\n"
        done = subprocess.run([str(PROGRAM), "generate", "--model", str(MODEL), "--device", "cpu"], input=lines, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertIn("standard input, line 2: idss is unknown", done.stderr)

    def test_generate_draws_as_the_generation_config_says_unless_told_otherwise(self):
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            shutil.copytree(MODEL, model)
            (model / "generation_config.json").write_text(json.dumps({"top_k": 1, "temperature": 0.9}))  # the likeliest token
            line = {"ids": [5, 6], "sampling_params": {"max_new_tokens": 12, "ignore_eos": True}}

            def answers(*flags, line=line):
                done = subprocess.run([str(PROGRAM), "generate", "--model", str(model), "--device", "cpu", *flags], input=json.dumps(line) + "\n",
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                return json.loads(done.stdout)["output_ids"]

            greedy = answers(line={**line, "sampling_params": {**line["sampling_params"], "temperature": 0}})
            self.assertEqual(answers(), greedy)
            self.assertNotEqual(answers("--sampling-defaults", "openai"), greedy)

    def test_numbers_that_no_machine_has_are_refused_with_what_would_work(self):
        for words in (["--kv-cache-gib", "nan"], ["--kv-cache-gib", "inf"], ["--kv-cache-gib", "-1"], ["--kv-cache-gib", "1e300"],
                      ["--http-threads", "0"], ["--watchdog-timeout", "-5"], ["--max-running-requests", "99999999999999999999"]):
            done = subprocess.run([str(PROGRAM), "serve", "--model", str(MODEL), *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(words[0], done.stderr)
            self.assertIn(words[1], done.stderr)

    def test_other_machines_need_a_key(self):
        with self.assertRaises(RuntimeError):
            Server(str(MODEL), "--host", "0.0.0.0")

    def test_the_printed_command_works_and_signals_end_it(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what the server inherits, also under nohup
        for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            server = Server(str(MODEL))
            command = server.try_line.split(":", 1)[1].strip()
            if how == signal.SIGINT and shutil.which("curl"):
                reply = json.loads(subprocess.run(command, shell=True, capture_output=True, check=True).stdout)
                self.assertIn("choices", reply)
            self.assertEqual(server.stop(how), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
