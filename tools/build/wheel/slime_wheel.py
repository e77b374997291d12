"""Builds the wheel of `pip install .`: the Python packages, and in slime/bin the program, which ./dev builds.

A build backend of PEP 517 without requirements, so that nothing but the program's own libraries is downloaded. The build
is that of the clone, build/release: what is there is used again.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("slime", "slime_plugins")
NAME = "slime"
COMMANDS = "[console_scripts]\nslime = slime.program:main\nslime-sandbox = slime.program:sandbox_main\n"


def _found(pattern, file):
    return re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)[1]


def _version():
    return _found(r'^__version__ = "(.*)"$', "python/slime/__init__.py")


def _metadata():
    torch = _found(r"^TORCH_VERSION=(.*)$", "tools/build/setup.sh")
    return (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {_version()}\n"
        "Summary: Reinforcement learning for language models, in one program\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\n"
        f"Requires-Dist: torch=={torch}\n"
    )


def _build(folder):
    """slime, slime-sandbox and the libraries beside them, stripped, in folder/bin."""
    subprocess.run([ROOT / "dev", "build", "release", "slime"], cwd=ROOT, check=True)
    install = ["cmake", "--install", ROOT / "build" / "release", "--component", "wheel", "--strip", "--prefix", folder]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)


class _Wheel:
    """A wheel that is being written; its RECORD comes last."""

    def __init__(self, folder, tag):
        self.name = f"{NAME}-{_version()}-{tag}.whl"
        self._archive = zipfile.ZipFile(Path(folder) / self.name, "w", zipfile.ZIP_DEFLATED)
        self._record = []
        self.info = f"{NAME}-{_version()}.dist-info"
        self.add(f"{self.info}/METADATA", _metadata().encode())
        self.add(
            f"{self.info}/WHEEL",
            f"Wheel-Version: 1.0\nGenerator: slime_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        )
        self.add(f"{self.info}/entry_points.txt", COMMANDS.encode())
        self.add(f"{self.info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())

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


def _tag():
    machine = os.uname()
    return f"py3-none-{machine.sysname.lower()}_{machine.machine}"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = Path(tempfile.mkdtemp())
    try:
        _build(folder)
        wheel = _Wheel(wheel_directory, _tag())
        for package in PACKAGES:
            for file in sorted((ROOT / "python" / package).rglob("*.py")):
                wheel.add(str(file.relative_to(ROOT / "python")), file.read_bytes())
        for file in sorted((folder / "bin").iterdir()):
            wheel.add(f"slime/bin/{file.name}", file.read_bytes(), 0o755)
        return wheel.close()
    finally:
        shutil.rmtree(folder)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """For `pip install -e .`: the clone's own packages, and the program where the clone builds it."""
    wheel = _Wheel(wheel_directory, _tag())
    wheel.add("slime.pth", f"{ROOT / 'python'}\n".encode())
    return wheel.close()


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("slime is installed from a clone: pip install .")


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_editable(config_settings=None):
    return []
