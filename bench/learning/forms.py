#!/usr/bin/env python3
"""The two quickstarts in every form of training: synchronous, one step ahead, fully asynchronous, colocated, APRIL, with drafts, and adapters.

    python3 bench/learning/forms.py run OUT_DIR --task arithmetic [--forms sync,async-1] [--seeds 1,2,3] [--jobs 2]
    python3 bench/learning/forms.py table OUT_DIR...            # Markdown
    python3 bench/learning/forms.py picture OUT.svg OUT_DIR     # a panel for each form, a line for each seed

The flags are those of examples/quickstart, read from there; a form adds its own. Each run has --cores cores to itself. The
curves are kept in OUT_DIR/curves.json, the runs' folders beside it.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
ASYNC = ["train-async"]
FORMS = {
    "sync": ["train"],
    "april": ["train", "--partial-rollout", "--over-sampling-batch-size", "{twice}"],
    "april-masked": ["train", "--partial-rollout", "--over-sampling-batch-size", "{twice}", "--mask-offpolicy-in-partial-rollout"],
    "one-step-ahead": [*ASYNC, "--update-mode", "drain"],
    "one-step-ahead-old-actor": [*ASYNC, "--update-mode", "drain", "--keep-old-actor"],
    "async-1": [*ASYNC, "--max-staleness", "1"],
    "async-1-tis": [*ASYNC, "--max-staleness", "1", "--use-tis"],
    "async-4": [*ASYNC, "--max-staleness", "4"],
    "async-4-tis": [*ASYNC, "--max-staleness", "4", "--use-tis"],
    "async-16": [*ASYNC, "--max-staleness", "16"],
    "async-16-tis": [*ASYNC, "--max-staleness", "16", "--use-tis"],
    "colocated": [*ASYNC, "--colocate"],
    "drafts": ["train", "--rollout-drafts", "suffix"],
    "prompt-noise": ["train", "--rollout-noise", "prompt"],
    "prompt-noise-drafts": ["train", "--rollout-noise", "prompt", "--rollout-drafts", "suffix"],
    "lora-1": ["train", "--lora-rank", "1", "--lr", "{ten_times_lr}"],
    "lora-8": ["train", "--lora-rank", "8", "--lr", "{ten_times_lr}"],
    "lora-32": ["train", "--lora-rank", "32", "--lr", "{ten_times_lr}"],
}
# Script, twice its batch of prompts, and ten times its learning rate, which is what adapters want.
SETTINGS = {"arithmetic": ("arithmetic.sh", "64", "2e-3"), "smollm2": ("smollm2.sh", "32", "3e-4")}
# What makes the data, and the file of prompts among them.
DATA = {"arithmetic": ("arithmetic_task.py", "rl.jsonl"), "smollm2": ("times_table.py", "train.jsonl")}


def flags_of(script: str) -> list[list[str]]:
    """What each `"$slime" train` of a quickstart is given, without the folders and without what it leaves to its caller."""
    text = (ROOT / "examples/quickstart" / script).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r'^(?:\w+="[^"]*" )?"\$slime" train (.*)"\$@"$', text, re.MULTILINE)
    return [[word for word in shlex.split(line) if not word.startswith("${")] for line in lines]


def with_folders(flags: list[str], folders: dict[str, str]) -> list[str]:
    return [re.sub(r"\$(\w+)", lambda match: folders[match[1]], flag) for flag in flags]


def curve(run_dir: Path) -> dict:
    rewards, scores, lags = [], [], []
    for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]:
        row = json.loads(line)
        if row.get("rollout/raw_reward") is not None:
            rewards.append((row["step"], row["rollout/raw_reward"]))
            lags.append(row.get("rollout/weight_version/lag_max", 0))
        for name, value in row.items():
            if name.startswith("eval/") and name.count("/") == 1 and "-" not in name and value is not None:
                scores.append((row["step"], value))
    return {"rewards": rewards, "scores": scores, "lag_max": max(lags, default=0)}


def run(options: argparse.Namespace) -> int:
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    script, twice, ten_times_lr = SETTINGS[options.task]
    program = str(options.slime.resolve())
    cores = sorted(os.sched_getaffinity(0))
    places: Queue = Queue()
    for job in range(options.jobs):
        places.put(cores[job * options.cores % len(cores):][:options.cores])
    folders = {"data": str(options.data.resolve()), "model": str(options.model.resolve()) if options.model else str(out / "tiny")}

    def call(name: str, arguments: list[str]) -> float:
        place, begin = places.get(), time.monotonic()
        try:
            with open(out / f"{name}.log", "w", encoding="utf-8") as log:
                subprocess.run(["taskset", "-c", ",".join(map(str, place)), program, *arguments], stdout=log,
                               stderr=subprocess.STDOUT, check=True, env={**os.environ, "OMP_NUM_THREADS": str(len(place))})
        finally:
            places.put(place)
        return time.monotonic() - begin

    seeds = [int(seed) for seed in options.seeds.split(",")]
    forms = options.forms.split(",") if options.forms else list(FORMS)
    steps = flags_of(script)
    more = shlex.split(options.more)
    with ThreadPoolExecutor(options.jobs) as pool:
        if options.task == "arithmetic":
            subprocess.run([sys.executable, ROOT / "tools/tiny_model.py", folders["model"], "--hidden", "64", "--layers", "2"], check=True)
            list(pool.map(lambda seed: call(f"sft-{seed}", ["train", *with_folders(steps[0], {**folders, "sft": str(out / f"sft-{seed}")}),
                                                            "--seed", str(seed), *more]), seeds))

        def one(form: str, seed: int) -> tuple[str, dict]:
            name = f"{form}-seed{seed}"
            own = {**folders, "run": str(out / name), "sft": str(out / f"sft-{seed}")}
            command, *extra = [word.format(twice=twice, ten_times_lr=ten_times_lr) for word in FORMS[form]]
            try:
                seconds = call(name, [command, *with_folders(steps[-1], own), "--seed", str(seed), *extra, *more])
            except subprocess.CalledProcessError as error:
                return name, {"form": form, "seed": seed, "error": f"exit code {error.returncode}, see {name}.log"}
            return name, {"form": form, "seed": seed, "seconds": round(seconds, 1), **curve(out / name)}

        path = out / "curves.json"
        curves = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for name, result in pool.map(lambda pair: one(*pair), [(form, seed) for form in forms for seed in seeds]):
            curves[name] = result
            path.write_text(json.dumps(curves, indent=1), encoding="utf-8")
            last = result["scores"][-1][1] if result.get("scores") else result.get("error", "no evaluation")
            print(f"{name}: {last}", flush=True)
    return int(any("error" in result for result in curves.values()))


def make_data(folder: Path, task: str, prompts: int | None) -> None:
    tool, file = DATA[task]
    subprocess.run([sys.executable, ROOT / "tools" / tool, folder], check=True)
    if prompts is None:
        return
    rows = (folder / file).read_text(encoding="utf-8").splitlines(keepends=True)
    if not 0 < prompts <= len(rows):
        raise SystemExit(f"--prompts {prompts}: the task has {len(rows)}")
    (folder / file).write_text("".join(rows[:prompts]), encoding="utf-8")


def load(folders: list[Path]) -> dict:
    curves = {}
    for folder in folders:
        curves.update(json.loads((folder / "curves.json").read_text(encoding="utf-8")))
    return curves


def by_form(curves: dict) -> dict:
    forms: dict = {}
    for result in curves.values():
        if result.get("scores"):
            forms.setdefault(result["form"], []).append(result)
    return {form: sorted(forms[form], key=lambda result: result["seed"]) for form in FORMS if form in forms}


def table(options: argparse.Namespace) -> int:
    print("| form | final accuracy, by seed | mean reward of the last eight steps | oldest token trained (updates) |\n| --- | --- | --- | --- |")
    for form, results in by_form(load(options.folders)).items():
        scores = " / ".join(f"{result['scores'][-1][1]:.3f}" for result in results)
        rewards = " / ".join(f"{sum(value for _, value in result['rewards'][-8:]) / 8:.3f}" for result in results)
        lags = " / ".join(f"{result['lag_max']:g}" for result in results)
        print(f"| {form} | {scores} | {rewards} | {lags} |")
    return 0


STYLE = """text { font: 11px system-ui, sans-serif; fill: #5c6675; } .grid { stroke: #e3e6eb; } path { fill: none; stroke-width: 1.5; }
  .s0 { stroke: #2563eb; } .s1 { stroke: #d97706; } .s2 { stroke: #059669; }
  @media (prefers-color-scheme: dark) { text { fill: #a0a9b8; } .grid { stroke: #2a303a; } .s0 { stroke: #6ea8fe; }
    .s1 { stroke: #f2a541; } .s2 { stroke: #34d399; } }"""


def picture(options: argparse.Namespace) -> int:
    forms = by_form(load(options.folders))
    width, height, columns = 190, 130, 4
    rows = (len(forms) + columns - 1) // columns
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width * columns} {height * rows}" role="img">'
             f"<title>accuracy by step, a panel for each form</title><style>{STYLE}</style>"]
    for number, (form, results) in enumerate(forms.items()):
        left, top = width * (number % columns) + 28, height * (number // columns) + 22
        inner_width, inner_height = width - 40, height - 44
        last = max(step for result in results for step, _ in result["scores"]) or 1
        parts.append(f'<text x="{left}" y="{top - 8}">{escape(form)}</text>')
        for level in (0, 0.5, 1):
            y = top + (1 - level) * inner_height
            parts.append(f'<line class="grid" x1="{left}" x2="{left + inner_width}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>')
        parts.append(f'<text x="{left + inner_width}" y="{top + inner_height + 14}" text-anchor="end">{last} steps</text>')
        for index, result in enumerate(results):
            line = "L".join(f"{left + max(step, 0) / last * inner_width:.1f} {top + (1 - value) * inner_height:.1f}"
                            for step, value in result["scores"])
            parts.append(f'<path class="s{index % 3}" d="M{line}"/>')
    options.out.write_text("".join(parts) + "</svg>\n", encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("out", type=Path)
    runs.add_argument("--task", choices=SETTINGS, default="arithmetic")
    runs.add_argument("--forms", default="", help="comma-separated; all by default: " + ", ".join(FORMS))
    runs.add_argument("--seeds", default="1,2,3")
    runs.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    runs.add_argument("--cores", type=int, default=2, help="of each run")
    runs.add_argument("--slime", type=Path, default=ROOT / "build/release/slime")
    data = runs.add_mutually_exclusive_group()
    data.add_argument("--data", type=Path, help="made by tools/arithmetic_task.py or tools/times_table.py")
    data.add_argument("--prompts", type=int, help="train on the first so many of the task's, for more epochs")
    runs.add_argument("--model", type=Path, help="smollm2: its directory")
    runs.add_argument("--more", default="", help="flags for all runs")
    runs.set_defaults(act=run)
    tables = commands.add_parser("table")
    tables.add_argument("folders", type=Path, nargs="+")
    tables.set_defaults(act=table)
    pictures = commands.add_parser("picture")
    pictures.add_argument("out", type=Path)
    pictures.add_argument("folders", type=Path, nargs="+")
    pictures.set_defaults(act=picture)
    options = parser.parse_args()
    if options.act is run and options.data is None:
        options.data = options.out / "data"
        make_data(options.data, options.task, options.prompts)
    return options.act(options)


if __name__ == "__main__":
    sys.exit(main())
