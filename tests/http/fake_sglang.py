"""A small server of SGLang's protocol without a model, for tests: its shapes of /generate, chat, health, information, control
and weights. What it does wrong is chosen by attributes.

`python tests/http/fake_sglang.py PORT` serves one until it is killed."""

import json
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = ["fine", " words", " of", " a", " server", " that", " is", " none"]


class FakeSGLang:
    def __init__(self, port=0, name="fake"):
        self.name = name
        self.lock = threading.Lock()
        self.requests = []  # (method, path, headers, body) as they came
        self.weight_version = "default"
        self.model_path = "/models/fake"
        self.is_paused = False
        self.token_delay_s = 0.0
        self.num_tokens = 8
        self.status = 200  # of requests for tokens
        self.health_status = 200
        self.cuts_after = None  # tokens after which a stream's connection is cut
        self.hangs = False  # requests for tokens are read and never answered
        self.aborted = []  # bodies of /abort_request
        self.num_cancelled = 0  # streams whose client went away
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                owner.answer(self, "GET", b"")

            def do_POST(self):
                owner.answer(self, "POST", self.rfile.read(int(self.headers.get("Content-Length", 0))))

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

        self.server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def count(self, path):
        with self.lock:
            return sum(1 for _, each, _, _ in self.requests if each.split("?")[0] == path)

    def answer(self, http, method, raw):
        path = http.path.split("?")[0]
        body = json.loads(raw) if raw else None
        with self.lock:
            self.requests.append((method, http.path, dict(http.headers), body))
        routes = {
            "/health": lambda: self.send(http, self.health_status, b"", "text/plain"),
            "/health_generate": lambda: self.send(http, self.health_status, b"", "text/plain"),
            "/get_model_info": lambda: self.send_json(http, self.model_info()),
            "/model_info": lambda: self.send_json(http, self.model_info()),
            "/get_server_info": lambda: self.send_json(http, self.server_info()),
            "/server_info": lambda: self.send_json(http, self.server_info()),
            "/get_weight_version": lambda: self.send_json(http, {"weight_version": self.weight_version}),
            "/v1/models": lambda: self.send_json(http, {"object": "list", "data": [{"id": self.name, "object": "model"}]}),
            "/v1/loads": lambda: self.send_json(http, {"loads": [{"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0}]}),
            "/metrics": lambda: self.send(http, 200, f'# TYPE sglang:reqs counter\nsglang:reqs{{model_name="m"}} {len(self.requests)}\n'.encode(), "text/plain"),
            "/flush_cache": lambda: self.send(http, 200, b"Cache flushed.\n", "text/plain"),
            "/abort_request": lambda: (self.aborted.append(body), self.send(http, 200, b"", "text/plain")),
            "/pause_generation": lambda: self.pause(http, True),
            "/continue_generation": lambda: self.pause(http, False),
            "/update_weights_from_disk": lambda: self.update_weights(http, body),
            "/generate": lambda: self.generate(http, body),
            "/v1/chat/completions": lambda: self.chat(http, body),
        }
        if path in routes:
            routes[path]()
        else:
            self.send_json(http, {"error": {"message": "Not Found"}}, 404)

    def send(self, http, status, body, content_type, headers=()):
        http.send_response(status)
        http.send_header("Content-Type", content_type)
        http.send_header("Content-Length", str(len(body)))
        http.send_header("X-Fake", self.name)
        for key, value in headers:
            http.send_header(key, value)
        http.end_headers()
        http.wfile.write(body)

    def send_json(self, http, value, status=200):
        self.send(http, status, json.dumps(value).encode(), "application/json")

    def model_info(self):
        return {"model_path": self.model_path, "tokenizer_path": self.model_path, "is_generation": True, "weight_version": self.weight_version}

    def server_info(self):
        return {**self.model_info(), "tp_size": 1, "pp_size": 1, "dp_size": 1, "ep_size": 1, "dtype": "auto", "context_length": None,
                "max_req_input_len": 4090, "disaggregation_mode": "null", "internal_states": [{}], "version": "0.5.15"}

    def pause(self, http, is_paused):
        self.is_paused = is_paused
        self.send_json(http, {"message": "done", "status": "ok"})

    def update_weights(self, http, body):
        self.model_path = body["model_path"]
        self.weight_version = body.get("weight_version") or self.weight_version
        self.send_json(http, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0})

    def fails(self, http):
        """True: the request was treated badly."""
        if self.hangs:
            time.sleep(3600)
        if self.status != 200:
            self.send_json(http, {"error": {"message": f"{self.name} answers {self.status}"}}, self.status)
        return self.status != 200

    def frames(self, http, frames):
        http.send_response(200)
        http.send_header("Content-Type", "text/event-stream")
        http.send_header("Transfer-Encoding", "chunked")
        http.end_headers()
        try:
            for i, frame in enumerate(frames):
                if self.cuts_after is not None and i == self.cuts_after:
                    http.connection.shutdown(socket.SHUT_RDWR)
                    http.close_connection = True
                    return
                data = f"data: {frame}\n\n".encode()
                http.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                time.sleep(self.token_delay_s)
            http.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.num_cancelled += 1
            http.close_connection = True

    def generate(self, http, body):
        if self.fails(http):
            return
        limit = body.get("sampling_params", {}).get("max_new_tokens", self.num_tokens)
        count = min(limit, self.num_tokens)

        def reply(n):
            pairs = [[-0.5, 10 + i, None] for i in range(n)]
            finish = {"type": "length", "length": count} if n == count else None
            meta = {"id": body.get("rid") or "made-here", "finish_reason": finish, "prompt_tokens": len(body.get("input_ids", [])), "weight_version": self.weight_version,
                    "completion_tokens": n, "cached_tokens": 0, "e2e_latency": 0.01}
            if body.get("return_logprob"):
                meta.update(input_token_logprobs=[], output_token_logprobs=pairs)
            return {"text": "".join(WORDS[i % len(WORDS)] for i in range(n)), "output_ids": [10 + i for i in range(n)], "meta_info": meta}

        if body.get("stream"):
            self.frames(http, [*(json.dumps(reply(n)) for n in range(1, count + 1)), "[DONE]"])
        else:
            time.sleep(self.token_delay_s * count)
            self.send_json(http, reply(count))

    def chat(self, http, body):
        if self.fails(http):
            return
        text = "".join(WORDS)
        if not body.get("stream"):
            time.sleep(self.token_delay_s * len(WORDS))
            return self.send_json(http, {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]})
        chunks = [{"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": word}}]} for word in WORDS]
        self.frames(http, [*map(json.dumps, chunks), "[DONE]"])


if __name__ == "__main__":
    fake = FakeSGLang(int(sys.argv[1]))
    print(fake.url, flush=True)
    threading.Event().wait()
