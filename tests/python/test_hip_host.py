"""Host sources of the GPU side compile as HIP by the table of names, against HIP's own headers and stubs of LibTorch's ROCm side; and no
sentence says how quickly AMD's GPUs compute, for nobody here has seen one.

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


def host_sources():
    """Of cmake/hip.cmake: those of src/kernels/cuda but what HIP has others of, and its own."""
    alone = re.search(r"set\(slime_host_of_cuda_alone\s([^)]*)\)", (ROOT / "cmake/hip.cmake").read_text())[1].split()
    others = {CUDA / f"{name}.cpp" for name in alone}
    assert all(path.exists() for path in others)
    found = {*CUDA.rglob("*.cpp"), *(ROOT / "src/kernels/hip").glob("*.cpp")} - others
    return sorted(str(path.relative_to(ROOT / "src")) for path in found if not path.stem.endswith("_test"))


def hip_headers():
    """None where `./dev hip` never ran; a folder that is there has them."""
    named = os.environ.get("SLIME_HIP_HEADERS")
    if not named and not (DEPS / "amd").exists():
        return None
    place = Path(named) if named else DEPS / "amd" / "include"
    header = place / "hip" / "hip_runtime_api.h"
    assert header.exists(), f"{header} is missing; ./dev hip makes $SLIME_DEPS/amd anew once it is deleted"
    return place


def compiled(text):
    if shutil.which("g++") is None or hip_headers() is None or not (DEPS / "torch" / "include").exists():
        pytest.skip("no HIP headers (./dev hip), or no compiler")
    folders = ["-Isrc/kernels/hip/include", "-Isrc"]
    for folder in ("tests/hip/torch_stubs", hip_headers(), DEPS / "torch/include", DEPS / "torch/include/torch/csrc/api/include"):
        folders += ["-isystem", str(folder)]
    command = ["g++", "-std=c++20", "-fsyntax-only", "-fopenmp", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-Wno-unused-parameter"]
    command += ["-Wno-missing-field-initializers", "-D__HIP_PLATFORM_AMD__", "-DSLIME_TORCH_STUBS"]
    return subprocess.run([*command, *folders, "-x", "c++", "-"], input=text, capture_output=True, text=True, cwd=ROOT)


def test_the_host_side_compiles_as_hip():
    sources = host_sources()
    assert len(sources) > 25
    done = compiled("".join(f'#include "{source}"\n' for source in sources))
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_name_that_is_in_no_table_does_not_compile():
    done = compiled('#include <cuda_runtime.h>\nint main() { return cudaDeviceSynchronizeAll(); }\n')
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


AMD_GPUS = re.compile(r"AMD GPU|AMD's GPU|GPUs? of AMD|\bROCm\b|\bgfx9\w+|\bMI3\d\d|\bInstinct\b|--device hip")
SPEED = re.compile(r"tok/s|tokens? (per|a|each) second|FLOP|\bfast(er|est)?\b|speed|throughput|times as|\b\d+([.,]\d+)? ?(%|ms\b)", re.IGNORECASE)
SPEAKS_OF_NONE = "nothing is said about speed there"


def claims_of_speed(text):
    """Sentences, cells of tables and lines of lists that name AMD's GPUs and a speed."""
    parts = re.split(r"(?<=[.!?])\s+|\s\|\s|\n\s*\n|\n\s*[-#*|]", text)
    return [part for part in parts if AMD_GPUS.search(part) and SPEED.search(part) and SPEAKS_OF_NONE not in part]


def test_a_claim_of_speed_is_found():
    assert claims_of_speed("One. An MI300X makes 5000\ntok/s here. Two.") and claims_of_speed("- ROCm: 20 % faster\n")
    assert not claims_of_speed("A fast kernel. AMD GPUs are a preview.\n| 5 ms | gfx942 |\n")


def test_no_sentence_says_how_quickly_amds_gpus_compute():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    texts = [name for name in tracked if name.endswith((".md", ".h", ".cuh", ".cu", ".cpp", ".cmake", ".sh", ".rocm")) and "tests/" not in name]
    found = {name: claims for name in texts if (claims := claims_of_speed((ROOT / name).read_text()))}
    assert len(texts) > 500 and not found, found
