"""docs/seed_documents.md: its commands are typed, and the words of the last column are in what they print."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from conftest import ROOT, SLIME

PAGE = (ROOT / "docs" / "seed_documents.md").read_text()
VERDICTS = ("works", "works in part", "different meaning", "missing", "refused", "not shown")
PROGRAMS = ("slime ", "python3 ", "bash ", "ls ")
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if re.match(r"\| [A-E]\d\d \|", line) and (cells := [cell.strip() for cell in line.strip().strip("|").split("|")])
}
COMMANDS = {
    row: (quoted[0], re.search("`([^`]+)`", shows)[1])
    for row, (_, _, how, shows) in ROWS.items()
    if (quoted := re.findall("`([^`]+)`", how)) and quoted[0].startswith(PROGRAMS)
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """What the head of the page sets up."""
    folder = tmp_path_factory.mktemp("documents")
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", folder / "MODELS" / "tiny"], check=True, stdout=subprocess.DEVNULL)
    sums = [(11 * i % 90 + 10, 7 * i % 90 + 10) for i in range(40)]
    texts = [{"prompt": f"{a}+{b}=", "label": str(a + b)} for a, b in sums]
    lists = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in texts]
    for name, rows in (("data.jsonl", texts), ("chat.jsonl", lists)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("scripts", "tools", "examples", "train.py", "train_async.py"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "bin").mkdir()
    (folder / "bin" / "slime").symlink_to(SLIME)
    return folder


def test_every_row_has_a_verdict_and_they_are_counted():
    assert len(ROWS) == 90
    counts = Counter(verdict for _, verdict, _, _ in ROWS.values())
    assert set(counts) <= set(VERDICTS)
    said = {verdict: int(re.search(rf"^\| {verdict} \| (\d+) \|$", PAGE, re.MULTILINE)[1]) for verdict in VERDICTS}
    assert said == {verdict: counts[verdict] for verdict in VERDICTS}


def test_tests_and_rows_that_are_named_exist():
    named = re.findall(r"`(tests/[^`]+?)(?:::(\w+))?`", PAGE)
    assert len(named) >= 25
    for file, name in named:
        assert (ROOT / file).is_file(), file
        assert not name or re.search(rf"^ *def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (file, name)
    assert set(re.findall(r"\bas ([A-E]\d\d) \|", PAGE)) <= set(ROWS)


@pytest.mark.parametrize("row", COMMANDS)
def test_a_command_of_the_page_shows_what_the_page_says(place, row):
    command, shows = COMMANDS[row]
    flags = re.search(r'^B="(.*?)"$', PAGE, re.MULTILINE | re.DOTALL)[1].replace("\\\n", " ")
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SLIME_BINARY": str(SLIME),
        "PYTHONPATH": str(ROOT / "python"),
        "B": " ".join(flags.split()),
    }
    done = subprocess.run(["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    assert shows in done.stdout + done.stderr, f"{command}\n{done.stdout}{done.stderr}"
