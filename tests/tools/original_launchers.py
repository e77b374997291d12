#!/usr/bin/env python3
"""Runs the launch scripts of THUDM/slime, as they are, as far as the command that they would start, and asks
`slime train ... --dry-run` what a run of it would refuse.

    python3 tests/tools/original_launchers.py CHECKOUT [--details]

CHECKOUT is a clone of https://github.com/THUDM/slime; nothing of it is changed. The scripts kill processes and start
Ray, so they run in a bubblewrap of their own without a network, where `ray`, `ssh`, `pkill`, `sleep`, `pip`, `curl`, `nvidia-smi`
and the Python that would start something are words without effect; what stands behind `ray job submit ... --` is written down.
Three scripts look for scripts/models where it is not; a link leads them there.
Prints the scripts that would begin, and the flags by which the others are refused.
"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLIME = Path(os.environ.get("SLIME_BINARY", ROOT / "build" / "release" / "slime"))
FOLDERS = ("scripts/run-*.sh", "scripts/low_precision/*.sh", "examples/*/*.sh", "slime_plugins/*/*.sh", "tests/*.sh")
SILENT = ("ssh", "pkill", "sleep", "pip", "curl", "nvidia-smi", "python", "docker", "hf", "huggingface-cli", "ip", "wget")
# What stands behind "--" of `ray job submit`, or the words behind a train.py that is started without Ray.
RECORD = """#!/bin/sh
case "$0" in
  */ray) [ "$1 $2" = "job submit" ] || exit 0
    while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done ;;
  *) case "$*" in *train*.py*) ;; *) exec %s "$@" ;; esac ;;
esac
for word in "$@"; do printf '%%s\\0' "$word"; done >>/opt/written/words
"""
SILENCE = """#!/bin/sh
[ "$1" != list ] || echo "megatron-core 0.1 /root/Megatron-LM"
"""
# What scripts of several machines ask for.
GIVEN = {
    "MASTER_ADDR": "127.0.0.1", "MLP_WORKER_0_HOST": "127.0.0.1", "MLP_SOCKET_IFNAME": "lo", "WANDB_KEY": "key", "WANDB_API_KEY": "key",
    "BASE_FOLDER": "/root", "BASE_DIR": "/root", "MODEL_DIR": "/root", "DATA_DIR": "/root", "NUM_GPUS": "8", "E2B_API_KEY": "key",
    "SWE_TRAIN_DATA": "/root/swe.jsonl", "HF_CHECKPOINT": "/root/model", "PROMPT_DATA": "/root/data.jsonl",
}  # fmt: skip


def command_of(script, checkout):
    """(program, words) that `script` would start, or what it said instead."""
    with tempfile.TemporaryDirectory() as folder:
        programs, written = Path(folder) / "programs", Path(folder) / "written"
        programs.mkdir()
        written.mkdir()
        record = RECORD % os.path.realpath(sys.executable)
        for name in (*SILENT, "ray", "python3"):
            (programs / name).write_text(record if name in ("ray", "python3") else SILENCE)
            (programs / name).chmod(0o755)
        command = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        command += ["--tmpfs", "/root", "--bind", checkout, "/root/slime", "--tmpfs", "/opt", "--ro-bind", programs, "/opt/programs"]
        command += ["--ro-bind", sys.base_prefix, sys.base_prefix, "--bind", written, "/opt/written", "--chdir", "/root/slime"]
        given = {"PATH": f"/opt/programs:{os.environ['PATH']}", "HOME": "/root", **GIVEN}
        done = subprocess.run(
            [*command, "bash", f"/root/slime/{script.relative_to(checkout)}"],
            capture_output=True, text=True, timeout=120, env=given, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        words = (written / "words").read_bytes().decode().split("\0")[:-1] if (written / "words").exists() else []
    at = next((i for i, word in enumerate(words) if re.fullmatch(r".*train(_async)?\.py", word)), None)
    if at is None:
        return None, (done.stdout + done.stderr).strip().splitlines()[-3:]
    return Path(words[at]).stem, words[at + 1 :]


def refusals(text):
    part = text.partition("A run would refuse:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in part.splitlines() if line.strip()]


def count(checkout, details, keep):
    scripts = [script for pattern in FOLDERS for script in sorted(checkout.glob(pattern)) if "--hf-checkpoint" in script.read_text()]
    begins, names, odd, kept = [], collections.defaultdict(set), [], {}
    for script in scripts:
        name = str(script.relative_to(checkout))
        program, words = command_of(script, checkout)
        if program is None:
            odd.append((name, words))
            continue
        kept[name] = [program, *words]
        form = "train-async" if program == "train_async" else "train"
        done = subprocess.run([SLIME, form, *words, "--dry-run"], cwd=checkout, capture_output=True, text=True, timeout=120)
        if "Nothing was loaded or written" not in done.stdout:
            odd.append((name, (done.stdout + done.stderr).strip().splitlines()[-3:]))
            continue
        found = refusals(done.stdout)
        if not found:
            begins.append(name)
        for line in found:
            names[line.split(":")[0].split(" ")[0]].add(name)
        if details and found:
            print(f"{name}\n  " + "\n  ".join(found))
    if keep:
        keep.write_text(json.dumps(kept))
    print(f"{len(scripts)} launch scripts: {len(begins)} would begin, {len(scripts) - len(begins) - len(odd)} are refused")
    for flag, where in sorted(names.items(), key=lambda each: (-len(each[1]), each[0])):
        print(f"  {len(where):2} {flag}")
    for name, said in odd:
        print(f"no answer: {name}: {' / '.join(said)}")
    return 1 if odd else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--details", action="store_true", help="what is said about each script that would be refused")
    parser.add_argument("--keep", type=Path, help="a JSON file for the words of every script")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "slime"  # some write folders into it
        shutil.copytree(args.checkout, checkout, ignore=shutil.ignore_patterns(".git"), symlinks=True)
        (checkout / "scripts" / "scripts").symlink_to(".")
        return count(checkout, args.details, args.keep)


if __name__ == "__main__":
    sys.exit(main())
