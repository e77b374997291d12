#!/usr/bin/env python3
"""Unpacks downloaded wheels for the CUDA side.

    python3 tools/build/unpack_cuda.py build WHEEL_DIR OUT_DIR   # compiler and headers: OUT_DIR/{bin,nvvm,include,lib,cudnn,flashinfer}
    python3 tools/build/unpack_cuda.py run WHEEL_DIR OUT_DIR     # shared libraries: OUT_DIR/{torch,nvidia}
"""

import re
import sys
import zipfile
from pathlib import Path

# (pattern of a file in a wheel, what its name becomes). FlashInfer brings the CCCL that its headers need.
WANTED = {
    "build": [
        (re.compile(r"nvidia/cu13/((?:bin|nvvm|include|lib)/.*)"), r"\1"),
        (re.compile(r"nvidia/cudnn/(include/.*)"), r"cudnn/\1"),
        (re.compile(r"(include/cudnn_(?:frontend|backend_base).*)"), r"cudnn/\1"),
        (re.compile(r"flashinfer/data/((?:include|cccl/(?:cub/cub|thrust/thrust|libcudacxx/include))/.*)"), r"flashinfer/\1"),
    ],
    "run": [
        (re.compile(r"(torch/lib/lib(?:c10_cuda|torch_cuda|torch_cuda_linalg|torch_nvshmem|caffe2_nvrtc)\.so[.\d]*)"), r"\1"),
        (re.compile(r"(nvidia/\w+/lib/lib.*\.so[.\d]*)"), r"\1"),
    ],
}


def main() -> int:
    kind, wheel_dir, out_dir = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    count = 0
    for wheel in sorted(wheel_dir.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                for pattern, name in WANTED[kind]:
                    if entry.is_dir() or not (match := pattern.fullmatch(entry.filename)):
                        continue
                    target = out_dir / match.expand(name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(entry) as source, target.open("wb") as out:
                        while block := source.read(1 << 20):
                            out.write(block)
                    if entry.external_attr >> 16 & 0o111:  # zipfile drops the executable bit
                        target.chmod(0o755)
                    count += 1
    print(f"unpacked {count} files into {out_dir}")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
