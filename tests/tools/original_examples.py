#!/usr/bin/env python3
"""Runs the example functions of THUDM/slime, as they are, in live runs of this program, and prints a table.

    python3 tests/tools/original_examples.py CHECKOUT [NAME...] [--python PYTHON] [--tau-bench FOLDER] [--keep FOLDER]

CHECKOUT is a clone of https://github.com/THUDM/slime; nothing of it is changed or copied. Each example gets a tiny model
for which the answers that the example reads are one token each, and that was shown to give them; then two steps of `slime train`
with the flags of the example's own script. Services outside are stood in for: a retrieval server, the customer of tau-bench,
SGLang's parser of tool calls (the one of slime.agent.parsing). PYTHON (default: this one) needs the examples' packages:

    pip install transformers jinja2 psutil aiohttp chardet strands-agents strands-sglang==0.4.2 pydantic torch

and for tau-bench a clone of https://github.com/sierra-research/tau-bench. An example whose packages are missing is "not run".
"""

import argparse
import dataclasses
import http.server
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLIME = Path(os.environ.get("SLIME_BINARY", ROOT / "build" / "release" / "slime"))
CONTEXT = 32768  # tokens; the prompts of tau-bench are long where a token is a byte


@dataclasses.dataclass(frozen=True)
class Example:
    """`folder` is what the example's own script runs in, below the checkout; `answers` are what its reader understands;
    `seen` must be in the text of some response, the trace of a turn that came from elsewhere; without one some tokens are
    not trained."""

    name: str
    folder: str
    flags: tuple
    rows: tuple
    answers: tuple
    seen: str
    packages: tuple
    stub: str = ""
    max_response: int = 400
    longest: int = 1200  # characters, of what stands before the answers that the model is shown


# ChatML whose content may be a list of parts, as templates of models that see take it.
CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string %}{{- message.content }}{%- else %}{%- for part in message.content %}{{- part.text }}{%- endfor %}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


CHAT = ({"role": "user", "content": "What is 1+2?"},)
EXAMPLES = [
    Example(
        "search-r1", "examples/search-r1",
        ("--custom-generate-function-path", "generate_with_search.generate", "--custom-rm-path", "generate_with_search.reward_func",
         "--input-key", "prompt", "--label-key", "reward_model", "--apply-chat-template"),
        ({"prompt": CHAT, "reward_model": {"ground_truth": {"target": ["Rome"]}}},),
        ("<search>a town</search>", "<answer>Rome</answer>"), "<information>", ("aiohttp", "chardet"), "retrieval server",
    ),
    Example(
        "retool", "examples/retool",
        ("--custom-generate-function-path", "generate_with_retool.generate", "--custom-rm-path", "generate_with_retool.reward_func",
         "--input-key", "prompt", "--label-key", "label", "--apply-chat-template", "--reward-key", "score"),
        ({"prompt": CHAT, "label": "3"},),
        (call("code_interpreter", code="print(1+2)"), "Answer: \\boxed{3}"), "<interpreter>", ("psutil", "jinja2"),
    ),
    Example(
        "multi_agent", "",
        ("--custom-generate-function-path", "examples.multi_agent.rollout_with_multi_agents.generate_with_multi_agents",
         "--input-key", "prompt", "--label-key", "label", "--apply-chat-template", "--rm-type", "deepscaler"),
        ({"prompt": CHAT, "label": "3"},),
        ("x</think>\\boxed{3}", "x</think>Judgment: 1"), "</think>", (),
    ),
    Example(
        "geo3k, text only", "",
        ("--custom-generate-function-path", "examples.geo3k_vlm_multi_turn.rollout.generate",
         "--custom-config-path", "examples/geo3k_vlm_multi_turn/geo3k_vlm_multi_turn_config.yaml",
         "--input-key", "problem", "--label-key", "answer", "--rm-type", "math", "--apply-chat-template"),
        ({"problem": CHAT, "answer": "3"},),
        (call("calc_score", answer="3"), "\\boxed{3}"), "<|im_start|>user", ("torch",),
    ),
    Example(
        "strands_sglang", "",
        ("--custom-generate-function-path", "examples.strands_sglang.generate_with_strands.generate",
         "--custom-rm-path", "examples.strands_sglang.generate_with_strands.reward_func", "--input-key", "prompt", "--label-key", "label"),
        ({"prompt": "What is 1+2?", "label": "3"},),
        (call("execute_python_code", code="print(1+2)"), "\\boxed{3}"), "<|im_start|>tool", ("strands", "strands_sglang"),
    ),
    Example(
        "tau-bench", "examples/tau-bench",
        ("--custom-generate-function-path", "generate_with_tau.generate", "--input-key", "index", "--metadata-key", "metadata"),
        tuple({"index": i, "metadata": {}} for i in range(4)),
        (call("get_product_details", product_id="9523456873"), "Is that all?"), "", ("tau_bench",),
        "customer, tool parser", 1024, 9000,
    ),
]  # fmt: skip

