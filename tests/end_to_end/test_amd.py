"""`--device hip` where AMD's parts are missing, and where a library stands for the HIP runtime."""

import json
import os
import shutil
import subprocess

import pytest
from conftest import ROOT, SLIME, train_command

LABEL = "ROCm preview: builds for gfx942 and gfx950, kernels checked without hardware, not yet run on it"
NO_DRIVER = (
    "there is no /dev/kfd: the amdgpu driver is not loaded, or the container was started without --device /dev/kfd --device /dev/dri"
)
NO_RUNTIME = (
    "no HIP runtime can be loaded (libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5): install ROCm 7, and put its lib folder into "
    "LD_LIBRARY_PATH"
)
pytestmark = pytest.mark.skipif(os.path.exists("/dev/kfd"), reason="this machine has AMD's driver")


def run(*words, **variables):
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **variables})


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """Folders with a libamdhip64.so.7 that answers as HIP's does: with a device, and with none (hipErrorNoDevice)."""
    if shutil.which("g++") is None:
        pytest.skip("no compiler for the library")
    folders = {}
    for name, status, count in (("device", 0, 1), ("none", 100, 0)):
        folder = tmp_path_factory.mktemp(name)
        source = folder / "hip.c"
        source.write_text(f"int hipGetDeviceCount(int* count) {{ *count = {count}; return {status}; }}\n")
        subprocess.run(["g++", "-shared", "-fPIC", "-x", "c", str(source), "-o", str(folder / "libamdhip64.so.7")], check=True)
        folders[name] = str(folder)
    return folders


def with_library(folder):
    return {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}


def hip_command(work, run_dir, *more):
    command = train_command(work, run_dir, rollouts=1)
    command[command.index("--device") + 1] = "hip"
    return [*command, *more]


def test_training_names_each_missing_part(work):
    done = run(*hip_command(work, work / "hip"))
    assert done.returncode == 2
    assert f"--device hip: {NO_DRIVER}; {NO_RUNTIME}" in done.stderr
    assert not (work / "hip" / "metrics.jsonl").exists()


def test_other_commands_name_them_too(work):
    for words in (
        ["check", "--device", "hip"],
        ["serve", "--model", str(work / "model"), "--device", "hip", "--port", "0"],
    ):
        done = run(SLIME, *words)
        assert done.returncode == 2, (words, done.stderr)
        assert NO_DRIVER in done.stderr and NO_RUNTIME in done.stderr


def test_a_runtime_without_a_device_is_quoted(work, runtime):
    done = run(*hip_command(work, work / "hip-none"), **with_library(runtime["none"]), HIP_VISIBLE_DEVICES="3")
    assert done.returncode == 2
    assert f"--device hip: {NO_DRIVER}; no AMD GPU (hipErrorNoDevice) (HIP_VISIBLE_DEVICES=3)" in done.stderr


def test_doctor_shows_the_runtime_and_what_is_missing(runtime):
    checks = json.loads(run(SLIME, "doctor", "--json", **with_library(runtime["device"])).stdout)["checks"]
    amd = [check for check in checks if check["what"].startswith("AMD GPUs: ")]
    assert len(amd) == 1 and amd[0]["state"] == "note"
    assert "runtime libamdhip64.so.7, 1 visible" in amd[0]["what"] and LABEL in amd[0]["cure"]
    assert any(check["what"] == NO_DRIVER for check in checks)
    without = json.loads(run(SLIME, "doctor", "--json").stdout)["checks"]
    assert not any("AMD GPUs" in check["what"] or "/dev/kfd" in check["what"] for check in without)


def test_auto_never_takes_it(work, runtime):
    command = train_command(work, work / "auto", rollouts=1, extra=["--dry-run"])
    command[command.index("--device") + 1] = "auto"
    done = run(*command, **with_library(runtime["device"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--device hip" not in done.stdout + done.stderr and "AMD GPU" not in done.stdout + done.stderr


def test_the_seeds_script_takes_it_where_the_driver_is(tmp_path):
    script, dry = ROOT / "scripts" / "run-qwen3-4B-amd.sh", ["--run-dir", str(tmp_path / "run"), "--dry-run"]
    driver = tmp_path / "kfd"
    driver.touch()
    done = run("bash", script, *dry, KFD=str(driver), SLIME_BINARY=str(SLIME))
    assert LABEL in done.stderr
    assert "--device hip: " + NO_DRIVER in done.stdout + done.stderr
    without = run("bash", script, *dry, KFD=str(tmp_path / "absent"), SLIME_BINARY=str(SLIME))
    assert without.returncode == 0, without.stdout + without.stderr
    assert "there is no AMD GPU" in without.stderr
    chosen = run("bash", script, *dry, KFD=str(driver), SLIME_BINARY=str(SLIME), DEVICE="cpu")
    assert chosen.returncode == 0 and LABEL not in chosen.stderr


@pytest.mark.parametrize("verb", ["train", "serve", "generate"])
def test_help_says_what_it_is(verb):
    said = run(SLIME, verb, "--help", "--device", COLUMNS="1000").stdout
    assert LABEL in " ".join(said.split())


def test_no_page_claims_speed_on_amd():
    """A sentence with a rate, a factor or the word fast does not name AMD's GPUs as this program's."""
    page = (ROOT / "docs" / "rocm.md").read_text()
    for word in ("tok/s", "tokens per second", "TFLOP", "faster", " fast", "speed-up", "times as"):
        assert word not in page, word
    readme = (ROOT / "README.md").read_text()
    assert LABEL in " ".join(readme.split())
