"""Sessions of training for a test in another process: JSON lines in, {"open": NAME} or {"finish": NAME}, and out.

    python3 training_door.py sessions|adapters MODEL_DIR SERVER_URL
"""

import asyncio
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]

from trained_once import assert_each_token_is_trained_once  # noqa: E402

from slime.utils.types import Sample  # noqa: E402

SAMPLING = {"max_new_tokens": 400, "temperature": 1.0}


class Adapters:
    """slime.agent's adapters, of which every call of the engine is recorded."""

    def __init__(self, model, engine):
        import slime.agent.adapters.common as common
        from slime.agent.adapters import AnthropicAdapter, OpenAIAdapter
        from slime.agent.aiohttp_threaded import run_app_in_thread
        from transformers import AutoTokenizer

        self._calls = []
        self._post, common.post = common.post, self._recorded_post
        options = {"tokenizer": AutoTokenizer.from_pretrained(model), "sglang_url": engine, "tool_parser": "qwen25", "reasoning_parser": "qwen3"}
        self._adapters = {"openai": OpenAIAdapter(**options), "anthropic": AnthropicAdapter(**options)}
        self._handles = {kind: run_app_in_thread(adapter.app, host="127.0.0.1") for kind, adapter in self._adapters.items()}

    def urls(self):
        return {kind: f"http://127.0.0.1:{handle.port}" for kind, handle in self._handles.items()}

    async def _recorded_post(self, url, payload, **options):
        answer = await self._post(url, payload, **options)
        if url.endswith("/generate"):
            entries = answer["meta_info"].get("output_token_logprobs") or []
            self._calls.append((list(payload["input_ids"]), [entry[1] for entry in entries], [entry[0] for entry in entries]))
        return answer

    def open(self, name):
        self._calls.clear()
        for adapter in self._adapters.values():
            adapter.open_session(name, sampling_defaults=SAMPLING)

    def finish(self, name):
        samples = []
        for adapter in self._adapters.values():
            samples += asyncio.run(adapter.finish_session(name, base_sample=Sample(index=0, prompt="p"), reward=1.0))
        return samples, self._calls


class Sessions:
    """The server's own. What was sampled is read before the session ends: a turn's prompt is all tokens of its parent and its context."""

    def __init__(self, model, server):
        from slime.agent.server_sessions import ServerSessions

        self._url, self._sessions = server, ServerSessions(server)

    def urls(self):
        return {"openai": self._url, "anthropic": self._url}

    def open(self, name):
        asyncio.run(self._sessions.open(name, sampling_defaults=SAMPLING))

    def finish(self, name):
        tokens, calls = {None: []}, []
        for turn in asyncio.run(self._sessions.recorded(name)):
            prompt = tokens[turn["parent"]] + turn["context_ids"]
            assert len(prompt) == turn["num_prompt_tokens"]
            tokens[turn["id"]] = prompt + turn["output_ids"]
            calls.append((prompt, turn["output_ids"], turn["output_log_probs"]))
        return asyncio.run(self._sessions.finish(name, base_sample=Sample(index=0, prompt="p"), reward=1.0)), calls


def main():
    kind, model, url = sys.argv[1:]
    door = {"sessions": Sessions, "adapters": Adapters}[kind](model, url)
    print(json.dumps(door.urls()), flush=True)
    for line in sys.stdin:
        question, answer = json.loads(line), {}
        try:
            if "open" in question:
                door.open(question["open"])
            else:
                samples, calls = door.finish(question["finish"])
                assert_each_token_is_trained_once(samples, calls)
                answer = {"turns": len(calls), "tokens": sum(len(ids) for _, ids, _ in calls), "samples": len(samples)}
        except Exception as problem:  # whatever goes wrong is for the test to show
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
