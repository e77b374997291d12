"""`pip install .`: the wheel carries program, packages and LibTorch's CPU side, and finds the rest in the environment."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, SLIME, metric, train_command

DEPS = Path(os.environ.get("SLIME_DEPS", ROOT / ".deps"))
BUILT = ROOT / "build" / "release" / "slime"

pytestmark = pytest.mark.skipif(
    SLIME.resolve() != BUILT.resolve() or not BUILT.exists(), reason="the wheel is made of build/release, which is not what is tested"
)


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=900, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    offline = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, ROOT, env=offline)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module", params=["beside", "elsewhere"])
def environment(request, wheel, tmp_path_factory):
    """A fresh environment with the wheel. The CUDA runtime of this build stands for the packages that the wheel requires, in the
    folder of packages or, as with --system-site-packages, elsewhere on the path."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    packages = Path(run(folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    if request.param == "beside":
        (packages / "nvidia").symlink_to(DEPS / "nvidia")
    else:
        other = tmp_path_factory.mktemp("other")
        (other / "nvidia").symlink_to(DEPS / "nvidia")
        (packages / "other.pth").write_text(f"{other}\n")
    return folder


def own(**changes):
    """The environment of a user who knows nothing of this clone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIME", "PYTHON", "LD_"))}
    return {**kept, **changes}


def test_a_wheel_is_whole_and_names_no_folder_of_this_machine(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("METADATA"))
        program = archive.read("slime/bin/slime")
    assert wheel.name.startswith("slime_rl-") and wheel.name.endswith("-py3-none-manylinux_2_34_x86_64.whl")
    assert {"slime/bin/slime-sandbox", "slime/lib/libtorch_cpu.so", "slime/__init__.py", "slime/py.typed", "slime/host/__main__.py"} <= names
    assert any(re.match("slime/lib/libarrow", name) for name in names) == ("slime/bin/libslime_arrow.so" in names)
    assert "Name: slime-rl\n" in metadata and "Requires-Dist: nvidia-cuda-runtime==" in metadata
    assert "Requires-Dist: torch" not in metadata, "3 GB for somebody who has no GPU"
    assert re.search(r'Requires-Dist: slime-rl-cuda==.*; extra == "cuda"', metadata)
    # Where libraries are looked for. Texts of LibTorch's own checks name the headers that they were compiled from.
    assert b"$ORIGIN/../lib" in program and str(DEPS / "torch" / "lib").encode() not in program


def test_no_symbol_is_newer_than_the_platform_that_the_name_promises(wheel, tmp_path):
    newest = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0), "GOMP": (5, 0)}
    with zipfile.ZipFile(wheel) as archive:
        files = [archive.extract(name, tmp_path) for name in archive.namelist() if re.match(r"slime/(bin|lib)/", name)]
    assert len(files) >= 5
    for file in files:
        found = re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC|GOMP)_(\d[\d.]*)", run("objdump", "-T", file))
        for library, version in set(found):
            assert tuple(map(int, version.split("."))) <= newest[library], f"{file}: {library}_{version}"


def test_without_what_libtorch_links_it_says_what_to_install(environment, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    code = "import importlib.util as u; u.find_spec = lambda name: None; import sys; sys.argv = ['slime', '--version']; import slime.program as p; p.main()"
    done = subprocess.run([environment / "bin" / "python", "-c", code], capture_output=True, text=True, env=own(), cwd=hidden)
    assert done.returncode == 1 and "pip install nvidia-cuda-runtime nvidia-cuda-cupti" in done.stderr, done.stderr


def test_program_and_package_are_there(environment, tmp_path):
    version = run(environment / "bin" / "slime", "--version", env=own(), cwd=tmp_path)
    code = "import slime, sys; assert 'torch' not in sys.modules; print('slime', slime.__version__)"
    assert run(environment / "bin" / "python", "-c", code, env=own(), cwd=tmp_path) == version
    run(environment / "bin" / "slime-sandbox", "--help", env=own(), cwd=tmp_path)


def test_a_plug_in_trains_for_two_steps(environment, work, tmp_path):
    (tmp_path / "my_reward.py").write_text(
        "import sys\n\nimport slime\n\nasync def reward(args, sample, **kwargs):\n    assert slime.__file__.startswith(sys.prefix)\n    return 1.0\n"
    )
    command = train_command(work, tmp_path / "run", rollouts=2, extra=["--custom-rm-path", "my_reward.py"])
    at = command.index("--rm-type")
    del command[at : at + 2]
    run(environment / "bin" / "slime", *command[1:], env=own(), cwd=tmp_path)
    assert metric(tmp_path / "run", "rollout/raw_reward") == [1, 1]


def test_rewards_of_the_package_are_the_carried_programs(environment, tmp_path):
    code = "from slime.rollout.rm_hub.native import score_and_wait as s; print(s('math', r'\\boxed{2}', '2'))"
    assert run(environment / "bin" / "python", "-c", code, env=own(), cwd=tmp_path).strip() in ("1", "1.0")
