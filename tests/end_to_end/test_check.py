"""`slime check`: the report that somebody posts, and its exit codes."""

import os
import re
import resource
import socket
import subprocess
from pathlib import Path

import pytest
from conftest import SLIME
from visible_gpus import num_gpus

DEVICES = ["cpu"] + (["cuda"] if num_gpus() > 0 else [])
HEAD = re.compile(r"slime \S+, \d{4}-\d\d-\d\d, \d+\.\d minutes: (\d+) figures?, (none differs|\d+ differs?)\.")


def check(*words, **options):
    return subprocess.run([str(SLIME), "check", *words], capture_output=True, text=True, timeout=900, **options)


def rows_of(report):
    """Cells of the tables' rows, by section."""
    sections, section = {}, None
    for line in report.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| ") and not line.startswith(("| figure", "| ---")):
            sections.setdefault(section, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return sections


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_that_is_right_has_a_report_without_a_difference(device, tmp_path):
    report = tmp_path / "report.md"
    done = check("--device", device, "--quick", "--output", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    text = report.read_text()
    head = HEAD.search(text)
    assert head and head[2] == "none differs"
    assert done.stdout.rstrip().endswith(f"{head[1]} figures, none differs; the report is {report}")
    rows = rows_of(text)
    wanted = {"device", "kernels", "gradients", "optimizer", "training"}
    assert set(rows) == wanted | (set() if device == "cpu" else {"sampling", "graphs", "memory"})
    assert all(len(cells) == 4 for section in rows.values() for cells in section)
    # A figure on each line, with the most that it may be.
    for section in wanted - {"device"}:
        assert all(float(value) <= float(most) and verdict == "ok" for _, value, most, verdict in rows[section])
    names = " ".join(cells[0] for cells in rows["kernels"] + rows["gradients"])
    for kernel in ("rms_norm", "linear", "norm_rotate", "tree_attention", "softmax_gradient", "add_linear_weight_grad_"):
        assert kernel in names
    training = " ".join(cells[0] for cells in rows["training"])
    assert "train/loss" in training and "train/grad_norm" in training and "log-probs between engine and trainer" in training


def test_the_report_has_nothing_of_the_machine(tmp_path):
    secret = "sk-0123456789abcdef"
    done = check("--device", "cpu", "--quick", cwd=tmp_path, env={**os.environ, "HF_TOKEN": secret, "USER": "ada_lovelace"})
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "slime-check-cpu.md").read_text()
    for word in (socket.gethostname(), secret, "ada_lovelace", str(Path.home()), "/tmp", str(tmp_path)):
        assert word not in text


def test_a_run_that_fails_is_a_difference(tmp_path):
    def small_files():  # the model fits, the optimizer's state does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (9 << 20, 9 << 20))

    report = tmp_path / "report.md"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = check("--device", "cpu", "--quick", "--output", str(report), preexec_fn=small_files, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "differs   training: slime train, " in done.stdout
    assert "logs of the runs that failed are in " in done.stderr
    rows = rows_of(report.read_text())
    assert rows["What differs"] and all(cells[3] == "**differs**" for cells in rows["What differs"])
    assert str(tmp_path) not in report.read_text()


def test_a_file_that_cannot_be_written_is_found_before_the_work(tmp_path):
    done = check("--device", "cpu", "--output", str(tmp_path / "absent" / "report.md"))
    assert done.returncode == 2
    assert "cannot be written" in done.stderr


@pytest.mark.skipif(num_gpus() > 0, reason="there is a GPU")
def test_a_device_that_is_absent_is_named(tmp_path):
    done = check("--device", "cuda", "--output", str(tmp_path / "report.md"))
    assert done.returncode == 2
    assert done.stderr == "slime check: --device cuda: no NVIDIA GPU is visible\n"
    assert not (tmp_path / "report.md").exists()


def test_a_section_alone_prints_figures_for_programs():
    done = check("--device", "cpu", "--quick", "--section", "optimizer")
    assert done.returncode == 0, done.stderr
    assert '"what":"adamw_ float32 70001"' in done.stdout
    assert check("--device", "cpu", "--section", "graphs").returncode == 2
