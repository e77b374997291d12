"""Build backend of the wheels: `slime-rl`, the packages and the program with its libraries, and `slime-rl-cuda`, the GPU side.

`pip install .` in a clone calls it (PEP 517), `./dev wheel` too. It has no requirements, so that nothing is downloaded; what it
packs is the clone's build/release, which ./dev builds. docs/decisions/0147-wheel.md says what is in them and why.

    python3 tools/build/wheel/slime_wheel.py OUT_DIR      # slime-rl, and slime-rl-cuda where SLIME_CUDA=1 builds the GPU side
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("slime", "slime_plugins")
# The oldest C library that the program runs with; tools/build/wheel/audit.sh proves it.
TAG = "py3-none-manylinux_2_34_x86_64"
COMMANDS = "[console_scripts]\nslime = slime.program:main\nslime-sandbox = slime.program:sandbox_main\n"
# Debian's packages that are linked statically; their licences travel along.
STATIC_PACKAGES = (
    ("libboost*-dev", "libboost-url*-dev", "libbsd-dev", "libcli11-dev", "libedit-dev", "libexpected-dev", "libmd-dev")
    + ("libncurses-dev", "libpcre2-dev", "libssl-dev", "libyaml-cpp-dev")
)


def _found(pattern, file):
    return re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)[1]


def _version():
    return _found(r'^__version__ = "(.*)"$', "python/slime/__init__.py")


def _pin(package, file="libtorch"):
    """`package==version`, as ./dev setup downloads it."""
    return _found(rf"^({package}==\S+) ", f"tools/build/requirements/{file}.txt")


def _requirements(name):
    version = _version()
    if name == "slime-rl-cuda":
        return [f"slime-rl=={version}", _pin("torch")]
    return [
        # What LibTorch's CPU side links of CUDA.
        _pin("nvidia-cuda-runtime"),
        _pin("nvidia-cuda-cupti"),
        f'slime-rl-cuda=={version}; extra == "cuda"',
    ]


def _metadata(name):
    summary = {
        "slime-rl": "Reinforcement learning for language models, in one program",
        "slime-rl-cuda": "The GPU side of slime-rl",
    }[name]
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {_version()}",
        f"Summary: {summary}",
        "Author: The slime maintainers",
        "License: Apache-2.0",
        "Keywords: reinforcement learning,language models,GRPO,post-training",
        "Classifier: Environment :: Console",
        "Classifier: Environment :: GPU :: NVIDIA CUDA",
        "Classifier: Intended Audience :: Science/Research",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: C++",
        "Classifier: Programming Language :: Python :: 3",
        "Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Requires-Python: >=3.9",
        *(["Provides-Extra: cuda"] if name == "slime-rl" else []),
        *(f"Requires-Dist: {requirement}" for requirement in _requirements(name)),
    ]
    if name == "slime-rl":
        lines += ["Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text()]
    return "\n".join([*lines, ""])


def _licenses():
    """(name in the wheel, text) of what the program links. A folder of dependencies that was unpacked for a build alone has none
    of LibTorch's and Arrow's: ./dev wheel fetches them."""
    deps = Path(os.environ.get("SLIME_DEPS", ROOT / ".deps"))
    found = {"LICENSE": ROOT / "LICENSE"}
    for file in sorted([*deps.glob("licenses/*/*"), *deps.glob("xgrammar/LICENSE"), *deps.glob("xgrammar/NOTICE")]):
        found[f"{file.parent.name}/{file.name}"] = file
    for package in STATIC_PACKAGES:
        for file in sorted(Path("/usr/share/doc").glob(f"{package}/copyright")):
            found[f"{file.parent.name}/copyright"] = file
    return [(f"licenses/{name}", file.read_bytes()) for name, file in found.items()]


class _Wheel:
    """A wheel that is being written; its RECORD comes last."""

    def __init__(self, folder, name):
        stem = f"{name.replace('-', '_')}-{_version()}"
        self.name = f"{stem}-{TAG}.whl"
        self._archive = zipfile.ZipFile(Path(folder) / self.name, "w", zipfile.ZIP_DEFLATED)
        self._record = []
        self.info = f"{stem}.dist-info"
        self.add(f"{self.info}/METADATA", _metadata(name).encode())
        self.add(
            f"{self.info}/WHEEL",
            f"Wheel-Version: 1.0\nGenerator: slime_wheel\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(),
        )
        for path, data in _licenses():
            self.add(f"{self.info}/{path}", data)

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._archive.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        record = f"{self.info}/RECORD"
        self._archive.writestr(record, "\n".join([*self._record, f"{record},,", ""]))
        self._archive.close()
        return self.name


def _installed(component, folder):
    """What the build installs as this component, without symbols: files under folder."""
    command = ["cmake", "--install", ROOT / "build" / "release", "--component", component, "--prefix", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for file in files:
        subprocess.run(["strip", file], check=True)
    return files


def _pack(wheel_directory, name, component):
    folder = Path(tempfile.mkdtemp())
    try:
        wheel = _Wheel(wheel_directory, name)
        if name == "slime-rl":
            wheel.add(f"{wheel.info}/entry_points.txt", COMMANDS.encode())
            for package in PACKAGES:
                folder_of_package = ROOT / "python" / package
                for file in sorted([*folder_of_package.rglob("*.py"), *folder_of_package.glob("py.typed")]):
                    wheel.add(str(file.relative_to(ROOT / "python")), file.read_bytes())
        for file in _installed(component, folder):
            mode = 0o755 if file.parent.name == "bin" else 0o644
            wheel.add(f"slime/{file.relative_to(folder)}", file.read_bytes(), mode)
        return wheel.close()
    finally:
        shutil.rmtree(folder)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """slime-rl; with `pip wheel --config-settings part=cuda` slime-rl-cuda."""
    subprocess.run([ROOT / "dev", "build", "release", "slime"], cwd=ROOT, check=True)
    if (config_settings or {}).get("part") == "cuda":
        return _pack(wheel_directory, "slime-rl-cuda", "wheel_cuda")
    return _pack(wheel_directory, "slime-rl", "wheel")


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """For `pip install -e .`: the clone's own packages, and the program where the clone builds it."""
    wheel = _Wheel(wheel_directory, "slime-rl")
    wheel.add(f"{wheel.info}/entry_points.txt", COMMANDS.encode())
    wheel.add("slime.pth", f"{ROOT / 'python'}\n".encode())
    return wheel.close()


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("slime is installed from a wheel or from a clone: pip install .")


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_editable(config_settings=None):
    return []


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    print(folder / build_wheel(folder))
    if (ROOT / "build" / "release" / "libslime_cuda.so").exists():
        print(folder / _pack(folder, "slime-rl-cuda", "wheel_cuda"))


if __name__ == "__main__":
    main()
