#!/usr/bin/env python3
"""Whether two cubins hold the same machine code, whatever its symbols are called: a change that should change nothing.

    nvcc -cubin -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a -Isrc FILE.cu -o after.cubin
    python3 tools/build/compare_cubins.py before.cubin after.cubin

Prints how many kernels they have, and which differ; exits 1 if any does.
"""

import struct
import sys
from pathlib import Path


def code_of(path: str) -> dict[str, bytes]:
    """The section of each kernel in an ELF file of 64 bits."""
    data = Path(path).read_bytes()
    if data[:5] != b"\x7fELF\x02":
        sys.exit(f"{path} is no ELF file of 64 bits")
    (first,) = struct.unpack_from("<Q", data, 0x28)
    count, names_index = struct.unpack_from("<HH", data, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, first + 64 * i) for i in range(count)]
    names = data[headers[names_index][4] :][: headers[names_index][5]]
    code = {}
    for header in headers:
        name = names[header[0] : names.index(b"\0", header[0])].decode()
        if name.startswith(".text."):
            code[name.removeprefix(".text.")] = data[header[4] :][: header[5]]
    return code


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    before, after = map(code_of, sys.argv[1:])
    if sorted(before.values()) == sorted(after.values()):
        print(f"the same: {len(after)} kernels")
        return 0
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            print(f"differs: {name}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
