#!/usr/bin/env python3
"""Checks code objects for AMD's GPUs without such a GPU: none is empty, waves have 64 lanes, kernels that are written for
matrix instructions have some, registers spill no more than a table says.

    python3 tools/build/check_amd_code.py TABLE OBJECT...            # prints what is wrong, exits 1 if anything is
    python3 tools/build/check_amd_code.py --write TABLE OBJECT...    # writes the table anew, where it has become smaller;
                                                                     # lines of processors without an object stay

An object is one of one processor, NAME.gfx942.co. TABLE has a line for each kernel that spills, with the most that one of its
instances does: `kernel  processor  vector registers  scalar registers`. LLVM's tools are those of $SLIME_LLVM
(/usr/lib/llvm-22/bin).
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

TOOLS = Path(os.environ.get("SLIME_LLVM", "/usr/lib/llvm-22/bin"))
# A kernel that returns at once has two or three; one that does anything reads its arguments first.
FEWEST_INSTRUCTIONS = 9
PADDING = ("s_nop", "s_code_end")
# Kernels that multiply by v_mfma_* (src/kernels/cuda/vendor/tile_layout.cuh): every instance of them.
OF_MATRICES = ("attend_rows_kernel",)


def tool(name: str, *arguments: str) -> str:
    return subprocess.run([TOOLS / name, *arguments], check=True, capture_output=True, text=True).stdout


def kernels_of(notes: str) -> list[dict[str, str]]:
    """The metadata of each kernel, from the notes of a code object."""
    kernels = []
    for block in re.split(r"^  - ", notes, flags=re.MULTILINE)[1:]:
        found = dict(re.findall(r"^ {2,4}\.(\w+): +(\S+)$", "    " + block, flags=re.MULTILINE))
        if "symbol" in found:
            kernels.append(found)
    return kernels


def instructions_of(disassembly: str, prefix: str = "") -> Counter:
    """Instructions of each symbol that begin so, without what fills it up behind its end."""
    counts, symbol = Counter(), ""
    for line in disassembly.splitlines():
        if match := re.match(r"^[0-9a-f]+ <(.+)>:$", line):
            symbol = match[1]
        elif line.startswith("\t") and (words := line.split()) and words[0] not in PADDING and words[0].startswith(prefix):
            counts[symbol] += 1
    return counts


def plain_name(symbol: str) -> str:
    """The kernel's name without namespaces and template arguments: instances share a line of the table."""
    return re.findall(r"\d+([a-z0-9_]+_kernel)", symbol)[-1]


def check(objects: list[Path]) -> tuple[list[str], dict[tuple[str, str], tuple[int, int]], int]:
    problems, spills, count = [], {}, 0
    for path in objects:
        processor = path.name.split(".")[-2]
        kernels = kernels_of(tool("llvm-readelf", "--notes", str(path)))
        disassembly = tool("llvm-objdump", "-d", str(path))
        instructions, of_matrices = instructions_of(disassembly), instructions_of(disassembly, "v_mfma_")
        if not kernels:
            problems.append(f"{path.name}: no kernel")
        for kernel in kernels:
            count += 1
            symbol = kernel["name"]
            if instructions[symbol] < FEWEST_INSTRUCTIONS:
                problems.append(f"{path.name}: {symbol} is empty: {instructions[symbol]} instructions")
            if plain_name(symbol) in OF_MATRICES and of_matrices[symbol] == 0:
                problems.append(f"{path.name}: {symbol} has no matrix instruction")
            if kernel["wavefront_size"] != "64":
                problems.append(f"{path.name}: {symbol} has waves of {kernel['wavefront_size']} lanes")
            key = (plain_name(symbol), processor)
            own = (int(kernel["vgpr_spill_count"]), int(kernel["sgpr_spill_count"]))
            spills[key] = tuple(map(max, own, spills.get(key, (0, 0))))
    return problems, {key: most for key, most in spills.items() if any(most)}, count


def read_table(path: Path) -> dict[tuple[str, str], tuple[int, int]]:
    rows = [line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {(kernel, processor): (int(vector), int(scalar)) for kernel, processor, vector, scalar in rows}


def write_table(path: Path, spills: dict[tuple[str, str], tuple[int, int]]) -> None:
    lines = ["# Registers that kernels spill on AMD's GPUs (tools/build/check_amd_code.py): may only become fewer.",
             "# kernel\tprocessor\tvector registers\tscalar registers"]
    lines += [f"{kernel}\t{processor}\t{most[0]}\t{most[1]}" for (kernel, processor), most in sorted(spills.items())]
    path.write_text("\n".join(lines) + "\n")


def main() -> int:
    arguments = sys.argv[1:]
    writes = "--write" in arguments
    arguments = [a for a in arguments if a != "--write"]
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    table_path, objects = Path(arguments[0]), sorted(map(Path, arguments[1:]))
    problems, spills, count = check(objects)
    table = read_table(table_path) if table_path.exists() else {}
    for (kernel, processor), own in spills.items():
        most = table.get((kernel, processor), (0, 0))
        if table_path.exists() and (own[0] > most[0] or own[1] > most[1]):
            problems.append(f"{kernel} on {processor} spills {own[0]} vector and {own[1]} scalar registers; the table has {most[0]} and {most[1]}")
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    if writes:
        processors = {path.name.split(".")[-2] for path in objects}
        others = {key: most for key, most in table.items() if key[1] not in processors}
        write_table(table_path, others | spills)
    print(f"{count} kernels in {len(objects)} code objects; {len(spills)} lines of spilled registers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
