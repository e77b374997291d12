#!/usr/bin/env python3
"""Checks that libslime_hip.so lacks nothing but what a machine with ROCm brings, and that it can be loaded.

    python3 tools/build/check_hip_library.py LIBRARY NAMES LIBTORCH...    # prints what is wrong, exits 1 if anything is

An undefined symbol is in the C and C++ libraries (it has a version then), in one of the libraries LIBTORCH, or in the file NAMES: a
symbol a line, of HIP's runtime or of LibTorch's ROCm side. A name there that the library does not need is wrong too.

It is loaded beside a library with those names whose functions all answer 100, hipErrorNoDevice; what it says when a GPU is to be opened
is printed.
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path


def symbols(library: str, which: str) -> set[str]:
    lines = subprocess.run(["nm", "-D", "--format=posix", which, library], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[0] for line in lines if line.split()[1] not in "wv"}


def read_names(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}


def problems_of(library: str, names_path: str, libtorch: list[str]) -> list[str]:
    names = read_names(Path(names_path))
    undefined = {symbol for symbol in symbols(library, "--undefined-only") if "@" not in symbol}
    for other in libtorch:
        undefined -= {symbol.split("@")[0] for symbol in symbols(other, "--defined-only")}
    return [f"{Path(library).name} lacks {symbol}" for symbol in sorted(undefined - names)] + [
        f"{names_path} names {symbol}, which {Path(library).name} does not need" for symbol in sorted(names - undefined)
    ]


class String(ctypes.Structure):
    """libstdc++'s std::string, empty."""

    _fields_ = [("begin", ctypes.c_void_p), ("size", ctypes.c_size_t), ("room", ctypes.c_char * 16)]

    def __init__(self):
        super().__init__()
        self.begin = ctypes.addressof(self) + String.room.offset


def answer_of(library: str, names_path: str, libtorch: list[str]) -> str:
    """What slime_open_gpu says where there is no GPU. Throws OSError for a library that cannot be loaded."""
    with tempfile.TemporaryDirectory() as folder:
        source, runtime = Path(folder) / "runtime.c", Path(folder) / "runtime.so"
        source.write_text("".join(f"int {name}() {{ return 100; }}\n" for name in sorted(read_names(Path(names_path)))))
        subprocess.run(["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", source, "-o", runtime], check=True)
        for other in [*libtorch, runtime]:
            ctypes.CDLL(str(other), mode=ctypes.RTLD_GLOBAL)
        loaded = ctypes.CDLL(str(Path(library).absolute()), mode=2)  # RTLD_NOW
    loaded.slime_cuda_interface.restype = ctypes.c_char_p
    assert len(loaded.slime_cuda_interface()) == 16
    said = String()
    loaded.slime_open_gpu.restype = ctypes.c_void_p
    assert loaded.slime_open_gpu(ctypes.byref(said)) is None
    return ctypes.string_at(said.begin, said.size).decode()


def main() -> int:
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    library, names, *libtorch = sys.argv[1:]
    if problems := problems_of(library, names, libtorch):
        print("\n".join(problems), file=sys.stderr)
        return 1
    print(f"{Path(library).name} lacks {len(read_names(Path(names)))} symbols, all of them of HIP's runtime and of LibTorch's ROCm side")
    print(f"loaded without a GPU it says: {answer_of(library, names, libtorch)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
