"""The running `slime router` in front of `slime serve` and of a small server of SGLang's protocol.

    python -m pytest tests/http/test_router.py        or        python tests/http/test_router.py
"""

import http.client
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import test_serve
from fake_sglang import FakeSGLang
from server_process import PROGRAM, Router, Server

SCRATCH = tempfile.TemporaryDirectory()
GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
ENDLESS = {"max_new_tokens": 60_000, "ignore_eos": True}


def setUpModule():
    global MODEL
    given = os.environ.get("SLIME_TEST_MODEL")
    MODEL = Path(given).resolve() if given else test_serve.make_model(Path(SCRATCH.name))


def tearDownModule():
    SCRATCH.cleanup()


def eventually(holds, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False


def loads(router):
    return {worker["url"]: worker["load"] for worker in router.get("/workers")[1]["workers"]}



def is_answered(call):
    """Whether the router has a worker for it by now."""
    try:
        with urllib.request.urlopen(call):
            return True
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return False


class TwoServers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.servers = [Server(str(MODEL), "--random-seed", "1") for _ in range(2)]
        cls.router = Router([server.url for server in cls.servers], "--policy", "round_robin")

    @classmethod
    def tearDownClass(cls):
        assert cls.router.stop() == 0
        for server in cls.servers:
            server.stop()

    def running(self, server):
        return server.get("/v1/loads")[1]["loads"][0]["num_running_reqs"]

    def test_answers_are_those_of_a_server(self):
        body = {"input_ids": [5, 6, 7], "sampling_params": GREEDY, "return_logprob": True}
        direct = self.servers[0].post("/generate", body)[1]
        for _ in range(4):
            status, reply = self.router.post("/generate", body)
            self.assertEqual(status, 200, reply)
            self.assertEqual(reply["output_ids"], direct["output_ids"])
            self.assertEqual(reply["meta_info"]["output_token_logprobs"], direct["meta_info"]["output_token_logprobs"])
        frames = list(self.router.frames("/generate", {**body, "stream": True}))
        self.assertEqual(frames[-1]["output_ids"], direct["output_ids"])
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        self.assertEqual(self.router.post("/v1/chat/completions", chat)[0], 200)
        for path in ("/v1/models", "/get_model_info", "/model_info", "/get_server_info", "/health_generate", "/readiness", "/get_weight_version"):
            self.assertEqual(self.router.get(path)[0], 200, path)
        status, reply = self.router.post("/generate", {"input_ids": []})
        self.assertEqual(status, 400, reply)

    def test_both_servers_work(self):
        before = [worker["processed_requests"] for worker in self.router.get("/workers")[1]["workers"]]
        for _ in range(4):
            self.router.post("/generate", {"input_ids": [5], "sampling_params": GREEDY})
        after = [worker["processed_requests"] for worker in self.router.get("/workers")[1]["workers"]]
        self.assertEqual([b - a for a, b in zip(before, after)], [2, 2])

    def test_an_abort_reaches_the_server_that_has_the_request(self):
        with ThreadPoolExecutor(4) as pool:
            calls = [
                pool.submit(self.router.post, "/generate", {"input_ids": [5, 6], "rid": f"turn-{i}", "sampling_params": ENDLESS})
                for i in range(4)
            ]
            self.assertTrue(eventually(lambda: sum(map(self.running, self.servers)) == 4))
            self.assertEqual(self.router.post("/abort_request", {"rid": "turn-2"})[0], 200)
            reply = calls[2].result()[1]
            self.assertEqual(reply["meta_info"]["finish_reason"]["type"], "abort")
            self.assertTrue(eventually(lambda: sum(map(self.running, self.servers)) == 3))
            self.assertEqual([call.done() for call in calls], [False, False, True, False])
            self.assertEqual(self.router.post("/abort_request", {"abort_all": True})[0], 200)
            for call in calls:
                self.assertEqual(call.result()[1]["meta_info"]["finish_reason"]["type"], "abort")

    def test_a_client_that_leaves_ends_its_request(self):
        data = json.dumps({"input_ids": [5], "stream": True, "sampling_params": ENDLESS}).encode()
        reply = urllib.request.urlopen(urllib.request.Request(self.router.url + "/generate", data, {"Content-Type": "application/json"}))
        reply.readline()
        self.assertTrue(eventually(lambda: sum(map(self.running, self.servers)) == 1))
        reply.close()
        self.assertTrue(eventually(lambda: sum(map(self.running, self.servers)) == 0))
        self.assertTrue(eventually(lambda: not any(loads(self.router).values())))

    def test_new_weights_reach_both(self):
        status, reply = self.router.post("/update_weights_from_disk", {"model_path": str(MODEL), "weight_version": "step-7"})
        self.assertEqual((status, reply["success"]), (200, True), reply)
        for server in self.servers:
            self.assertEqual(server.get("/get_weight_version")[1]["weight_version"], "step-7")
        status, reply = self.router.post("/update_weights_from_disk", {"model_path": "/nowhere"})
        self.assertGreaterEqual(status, 400)

    def test_metrics_of_both(self):
        status, text = self.router.get("/engine_metrics")
        self.assertEqual(status, 200)
        for server in self.servers:
            self.assertIn(f'sglang:num_requests_total{{worker_addr="{server.url}"', text)
        self.assertEqual(text.count("# TYPE sglang:num_requests_total"), 1)
        self.assertEqual(len(self.router.get("/v1/loads")[1]["loads"]), 2)

    def test_many_streams_at_once(self):
        body = {"input_ids": [5, 6, 7], "stream": True, "sampling_params": {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True}}
        with ThreadPoolExecutor(32) as pool:
            results = list(pool.map(lambda _: list(self.router.frames("/generate", body))[-1]["output_ids"], range(64)))
        self.assertEqual(len(set(map(tuple, results))), 1)


class Failures(unittest.TestCase):
    def test_servers_that_are_killed_are_replaced_without_a_lost_request(self):
        servers = [Server(str(MODEL)) for _ in range(2)]
        with Router([server.url for server in servers], "--policy", "least_load") as router:
            stop, failures, done = threading.Event(), [], []

            def client():
                while not stop.is_set():
                    status, reply = router.post("/generate", {"input_ids": [5, 6], "sampling_params": GREEDY})
                    (done if status == 200 else failures).append(reply)

            clients = [threading.Thread(target=client) for _ in range(4)]
            for each in clients:
                each.start()
            self.assertTrue(eventually(lambda: len(done) > 20))
            servers[0].stop(signal.SIGKILL)
            self.assertTrue(eventually(lambda: router.num_healthy() == 1))
            replacement = Server(str(MODEL))
            self.assertEqual(router.request("POST", "/add_worker?url=" + replacement.url)[0], 202)
            self.assertTrue(eventually(lambda: router.num_healthy() == 2))
            self.assertEqual(router.request("POST", "/remove_worker?url=" + servers[1].url)[0], 202)
            count = len(done)
            self.assertTrue(eventually(lambda: len(done) > count + 20))
            stop.set()
            for each in clients:
                each.join()
            self.assertEqual(failures, [])
            self.assertEqual(len(router.get("/workers")[1]["workers"]), 2)  # the killed one, and the new one
            servers[1].stop()
            replacement.stop()

    def test_a_stream_whose_server_dies_has_no_end(self):
        with FakeSGLang() as fake:
            fake.cuts_after = 3
            with Router([fake.url]) as router:
                host, port = router.url[7:].split(":")
                connection = http.client.HTTPConnection(host, int(port))
                connection.request("POST", "/generate", json.dumps({"input_ids": [1], "stream": True}))
                with self.assertRaises(http.client.IncompleteRead):
                    connection.getresponse().read()
                self.assertEqual(fake.count("/generate"), 1)

    def test_bad_arguments_say_what_would_work(self):
        for words, says in [
            (["--policy", "bucket"], "cache_aware"),
            (["--worker-urls", "ftp://x"], "http://"),
            (["--api-key", "secret"], "--api-key-file"),
            (["--pd-disaggregation"], "prefill"),
            (["--polizy", "random"], "--policy"),
            (["--host", "0.0.0.0"], "key"),
        ]:
            done = subprocess.run([str(PROGRAM), "router", "--port", "0", *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(says, done.stderr, words)
            self.assertNotIn("secret", done.stderr)


class SGLangServers(unittest.TestCase):
    """Servers that are not ours."""

    def setUp(self):
        self.fakes = [FakeSGLang(name=f"fake{i}") for i in range(2)]

    def tearDown(self):
        for fake in self.fakes:
            fake.stop()

    def router(self, *flags):
        router = Router([fake.url for fake in self.fakes], *flags)
        self.addCleanup(router.stop)
        return router

    def test_streams_come_token_by_token(self):
        for fake in self.fakes:
            fake.token_delay_s = 0.2
        router = self.router()
        times = []
        for _ in router.frames("/v1/chat/completions", {"messages": [], "stream": True}):
            times.append(time.monotonic())
        gaps = [b - a for a, b in zip(times, times[1:])]
        self.assertEqual(len(times), 8)
        self.assertGreater(min(gaps), 0.1)

    def test_sglangs_router_flags_and_sticky_sessions(self):
        router = self.router("--router-policy", "consistent_hashing", "--router-disable-circuit-breaker", "--router-disable-health-check",
                             "--router-request-timeout-secs", "14400", "--router-log-level", "warn")
        homes = set()
        for i in range(16):
            homes_of_key = set()
            for _ in range(3):
                call = urllib.request.Request(router.url + "/generate", b'{"input_ids":[1]}', {"X-SMG-Routing-Key": f"session-{i}"})
                with urllib.request.urlopen(call) as reply:
                    homes_of_key.add(reply.headers["X-Fake"])
            self.assertEqual(len(homes_of_key), 1)
            homes |= homes_of_key
        self.assertEqual(homes, {"fake0", "fake1"})

    def test_a_server_that_fails_is_left_out_until_it_is_well(self):
        router = self.router("--policy", "round_robin", "--cb-failure-threshold", "2", "--cb-timeout-duration-secs", "4", "--cb-success-threshold", "1")
        self.fakes[0].status = 500
        for _ in range(12):
            self.assertEqual(router.post("/generate", {"input_ids": [1]})[0], 200)
        self.assertEqual(self.fakes[0].count("/generate"), 2)
        self.fakes[0].status = 200
        time.sleep(4.1)
        for _ in range(12):
            self.assertEqual(router.post("/generate", {"input_ids": [1]})[0], 200)
        self.assertGreater(self.fakes[0].count("/generate"), 4)
        self.fakes[0].health_status = self.fakes[1].health_status = 503
        self.assertTrue(eventually(lambda: router.get("/readiness")[0] == 503))
        self.assertEqual(router.post("/generate", {"input_ids": [1]})[0], 503)

    def test_orders_reach_all(self):
        router = self.router()
        self.assertEqual(router.post("/pause_generation", {})[1]["status"], "ok")
        self.assertTrue(all(fake.is_paused for fake in self.fakes))
        self.assertEqual(router.get("/flush_cache")[0], 200)
        self.assertEqual(router.post("/update_weights_from_disk", {"model_path": "/w/7", "weight_version": "7"})[1]["success"], True)
        self.assertEqual([fake.weight_version for fake in self.fakes], ["7", "7"])
        self.assertEqual(router.post("/abort_request", {"abort_all": True})[0], 200)
        self.assertEqual([len(fake.aborted) for fake in self.fakes], [1, 1])

    def test_keys_stay_out_of_what_is_printed(self):
        done = subprocess.Popen(
            [str(PROGRAM), "router", "--port", "0", "--worker-urls", self.fakes[0].url],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "SLIME_API_KEY": "sesame-123"},
        )
        url = done.stdout.readline().split()[3]
        call = urllib.request.Request(url + "/generate", b'{"input_ids":[1]}', {"Authorization": "Bearer sesame-123"})
        self.assertTrue(eventually(lambda: is_answered(call)))
        with urllib.request.urlopen(call) as reply:
            self.assertEqual(reply.status, 200)
        asked = [headers for _, path, headers, _ in self.fakes[0].requests if path == "/generate"]  # health is asked all the time
        self.assertEqual(asked[-1]["Authorization"], "Bearer sesame-123")
        done.send_signal(signal.SIGTERM)
        out, err = done.communicate(timeout=60)
        self.assertNotIn("sesame", out + err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
