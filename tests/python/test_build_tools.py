"""What ./dev is made of: the line of progress, the question to the GPU, the checks of code for AMD's GPUs."""

import importlib.util
import io
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "build" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def progress():
    return tool("progress")


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


def ci_run(folder, *, hip_status, seconds=0):
    """.ci/run in a clone whose ./dev only says what it is asked; `seconds` have gone by when it begins."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    dev = folder / "dev"
    dev.write_text(f'#!/bin/sh\necho "asked: $*"\nif [ "$1" = hip ]; then exit {hip_status}; fi\n')
    dev.chmod(0o755)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "SECONDS": str(seconds)}
    return subprocess.run(["bash", str(folder / ".ci" / "run")], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("hip_status", "seconds", "returned", "said"),
    [
        (0, 0, 0, None),
        (3, 0, 0, "skipped: ./dev hip, because its packages cannot be had here"),
        (124, 0, 0, "skipped: the rest of ./dev hip, because its time was over"),
        (0, 77 * 60, 0, "skipped: ./dev hip, because less than eight minutes of .ci/run were left"),
        (1, 0, 1, None),
    ],
)
def test_ci_checks_kernels_for_amd_where_it_can(tmp_path, hip_status, seconds, returned, said):
    done = ci_run(tmp_path, hip_status=hip_status, seconds=seconds)
    skipped = [line for line in done.stdout.splitlines() if line.startswith("skipped: ") and "./dev hip" in line]
    assert (done.returncode, skipped) == (returned, [] if said is None else [said]), done.stdout + done.stderr
    assert ("asked: hip" in done.stdout.splitlines()) == (seconds == 0)


def test_an_amd_compiler_that_cannot_be_had_has_a_status_of_its_own(tmp_path):
    script = 'LOG_DIR=/tmp; source tools/build/hip.sh; has_amd_compiler() { return 1; }; set -euo pipefail; require_amd_compiler'
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, "SLIME_SKIP_APT": "1"}, capture_output=True, text=True)
    assert done.returncode == 3 and "clang-22 clang-tools-22 lld-22 llvm-22 are missing" in done.stderr


@pytest.fixture
def library_and_libtorch(tmp_path):
    """A library that needs one function of LibTorch and one of HIP's runtime, and the LibTorch."""
    if shutil.which("gcc") is None:
        pytest.skip("no compiler")
    sources = {
        "libtorch": "int of_torch(void) { return 1; }",
        "libslime_hip": "int of_torch(void); int hipInit(void); int f(void) { return of_torch() + hipInit(); }",
    }
    for name, text in sources.items():
        subprocess.run(["gcc", "-x", "c", "-", "-shared", "-fPIC", "-o", tmp_path / f"{name}.so"], input=text, text=True, check=True)
    return tmp_path / "libslime_hip.so", tmp_path / "libtorch.so"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("# comment\nhipInit\n", None),
        ("", "libslime_hip.so lacks hipInit"),
        ("hipInit\nhipFree\n", "names hipFree, which libslime_hip.so does not need"),
    ],
)
def test_a_library_for_amd_lacks_nothing_but_what_is_named(tmp_path, library_and_libtorch, names, problem):
    library, libtorch = library_and_libtorch
    listed = tmp_path / "names.txt"
    listed.write_text(names)
    problems = tool("check_hip_library").problems_of(str(library), str(listed), [str(libtorch)])
    assert len(problems) == (problem is not None) and (problem is None or problems[0].endswith(problem)), problems


def test_a_bare_machine_has_its_packages_before_the_wheel_is_fetched():
    said = "for name in require_amd_compiler require_packages require_amd_root; do eval \"$name() { echo $name; }\"; done"
    script = f"SLIME_DEPS=/tmp; source tools/build/hip.sh; {said}; build() {{ echo build $*; exit 0; }}; hip"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split("\n")[:4] == ["require_amd_compiler", "require_packages", "require_amd_root", "build release slime_hip"], done.stderr


DISASSEMBLY = """
0000000000001000 <_ZN5slime7kernels4cuda12_GLOBAL__N_110add_kernelEPf>:
\ts_load_dwordx2 s[0:1], s[4:5], 0x0
\ts_endpgm
\ts_nop 0
"""
NOTES = """
  - .name:           _ZN5slime7kernels4cuda12_GLOBAL__N_110add_kernelEPf
    .sgpr_spill_count: 2
    .symbol:         _ZN5slime7kernels4cuda12_GLOBAL__N_110add_kernelEPf.kd
    .vgpr_spill_count: {spilled}
    .wavefront_size: {lanes}
"""


def checked_code(tmp_path, monkeypatch, *, instructions=9, spilled=1, lanes=64, table="", of_matrices=(), first="s_load_dwordx2"):
    """check_amd_code.py on one code object of one kernel: its status."""
    checker = tool("check_amd_code")
    monkeypatch.setattr(checker, "OF_MATRICES", of_matrices)
    text = DISASSEMBLY.replace("\ts_endpgm\n", "\ts_endpgm\n" * (instructions - 1)).replace("s_load_dwordx2", first)
    monkeypatch.setattr(checker, "tool", lambda name, *_: NOTES.format(spilled=spilled, lanes=lanes) if name == "llvm-readelf" else text)
    (tmp_path / "table.tsv").write_text(table)
    monkeypatch.setattr("sys.argv", ["check", str(tmp_path / "table.tsv"), str(tmp_path / "add.gfx942.co")])
    return checker.main()


def test_code_for_amd_is_neither_empty_nor_spills_more_than_the_table(tmp_path, monkeypatch, capsys):
    table = "add_kernel\tgfx942\t1\t2\n"
    assert checked_code(tmp_path, monkeypatch, table=table) == 0
    for change, said in (
        ({"instructions": 8}, "is empty: 8 instructions"),
        ({"spilled": 2}, "spills 2 vector and 2 scalar registers; the table has 1 and 2"),
        ({"lanes": 32}, "has waves of 32 lanes"),
        ({"of_matrices": ("add_kernel",)}, "has no matrix instruction"),
    ):
        assert checked_code(tmp_path, monkeypatch, table=table, **change) == 1
        assert said in capsys.readouterr().err
    assert checked_code(tmp_path, monkeypatch, table=table, of_matrices=("add_kernel",), first="v_mfma_f32_16x16x16_bf16") == 0
    assert checked_code(tmp_path, monkeypatch, spilled=0) == 1, "a kernel that is not in the table spills nothing"


def test_each_kernel_file_is_portable_or_named_with_what_it_needs():
    text = (ROOT / "cmake" / "portable_kernels.cmake").read_text()
    listed = re.search(r"set\(slime_portable_kernels(.*?)\)", text, re.DOTALL)[1].split()
    files = {str(path.relative_to(ROOT / "src/kernels/cuda").with_suffix("")) for path in (ROOT / "src/kernels/cuda").rglob("*.cu")}
    assert set(listed) <= files
    comments = " ".join(line for line in text.splitlines() if line.startswith("#"))
    named = set(re.findall(r"[a-z0-9]+/[a-z0-9_]+\*?", comments))
    named |= {f"{folder}/{file}" for folder, group in re.findall(r"([a-z0-9]+)/\{([a-z0-9_,]+)\}", comments) for file in group.split(",")}
    for name in files - set(listed):
        assert re.sub(r"(attend_(?:tiles|exact)_).*", r"\1*", name) in named, name
    own = {name for name in files if not re.search("attend_(tiles|exact)_", name)}
    assert len(listed) >= 22 and len(listed) > len(own) / 2
