#!/usr/bin/env python3
"""Unpacks from downloaded wheels what a CPU build of slime compiles against and links: about 0.5 GB instead of 1.1.

    python3 tools/build/unpack_libtorch.py WHEEL_DIR OUT_DIR     # OUT_DIR gets torch/ and nvidia/
"""

import re
import sys
import zipfile
from pathlib import Path

WANTED = re.compile(
    r"torch/include/.*"
    r"|torch/lib/lib(c10|torch_cpu|gomp)\.so[.\d]*"
    r"|nvidia/cu13/lib/lib(cudart|cupti)\.so[.\d]*"
)


def main() -> int:
    wheel_dir, out_dir = map(Path, sys.argv[1:3])
    count = 0
    for wheel in sorted(wheel_dir.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if WANTED.fullmatch(name) and not name.endswith("/"):
                    archive.extract(name, out_dir)
                    count += 1
    print(f"unpacked {count} files into {out_dir}")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
