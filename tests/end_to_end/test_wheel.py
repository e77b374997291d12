"""`pip install .`: the wheel carries program and packages, and finds LibTorch in the environment that it is installed in."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, SLIME, metric, train_command

LIBTORCH = Path(os.environ.get("SLIME_DEPS", ROOT / ".deps"))
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
    """A fresh environment with the wheel. LibTorch of this build stands for the package torch, in the folder of packages or,
    as with --system-site-packages, elsewhere on the path."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    packages = Path(run(folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    if request.param == "beside":
        for name in ("torch", "nvidia"):
            (packages / name).symlink_to(LIBTORCH / name)
    else:
        (packages / "libtorch.pth").write_text(f"{LIBTORCH}\n")
    return folder


def own(**changes):
    """The environment of a user who knows nothing of this clone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIME", "PYTHON", "LD_"))}
    return {**kept, **changes}


def test_a_wheel_finds_torch_beside_it_and_not_in_a_folder_of_this_machine(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("METADATA"))
        program = archive.read("slime/bin/slime")
    assert {"slime/bin/slime-sandbox", "slime/__init__.py", "slime/host/__main__.py"} <= set(names)
    assert "Requires-Dist: torch==2.11.0" in metadata
    # Where libraries are looked for. Texts of LibTorch's own checks name the headers that they were compiled from.
    assert b"$ORIGIN/../../torch/lib" in program and str(LIBTORCH / "torch" / "lib").encode() not in program


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