# Found by every Python of the run: stands in for services and packages that no CPU machine has.
STAND_INS = '''
import importlib.machinery, importlib.util, sys, types

class Call:
    def __init__(self, name, parameters): self.name, self.parameters = name, parameters
    def model_dump(self): return dict(self.__dict__)

class FunctionCallParser:
    def __init__(self, tools, tool_call_parser):
        self.tools = [{"type": "function", "function": vars(tool.function)} for tool in tools]
        self.name = tool_call_parser
    def parse_non_stream(self, text):
        import json
        from slime.agent.parsing import parse_tool_uses
        text, uses, _ = parse_tool_uses(text, self.tools, self.name)
        return text, [Call(use["name"], json.dumps(use["input"])) for use in uses]

class Fields:
    def __init__(self, **fields): vars(self).update(fields)

def modules(**of):
    for name, members in of.items():
        path = name.replace("__", ".")
        module = types.ModuleType(path)
        module.__path__, module.__spec__ = [], importlib.machinery.ModuleSpec(path, None, is_package=True)
        vars(module).update(members)
        sys.modules[path] = module

if importlib.util.find_spec("sglang") is None:
    parser = {"FunctionCallParser": FunctionCallParser}
    structs = {"Function": Fields, "Tool": Fields}
    modules(sglang={}, sglang__srt={}, sglang__srt__function_call={}, sglang__srt__managers={},
            sglang__srt__function_call__function_call_parser=parser, sglang__srt__managers__io_struct=structs)

# The customer of tau-bench: who would be a model behind litellm says one thing, then goodbye.
def completion(model=None, messages=(), **rest):
    said = sum(1 for each in messages if each["role"] == "assistant")
    message = types.SimpleNamespace(content="I want to return my lamp." if said == 0 else "###STOP###", role="assistant")
    message.model_dump = lambda: {"role": "assistant", "content": message.content}
    return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)], _hidden_params={"response_cost": 0.0})

modules(litellm={"completion": completion, "provider_list": ["gemini", "auto_router"]})
'''


