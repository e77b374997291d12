"""Host sources of the GPU side compile as HIP by the table of names, against HIP's own headers and stubs of LibTorch's ROCm side.

HIP's headers are those that `./dev hip` installs (tools/build/amd_root.sh), or the folder that SLIME_HIP_HEADERS names.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPS = Path(os.environ.get("SLIME_DEPS", ROOT / ".deps"))
CUDA = ROOT / "src" / "kernels" / "cuda"
# The others include headers of kernels that bring CUDA's own, or name products of Hopper, cuBLASLt or cuDNN.
HOST = [
    "src/kernels/hip/driver_table.cpp",
    "src/kernels/hip/torch_side.cpp",
    "src/kernels/cuda/driver.cpp",
    "src/kernels/cuda/shared_memory.cpp",
    "src/kernels/cuda/virtual_memory.cpp",
]


def hip_headers():
    """None where `./dev hip` never ran; a folder that is there has them."""
    named = os.environ.get("SLIME_HIP_HEADERS")
    if not named and not (DEPS / "amd").exists():
        return None
    place = Path(named) if named else DEPS / "amd" / "include"
    header = place / "hip" / "hip_runtime_api.h"
    assert header.exists(), f"{header} is missing; ./dev hip makes $SLIME_DEPS/amd anew once it is deleted"
    return place


def compiled(source, text=None):
    if shutil.which("g++") is None or hip_headers() is None or not (DEPS / "torch" / "include").exists():
        pytest.skip("no HIP headers (./dev hip), or no compiler")
    folders = ["-Isrc/kernels/hip/include", "-Isrc"]
    for folder in ("tests/hip/torch_stubs", hip_headers(), DEPS / "torch/include", DEPS / "torch/include/torch/csrc/api/include"):
        folders += ["-isystem", str(folder)]
    command = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-D__HIP_PLATFORM_AMD__"]
    place = ["-x", "c++", "-"] if text is not None else [source]
    return subprocess.run([*command, *folders, *place], input=text, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("source", HOST)
def test_a_host_source_compiles_as_hip(source):
    done = compiled(source)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_name_that_is_in_no_table_does_not_compile():
    done = compiled(None, '#include <cuda_runtime.h>\nint main() { return cudaDeviceSynchronizeAll(); }\n')
    assert done.returncode != 0 and "cudaDeviceSynchronizeAll" in done.stderr


def test_headers_of_libtorchs_gpu_side_are_in_one_file():
    found = set()
    for source in [*CUDA.rglob("*.cpp"), *CUDA.rglob("*.h"), *CUDA.rglob("*.cu"), *CUDA.rglob("*.cuh")]:
        text = source.read_text()
        if not source.stem.endswith("_test") and re.search(r"#include <(c10/cuda|ATen/cuda|c10/hip|ATen/hip)/", text):
            found.add(source.name)
    assert found == {"torch_side.cpp"}


def test_stubs_and_their_user_name_the_same_headers():
    user = (ROOT / "src/kernels/hip/torch_side.cpp").read_text()
    stubs = ROOT / "tests/hip/torch_stubs"
    assert set(re.findall(r"#include <((?:c10|ATen)/hip/\S+)>", user)) == {str(stub.relative_to(stubs)) for stub in stubs.rglob("*.h")}
