"""`slime chat` in a terminal, through a pipe and against a server, with a model that recites."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, SLIME

ANSWERS = {  # of several names in a conversation the last one here counts
    "LONG": "word " * 1500,
    "PARIS": "The capital is Paris.",
    "THINK": "<think>\nFrance, so Paris.\n</think>\n\nParis it is.",
    "CALL": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "SUN": "It is sunny.",
    "HOSTILE": "a\x1b[2Jb",
}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
LIMIT = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    (folder / "answers.json").write_text(json.dumps(ANSWERS))
    recite = [sys.executable, ROOT / "tests" / "clients" / "recite.py", folder / "model", folder / "answers.json"]
    subprocess.run(recite, check=True, stdout=subprocess.DEVNULL)
    return folder / "model"


def chat(model, *words, **options):
    command = [str(SLIME), "chat", str(model), "--device", "cpu", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **options)


class Terminal:
    """A chat on a terminal of its own."""

    def __init__(self, *words, home):
        environment = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8", "HOME": str(home), "XDG_STATE_HOME": ""}
        environment.pop("NO_COLOR", None)
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execve(SLIME, [str(SLIME), "chat", *words], environment)
        self.text = ""
        self.seen = 0

    def wait(self, pattern):
        """What comes until the pattern, behind what earlier calls have seen."""
        end = time.monotonic() + LIMIT
        while not (match := re.compile(pattern, re.S).search(self.text, self.seen)):
            ready, _, _ = select.select([self.file], [], [], max(0, end - time.monotonic()))
            assert ready, f"{pattern!r} did not come; the terminal has {self.text[self.seen :]!r}"
            try:
                self.text += os.read(self.file, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"ended without {pattern!r}: {self.text[self.seen :]!r}") from None
        before = self.text[self.seen : match.start()]
        self.seen = match.end()
        return before

    def type(self, text):
        os.write(self.file, text.encode())

    def exit_code(self, key="\x04"):
        """Of the chat that the key ends; typed again where it came while the editor of lines was being set up, which drops it."""
        end = time.monotonic() + LIMIT
        while (ended := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            assert time.monotonic() < end, self.text[self.seen :]
            if select.select([self.file], [], [], 2)[0]:
                try:
                    self.text += os.read(self.file, 65536).decode(errors="replace")
                except OSError:
                    time.sleep(0.05)
            else:
                self.type(key)
        return os.waitstatus_to_exitcode(ended[1])

    def close(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.file)


@pytest.fixture
def terminal(model, tmp_path):
    opened = Terminal(str(model), "--device", "cpu", "--set", "temperature=0", home=tmp_path)
    opened.wait("Ctrl-D ends")
    opened.wait("> ")
    yield opened
    opened.close()


def test_a_message_is_answered_once(model):
    done = chat(model, "--message", "[say:PARIS]")
    assert (done.returncode, done.stdout) == (0, "The capital is Paris.\n"), done.stderr


def test_a_pipe_has_one_answer_for_each_line_and_no_colours(model):
    done = chat(model, input="[say:PARIS]\n/reset\n[say:THINK]\n[say:HOSTILE]\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The capital is Paris.\nParis it is.\na\\x1b[2Jb\n"


def test_json_has_thoughts_and_calls(model, tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([WEATHER]))
    lines = "[say:THINK]\n/reset\n[say:CALL]\n/result sunny [say:SUN]\n"
    done = chat(model, "--json", "--tools", str(tools), input=lines)
    assert done.returncode == 0, done.stderr
    thought, call, after = [json.loads(line) for line in done.stdout.splitlines()]
    assert thought["reasoning_content"].strip() == "France, so Paris."
    assert call["tool_calls"] == [{"name": "get_weather", "arguments": '{"city": "Paris"}'}]
    assert call["finish_reason"] == "tool_calls"
    assert after["content"] == "It is sunny."


def test_commands_change_the_conversation(model, tmp_path):
    saved = tmp_path / "talk.jsonl"
    lines = ["/system Be brief.", "[say:PARIS]", "/undo", "[say:SUN]", "/retry", "/set temprature 1", "/history", f"/save {saved}", "/nothing"]
    done = chat(model, input="\n".join(lines) + "\n")
    assert done.returncode == 1, "two commands were wrong"
    history = "system: Be brief.\nuser: [say:SUN]\nassistant: It is sunny.\n"
    assert done.stdout == "The capital is Paris.\nIt is sunny.\nIt is sunny.\n" + history
    assert "did you mean temperature?" in done.stderr and "/help lists them" in done.stderr
    messages = json.loads(saved.read_text())["messages"]
    assert [(m["role"], m["content"]) for m in messages] == [
        ("system", "Be brief."), ("user", "[say:SUN]"), ("assistant", "It is sunny."),
    ]  # fmt: skip
    again = chat(model, input=f"/save {saved}\n")
    assert again.returncode == 1 and "is not replaced" in again.stderr


def test_wrong_words_are_refused_before_the_model_is_loaded(model, tmp_path):
    for words, message in [
        ([str(tmp_path / "nothing"), "--message", "x"], "nothing: no such file or directory"),
        ([str(model), "--message", "x", "--set", "temperature=9"], "from 0 to 2"),
        ([str(model), "--message", "x", "--tools", str(model / "config.json")], "a list of tools"),
        ([str(model), "--message", ""], "--message: should be a question"),
    ]:
        done = subprocess.run([str(SLIME), "chat", *words], input="[say:PARIS]\n", capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 2 and message in done.stderr, done.stderr


def test_an_answer_that_standard_output_cannot_take_ends_the_chat(model):
    command = [str(SLIME), "chat", str(model), "--device", "cpu"]
    for words, lines in [(["--message", "[say:PARIS]"], ""), ([], "[say:PARIS]\n[say:SUN]\n"), (["--json"], "[say:SUN]\n[say:SUN]\n")]:
        with open("/dev/full", "w") as full:
            done = subprocess.run([*command, *words], input=lines, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        assert done.returncode == 1 and done.stderr.count("standard output: No space left on device") == 1, done.stderr
        assert "no answer" not in done.stderr


def test_questions_have_a_bound_and_are_text(model):
    long = b"x" * (1 << 20)
    for lines, message in [
        (long + b"x\n", "line 1: is longer than 1 MiB"),
        (b"\\\n" + long + b"\n", "a question may have 1 MiB"),
        (b"[say:PARIS]\nParis \xff\n", "line 2: is not UTF-8"),
    ]:
        done = subprocess.run([str(SLIME), "chat", str(model), "--device", "cpu"], input=lines, capture_output=True, timeout=LIMIT)
        assert done.returncode == 2 and message in done.stderr.decode(), done.stderr
    endless = f"yes x | tr -d '\\n' | {SLIME} chat {model} --device cpu"
    done = subprocess.run(["bash", "-c", endless], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2 and "line 1: is longer" in done.stderr, done.stderr
    for words in [["--message", b"\xff"], ["--message", "x", "--system", b"\xff"], ["--message", "x", "--set", b"stop=\xff"]]:
        done = subprocess.run([str(SLIME), "chat", str(model), "--device", "cpu", *words], capture_output=True, timeout=LIMIT)
        assert done.returncode == 2 and b": is not UTF-8" in done.stderr, done.stderr


def test_a_server_is_asked_by_its_address(model):
    command = [str(SLIME), "serve", "--model", str(model), "--device", "cpu", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = re.search(r"http://\S+", server.stdout.readline())[0]
            done = subprocess.run([str(SLIME), "chat", url, "--message", "[say:PARIS]"], capture_output=True, text=True, timeout=LIMIT)
            assert (done.returncode, done.stdout) == (0, "The capital is Paris.\n"), done.stderr
        finally:
            server.terminate()
    gone = subprocess.run([str(SLIME), "chat", url, "--message", "x"], capture_output=True, text=True, timeout=LIMIT)
    assert gone.returncode == 2 and "cannot connect" in gone.stderr


def test_a_terminal_folds_thoughts_and_shows_probabilities(terminal):
    terminal.type("[say:THINK]\n")
    folded = terminal.wait("/thoughts unfolds.*Paris it is.*> ")
    assert "France" not in folded
    terminal.type("/thoughts\n")
    terminal.wait("France, so Paris.*> ")
    terminal.type("/logprobs\n")
    terminal.wait("> ")
    terminal.type("/reset\n")
    terminal.wait("> ")
    terminal.type("[say:PARIS]\n")
    terminal.wait("\x1b\\[32mThe \x1b\\[2m\u2081\u2080\u2080")  # certain: green, 100
    terminal.wait("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(terminal):
    terminal.type("[say:LONG]\n")
    terminal.wait("word word")
    terminal.type("\x03")
    terminal.wait(r"\(stopped\).*> ")
    terminal.type("half a line\x03")
    terminal.wait(r"\^C.*> ")
    terminal.type("[say:PARIS]\n")
    terminal.wait("The capital is Paris.*> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_lines_are_edited_and_come_again(terminal, tmp_path):
    terminal.type("[say:PARIX]\x7f\x7fS]\n")  # two steps back, and put right
    terminal.wait("The capital is Paris.*> ")
    terminal.type("\x1b[A\n")  # the line before
    terminal.wait("The capital is Paris.*> ")
    terminal.type("/und\t\n")
    terminal.wait("o \r\n> ")  # what was missing, and a space
    terminal.type("/exit\n")
    assert terminal.exit_code("/exit\n") == 0
    history = tmp_path / ".local" / "state" / "slime" / "chat_history"
    assert "PARIS" in history.read_text() and history.stat().st_mode & 0o077 == 0
