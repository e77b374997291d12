"""docs/troubleshooting.md quotes the program: each message of its table stands in the sources."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def texts():
    """The sources with the quotes between parts of one text removed."""
    files = [*ROOT.glob("src/**/*.cpp"), *ROOT.glob("python/slime/**/*.py")]
    joined = "\n".join(path.read_text() for path in files if not path.name.endswith("_test.cpp"))
    return re.sub(r'"\s*\n\s*"', "", joined).replace('\\"', '"')


def test_the_page_quotes_messages():
    assert len(MESSAGES) >= 10


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_one_of_the_program(message, texts):
    # What stands for the user's own words and values is between the parts.
    parts = re.split(r'"text"|--input-key|prompt, label|--rolout-batch-size|--rollout-batch-size|--port 0', message)  # of the user
    for part in parts:
        assert part.strip(" ();?") in texts, part
