"""A page of statements that were tried: tables whose rows have a verdict, a command or test, and the words that it shows."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

from conftest import ROOT, SLIME

PROGRAMS = ("slime ", "python3 ", "bash ", "ls ", "cat ", "pip ")
CLONE = ("scripts", "tools", "examples", "tests", "train.py", "train_async.py", "README.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff")


class TriedPage:
    """`docs/NAME.md`. Rows begin with a cell such as A01, of a letter from A to E; the last three cells are verdict, how, and what is seen."""

    def __init__(self, name):
        self.text = (ROOT / "docs" / f"{name}.md").read_text()
        row = re.compile(r"\| [A-E]\d\d \|")
        self.rows = {
            cells[0]: tuple(cells[-3:])
            for line in self.text.splitlines()
            if row.match(line) and (cells := [cell.strip() for cell in line.strip().strip("|").split("|")])
        }
        self.commands = {
            row: (quoted[0], re.search("`([^`]+)`", shows)[1])
            for row, (_, how, shows) in self.rows.items()
            if (quoted := re.findall("`([^`]+)`", how)) and quoted[0].startswith(PROGRAMS)
        }

    def check_counts(self, verdicts):
        """The table of verdicts at the head of the page counts the rows."""
        counts = Counter(verdict for verdict, _, _ in self.rows.values())
        assert set(counts) <= set(verdicts), counts
        said = {verdict: int(re.search(rf"^\| {verdict} \| (\d+) \|$", self.text, re.MULTILINE)[1]) for verdict in verdicts}
        assert said == {verdict: counts[verdict] for verdict in verdicts}

    def check_named(self, least):
        """Tests that are named exist, and rows that others point to."""
        named = re.findall(r"`((?:tests|src)/[^`]+?\.(?:py|cpp))(?:::(\w+))?`", self.text)
        assert len(named) >= least
        for file, name in named:
            assert (ROOT / file).is_file(), file
            assert not name or re.search(rf"^ *def {name}\(|^TEST(?:_F|_P)?\(\w+, {name}\)", (ROOT / file).read_text(), re.MULTILINE), (file, name)
        assert set(re.findall(r"\bas ([A-E]\d\d) \|", self.text)) <= set(self.rows)

    def check_command(self, place, row):
        command, shows = self.commands[row]
        flags = re.search(r'^B="(.*?)"$', self.text, re.MULTILINE | re.DOTALL)[1].replace("\\\n", " ")
        environment = {
            **os.environ,
            "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SLIME_BINARY": str(SLIME),
            "PYTHONPATH": str(ROOT / "python"),
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(place / "huggingface"),
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "B": " ".join(flags.split()),
        }
        done = subprocess.run(
            ["bash", "-c", command], cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
        # What these do not find they name as well.
        assert done.returncode == 0 or not command.startswith(("ls ", "cat ")), done.stderr
        assert shows in done.stdout + done.stderr, f"{command}\n{done.stdout}{done.stderr}"


def make_place(folder):
    """What the heads of the pages set up: a tiny model, rows, the clone's folders, the program."""
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", folder / "MODELS" / "tiny"], check=True, stdout=subprocess.DEVNULL)
    sums = [(11 * i % 90 + 10, 7 * i % 90 + 10) for i in range(40)]
    texts = [{"prompt": f"{a}+{b}=", "label": str(a + b)} for a, b in sums]
    lists = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in texts]
    gsm8k = [{"question": "What is 48+24?", "answer": "48+24 = <<48+24=72>>72\n#### 72", "response": "It is \\boxed{72}.", "label": "#### 72"}]
    for name, rows in (("data.jsonl", texts), ("chat.jsonl", lists), ("gsm8k.jsonl", gsm8k)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in CLONE:
        (folder / name).symlink_to(ROOT / name)
    (folder / "rate.yaml").write_text("lr: 1e-3\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "slime").symlink_to(SLIME)
    return folder
