#!/usr/bin/env python3
"""Unpacks from the downloaded pyarrow wheel what reading Parquet compiles against and links: 65 MB of 220.

    python3 tools/build/unpack_arrow.py WHEEL_DIR OUT_DIR     # OUT_DIR gets pyarrow/
"""

import re
import sys
import zipfile
from pathlib import Path

WANTED = re.compile(r"pyarrow/include/.*|pyarrow/lib(arrow|parquet)\.so[.\d]*")


def main() -> int:
    wheel_dir, out_dir = map(Path, sys.argv[1:3])
    count = 0
    for wheel in sorted(wheel_dir.glob("pyarrow-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if WANTED.fullmatch(name) and not name.endswith("/"):
                    archive.extract(name, out_dir)
                    count += 1
    print(f"unpacked {count} files into {out_dir}")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
