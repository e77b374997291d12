"""One tracker of a run: Weights & Biases, MLflow or Trackio, through the user's own package of it.

slime runs this text in a process of its own (report/tracker_process.h) and writes JSON lines to its standard input.
The first names the tracker and what it begins with; each other one is a record of the run:

    {"step": 3, "metrics": {"rollout/raw_reward": 0.5, "train/step": 6, ...}, "samples": [[17, "completed", ...], ...],
     "distributions": {"rollout/distribution/reward": {"counts": [3, 5], "edges": [0, 0.5, 1]}, ...}}

A number that is not finite is null. Standard output has two kinds of lines, {"is": "ready"} and {"is": "failed", "why": ...};
what the packages print goes to standard error.
"""

import importlib
import json
import os
import random
import re
import string
import sys

SAMPLE_COLUMNS = ["sample", "status", "reward", "advantage", "tokens", "prompt", "response"]
NAN = float("nan")


def by_step(record):
    """[(step, {name: number})]: numbers of an optimizer update stand at their update, others at their rollout."""
    metrics = {name: number for name, number in record["metrics"].items() if number is not None}
    update = metrics.get("train/step")
    of_update = {} if update is None else {name: number for name, number in metrics.items() if name.startswith("train/")}
    of_rollout = {name: number for name, number in metrics.items() if name not in of_update and not name.endswith("/step")}
    of_update.pop("train/step", None)
    return [(step, numbers) for step, numbers in ((update, of_update), (record["step"], of_rollout)) if numbers]


def run_name(start):
    return start["name"] or os.path.basename(os.path.normpath(start["run_dir"]))


class Wandb:
    def __init__(self, start):
        if start["host"]:
            os.environ["WANDB_BASE_URL"] = start["host"]
        if start["key"]:
            os.environ["WANDB_API_KEY"] = start["key"]  # wandb.login would write it into ~/.netrc
        self.wandb = importlib.import_module("wandb")
        options = {name: value for name, value in start["options"].items() if value}
        if start["suffix"] and options.get("name") and not options.get("id"):
            options["name"] += "_" + "".join(random.choices(string.ascii_lowercase + string.digits, k=6))
        if options.get("id"):
            options["resume"] = "allow"
        self.wandb.init(config=start["config"], **options)
        rollout = ["rollout", "perf", "multi_turn", "passrate", "phase"]
        for axis, groups in (("train", ["train"]), ("rollout", rollout), ("eval", ["eval"])):
            self.wandb.define_metric(axis + "/step")
            for group in groups:
                self.wandb.define_metric(group + "/*", step_metric=axis + "/step")

    def log(self, record):
        row = {name: NAN if number is None else number for name, number in record["metrics"].items()}
        for name, shown in record["distributions"].items():
            edges = shown["edges"] if shown["edges"][0] < shown["edges"][-1] else [shown["edges"][0], shown["edges"][0] + 1e-6]
            row[name] = self.wandb.Histogram(np_histogram=(shown["counts"], edges))
        if record["samples"]:
            row["rollout/samples"] = self.wandb.Table(columns=SAMPLE_COLUMNS, data=record["samples"])
        self.wandb.log(row)

    def finish(self):
        self.wandb.finish()


class MLflow:
    """Runs of one experiment. Without MLFLOW_TRACKING_URI they lie in a file beside the folder of the run."""

    def __init__(self, start):
        self.mlflow = importlib.import_module("mlflow")
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            folder = os.path.dirname(os.path.abspath(start["run_dir"]))
            self.mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
            if self.mlflow.get_experiment_by_name(start["project"]) is None:
                self.mlflow.create_experiment(start["project"], artifact_location=f"{folder}/mlartifacts")
        self.mlflow.set_experiment(start["project"])
        self.mlflow.start_run(run_name=run_name(start))
        flags = start["config"].get("flags", {})
        words = {name.lstrip("-"): value if isinstance(value, str) else json.dumps(value) for name, value in flags.items()}
        params = {re.sub(r"[^\w\-. :/]", "_", name): value[:500] for name, value in words.items()}
        for at in range(0, len(params), 100):  # as many as one request may have
            self.mlflow.log_params(dict(list(params.items())[at : at + 100]))

    def log(self, record):
        for step, numbers in by_step(record):
            named = {re.sub(r"[^\w\-. :/]", "_", name): number for name, number in numbers.items()}
            self.mlflow.log_metrics(named, step=int(step))
        if record["samples"]:
            self.mlflow.log_dict({"columns": SAMPLE_COLUMNS, "data": record["samples"]}, f"samples/step_{record['step']:06}.json")
        if record["distributions"]:
            self.mlflow.log_dict(record["distributions"], f"distributions/step_{record['step']:06}.json")

    def finish(self):
        self.mlflow.end_run()


class Trackio:
    def __init__(self, start):
        self.trackio = importlib.import_module("trackio")
        self.trackio.init(project=start["project"], name=run_name(start), config=start["config"].get("flags", {}), resume="allow")

    def log(self, record):
        rows = by_step(record)
        if record["samples"] or record["distributions"]:
            row = {}
            if record["samples"]:
                row["rollout/samples"] = self.trackio.Table(columns=SAMPLE_COLUMNS, data=record["samples"])
            rows.append((record["step"], row))
        for step, numbers in rows:
            self.trackio.log(numbers, step=int(step))

    def finish(self):
        self.trackio.finish()


def main():
    answers, sys.stdout = sys.stdout, sys.stderr

    def say(word, **more):
        print(json.dumps({"is": word, **more}), file=answers, flush=True)

    key = ""
    try:
        start = json.loads(sys.stdin.readline())
        key = start.get("key", "")
        tracker = {"wandb": Wandb, "mlflow": MLflow, "trackio": Trackio}[start["tracker"]](start)
        say("ready")
        for line in sys.stdin:
            tracker.log(json.loads(line))
        tracker.finish()
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"
        say("failed", why=why.replace(key, "***") if key else why)
        sys.exit(1)


if __name__ == "__main__":
    main()
