"""What ./dev is made of: the line of progress, and the question to the GPU."""

import importlib.util
import io
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def progress():
    spec = importlib.util.spec_from_file_location("progress", ROOT / "tools" / "build" / "progress.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(lines, *, is_terminal=False):
    log, out, seconds = io.StringIO(), io.StringIO(), iter(range(10_000))
    progress().watch(lines, log, out, is_terminal, lambda: next(seconds))
    assert log.getvalue() == "".join(lines), "the log has everything"
    return out.getvalue()


def steps(first, last, total=100):
    return [f"[{i}/{total}] Building CXX object CMakeFiles/slime_net.dir/units/net_{i}.cpp.o\n" for i in range(first, last + 1)]


def test_a_log_gets_ten_lines_and_the_time_that_is_left():
    lines = shown(steps(1, 100)).splitlines()
    assert len(lines) == 10
    assert lines[0] == "    10/100, 1:30 left" and lines[-1].strip() == "100/100"


def test_a_terminal_sees_the_file_that_is_compiled():
    assert "\r\033[K    3/100  compiling net_3.cpp" in shown(steps(1, 3), is_terminal=True)


def test_warnings_and_errors_are_shown_whole_and_nothing_else():
    said = [
        "../src/system_error.cpp: In function 'int f()':\n",
        "../src/system_error.cpp:3:1: warning: no return statement [-Wreturn-type]\n",
        "    3 | }\n",
        "      | ^\n",
    ]
    quiet = ["In file included from /usr/include/c++/12/system_error:41,\n"]
    assert shown([*steps(1, 1), *said, *steps(2, 2), *quiet, *steps(3, 3)]) == "".join(said[1:])
    failed = ["FAILED: a.o \n", "/usr/bin/c++ -c a.cpp\n", "a.cpp:1:2: error: what\n", "ninja: build stopped: subcommand failed.\n"]
    assert shown([*steps(1, 1), *failed]) == "".join(failed)
    assert shown(["ninja: no work to do.\n"]) == ""


def architectures(tmp_path, capabilities, **changes):
    """What ./dev compiles for where the driver names these GPUs."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '%s\\n' " + " ".join(capabilities) + "\n")
    tool.chmod(0o755)
    script = 'stop() { echo "$*" >&2; exit 1; }; source tools/build/setup.sh; set -euo pipefail; cuda_architectures'
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLIME_CUDA")}
    environment = {**kept, "PATH": f"{tmp_path}:{os.environ['PATH']}", **changes}
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_the_gpus_of_the_machine_are_compiled_for(tmp_path):
    assert architectures(tmp_path, ["9.0", "9.0"]).stdout == "90a\n"
    assert architectures(tmp_path, ["12.0", "8.6", "8.0", "10.0", "8.9"]).stdout == "80,86,89,100a,120\n"
    assert architectures(tmp_path, ["9.0"], SLIME_CUDA_ARCHITECTURES="80").stdout == "80\n"


def test_a_gpu_without_kernels_is_refused_before_anything_is_compiled(tmp_path):
    done = architectures(tmp_path, ["7.5"])
    assert done.returncode == 1 and "compute capability 7.5" in done.stderr and "SLIME_CUDA=0" in done.stderr


def test_a_driver_that_says_nothing_leaves_the_default(tmp_path):
    done = architectures(tmp_path, ["'No devices were found'"])
    assert (done.returncode, done.stdout.strip()) == (0, "")


def amd_processors(**changes):
    """What ./dev hip compiles for."""
    script = 'stop() { echo "$*" >&2; exit 1; }; source tools/build/hip.sh; set -euo pipefail; hip_processors'
    kept = {name: value for name, value in os.environ.items() if name != "SLIME_HIP_ARCHITECTURES"}
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env={**kept, **changes}, capture_output=True, text=True)


def test_kernels_are_compiled_for_the_amd_gpus_that_are_named():
    assert amd_processors().stdout.split() == ["gfx942", "gfx950"]
    assert amd_processors(SLIME_HIP_ARCHITECTURES="gfx950").stdout.split() == ["gfx950"]
    assert amd_processors(SLIME_HIP_ARCHITECTURES="gfx942,gfx950").stdout.split() == ["gfx942", "gfx950"]
    done = amd_processors(SLIME_HIP_ARCHITECTURES="gfx942,gfx1100")
    assert (done.returncode, done.stdout) == (1, "") and '"gfx1100"; there are: gfx942,gfx950' in done.stderr