class Retrieval(http.server.BaseHTTPRequestHandler):
    """POST /retrieve of search-r1's local server."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        found = {"id": "1", "contents": '"Towns"\nRome is one.'}
        # The example's comments say that a find is in "document", its code looks beside it.
        body = json.dumps({"result": [[{"document": found, **found}]]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def missing(python, packages, environment):
    found = subprocess.run(
        [python, "-c", "import importlib.util, sys\nprint(*[p for p in sys.argv[1:] if importlib.util.find_spec(p) is None])", *packages],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    return (found.stdout or found.stderr).split()


def slime(words, folder, environment):
    command = [str(SLIME), "train", "--device", "cpu", "--fp32", "--num-threads", "1", "--lr-decay-style", "constant", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


def tiny_model(folder, words):
    folder.mkdir(parents=True)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    command = [sys.executable, ROOT / "tools" / "tiny_model.py", folder, "--chat-template", folder / "chat_template.jinja", "--words", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for name, keys in (("config.json", ["max_position_embeddings"]), ("tokenizer_config.json", ["model_max_length"])):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | dict.fromkeys(keys, CONTEXT)))


def show_answers(example, work, model, environment):
    """The model after it has read the answers, whatever stands before them."""
    rng = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz 0123456789.,\n"
    rows = []
    for i in range(400):
        said = "".join(rng.choices(letters, k=rng.randint(1, 120) if i % 8 else rng.randint(120, example.longest)))
        rows.append({"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": rng.choice(example.answers)}]})
    data = work / "shown.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--hf-checkpoint", model, "--run-dir", work / "shown", "--prompt-data", data, "--input-key", "messages"]
    words += ["--rollout-function-path", "slime.rollout.sft_rollout.generate_rollout", "--loss-type", "sft_loss", "--debug-train-only"]
    words += ["--calculate-per-token-loss", "--num-rollout", "60", "--rollout-batch-size", "16", "--global-batch-size", "16"]
    words += ["--use-dynamic-batch-size", "--max-tokens-per-gpu", "16384", "--lr", "3e-3", "--save-interval", "1000"]
    done = slime(words, work, environment)
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return work / "shown" / "latest"


def run(example, checkout, work, python, environment):
    """What the table says of it: (result, samples, turns from elsewhere, mean reward, note)"""
    lacking = missing(python, ("transformers", *example.packages), environment)
    if lacking:
        return "not run", "", "", "", "lacks " + ", ".join(lacking)
    folder = work / "folder"
    folder.mkdir(parents=True)
    if example.folder:
        folder = checkout / example.folder
    else:  # `examples` can be imported from there, and not the original's `slime`
        (folder / "examples").symlink_to(checkout / "examples")
    tiny_model(work / "model", example.answers)
    model = show_answers(example, work, work / "model", environment)
    data = work / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in example.rows * (8 // len(example.rows))))
    words = ["--hf-checkpoint", model, "--run-dir", work / "run", "--prompt-data", data, "--plugin-python", python, *example.flags]
    words += ["--num-rollout", "2", "--rollout-batch-size", "4", "--n-samples-per-prompt", "4", "--num-steps-per-rollout", "1"]
    words += ["--rollout-max-response-len", example.max_response, "--rollout-max-context-len", CONTEXT // 2]
    words += ["--use-dynamic-batch-size", "--max-tokens-per-gpu", CONTEXT, "--lr", "1e-4", "--save-interval", "1000"]
    done = slime(words, folder, environment)
    rows = [json.loads(line) for file in sorted((work / "run" / "rollouts").glob("*.jsonl")) for line in file.open()]
    log = "".join(file.read_text() for file in (work / "run" / "plugin").glob("host-*.log"))
    (work / "output.log").write_text(done.stdout + done.stderr + log)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or log.strip()).splitlines()
        return "failed", len(rows), "", "", lines[-1] if lines else f"exit code {done.returncode}"
    metrics = [json.loads(line) for line in (work / "run" / "metrics.jsonl").open()]
    steps = sum("train/loss" in metric for metric in metrics)
    masked = sum(example.seen in row["response"] if example.seen else 0 in row["loss_mask"] for row in rows)
    reward = sum(metric["rollout/raw_reward"] for metric in metrics if "rollout/raw_reward" in metric) / max(1, steps)
    if steps != 2 or not masked:
        return "failed", len(rows), masked, f"{reward:.2f}", f"{steps} steps; {masked} responses with {example.seen or 'masked tokens'!r}"
    return "runs", len(rows), masked, f"{reward:.2f}", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("names", nargs="*", help="of examples; default: all")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the examples' packages")
    parser.add_argument("--tau-bench", type=Path, help="a clone of tau-bench")
    parser.add_argument("--keep", type=Path, help="folder for what the runs write; default: one that is deleted")
    args = parser.parse_args()
    chosen = [each for each in EXAMPLES if not args.names or each.name.split(",")[0] in args.names]
    checkout = args.checkout.resolve()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Retrieval)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary:
        work = (args.keep or Path(temporary)).resolve()
        stand_ins = work / "stand_ins"
        stand_ins.mkdir(parents=True, exist_ok=True)
        (stand_ins / "sitecustomize.py").write_text(STAND_INS)
        paths = [str(stand_ins)] + ([str(args.tau_bench.resolve())] if args.tau_bench else [])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        titles = ("example", "result", "samples", "with a turn from elsewhere", "mean reward", "stands in", "note")
        print("| " + " | ".join(titles) + " |\n" + "| --- " * len(titles) + "|", flush=True)
        results = []
        for number, example in enumerate(chosen):
            folder = work / f"{number}-{example.name.split(',')[0]}"
            result, samples, turns, reward, note = run(example, checkout, folder, args.python, environment)
            results.append(result)
            print(f"| {example.name} | {result} | {samples} | {turns} | {reward} | {example.stub} | {note} |", flush=True)
    sys.exit("failed" in results)


if __name__ == "__main__":
    main()
