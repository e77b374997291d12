"""The front of the program as a person meets it: help in a terminal, guesses, completion by shells, doctor."""

import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios

import pytest
from conftest import ROOT, SLIME, run_slime, train_command
from golden_models import golden_models, shapes

VERBS = ["train", "serve", "session", "doctor"]  # one of each way in which a command reads its words


def run(*words, **options):
    return subprocess.run([str(SLIME), *words], capture_output=True, text=True, timeout=300, **options)


def in_terminal(width, *words, **variables):
    """What a terminal of so many columns shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **variables}
    process = subprocess.Popen([str(SLIME), *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux: the other side has closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=300) == 0
    return shown.decode()


def test_no_terminal_obeys_what_stands_in_rollout_files(tmp_path):
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "run.json").write_text("{}")
    line = '{"response": "\x9b2J\x7f\u20ac"}\n'
    (tmp_path / "rollouts/step_000000.jsonl").write_text(line)
    shown = in_terminal(80, "dump", str(tmp_path), "0")
    assert json.loads(shown) == json.loads(line) and "\x9b" not in shown and "\x7f" not in shown, ascii(shown)
    assert run("dump", str(tmp_path), "0").stdout == line, "a pipe has the bytes of the file"


def test_alone_it_says_what_to_begin_with():
    said = run()
    assert said.returncode == 0
    assert "slime train" in said.stdout and "slime doctor" in said.stdout and "slime help" in said.stdout
    assert len(said.stdout.splitlines()) < 15


@pytest.mark.parametrize("width", [60, 80, 200])
def test_help_is_as_wide_as_the_terminal(width):
    shown = in_terminal(width, "train", "--help")
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in shown.splitlines()]
    assert max(map(len, lines)) <= width
    assert "\x1b[1m" in shown
    assert "\x1b" not in in_terminal(width, "train", "-h", NO_COLOR="1")


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_takes_h_and_searches(verb):
    for words in (["-h"], ["--help"]):
        said = run(verb, *words)
        assert said.returncode == 0 and said.stdout.startswith(f"slime {verb}: "), said
    none = run(verb, "--help", "no-such-thing-at-all")
    assert none.returncode == 2 and "nothing about" in none.stdout


def test_help_of_one_flag_has_what_the_rules_say():
    said = run("help", "train", "--micro-batch-size").stdout
    assert "should be at least 1" in said and "batches" in said
    assert "here it is --lr" in run("train", "--help", "learning_rate").stdout


@pytest.mark.parametrize("typo, meant", [("trian", "train"), ("server", "serve"), ("finetune", "train"), ("complection", "completion")])
def test_a_mistyped_command_is_guessed(typo, meant):
    said = run(typo)
    assert said.returncode == 2 and f"did you mean slime {meant}?" in said.stderr


@pytest.mark.parametrize("words", [["help", "help"], ["help", "--help"], ["--help", "version"]])
def test_help_of_help_is_the_list_of_commands(words):
    said = run(*words)
    assert (said.returncode, said.stdout) == (0, run("help").stdout) and said.stdout, said.stderr


def to_a_full_disk(*words):
    with open("/dev/full", "w") as full:
        return subprocess.run([str(SLIME), *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)


def test_pages_that_standard_output_cannot_take_are_an_error():
    verbs = re.findall(r"^  (\S+)  +\S", run("help").stdout, re.M)
    assert {"train", "chat", "sandbox", "grammar"} <= set(verbs)
    pages = [[verb, "--help"] for verb in verbs] + [["train", "--help-json"], ["chat", "--help-json"], ["help", "serve"]]
    for words in [[], ["help"], ["help", "help"], ["--version"], ["version"], *pages]:
        said = to_a_full_disk(*words)
        assert said.returncode == 1 and "No space left on device" in said.stderr, (words, said)


def test_results_that_standard_output_cannot_take_are_an_error(work, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1 + 1?", "label": "2"}\n')
    for words in [
        ["completion", "bash"],
        ["inspect", str(work / "model")],
        ["runs", str(tmp_path)],
        ["data", "--hf-checkpoint", str(work / "model"), "--prompt-data", str(rows), "--input-key", "prompt"],
        ["sandbox", "--", "echo", "said"],
    ]:
        plain = run(*words)
        if plain.returncode != 0:
            continue  # no bubblewrap here
        assert plain.stdout, words
        said = to_a_full_disk(*words)
        assert said.returncode == 1 and "No space left on device" in said.stderr, (words, said)


def test_mistyped_options_are_guessed_everywhere():
    assert "did you mean --model?" in run("serve", "--modle", "x").stderr
    assert "did you mean --json?" in run("runs", "--jsno").stderr


def test_a_directory_may_stand_without_a_flag(tmp_path):
    assert "config.json" in run("serve", str(tmp_path)).stderr  # it is looked for there


def test_the_directory_of_a_run_stands_for_its_newest_checkpoint(work, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    said = run("inspect", str(folder))
    assert said.returncode == 2 and "no checkpoint yet" in said.stderr
    shutil.copytree(work / "model", folder / "latest")
    said = run("inspect", str(folder))
    assert said.returncode == 0 and "problems    none" in said.stdout
    assert f"its checkpoint is {folder / 'latest'}" in said.stderr


def test_a_checkpoint_may_have_more_shards_than_the_shell_lets_files_be_open(tmp_path):
    source = max(golden_models(), key=lambda model: len(shapes(model)))
    shutil.copy(source / "config.json", tmp_path)
    weight_map = {}
    for path in sorted(source.glob("model*.safetensors")):
        data = path.read_bytes()
        end = 8 + struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:end]).items():
            if name == "__metadata__":
                continue
            begin, stop = entry["data_offsets"]
            header = json.dumps({name: {**entry, "data_offsets": [0, stop - begin]}}).encode()
            shard = f"model-{len(weight_map):05}.safetensors"
            (tmp_path / shard).write_bytes(struct.pack("<Q", len(header)) + header + data[end + begin : end + stop])
            weight_map[name] = shard
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert len(weight_map) > 64
    limited = f"ulimit -Sn 64 && exec {shlex.quote(str(SLIME))} inspect {shlex.quote(str(tmp_path))}"
    said = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0 and f"files       {len(weight_map)}" in said.stdout, said.stdout + said.stderr
    hard = subprocess.run(["bash", "-c", limited.replace("-Sn", "-n")], capture_output=True, text=True, timeout=300)
    assert hard.returncode == 1 and "ulimit -Hn" in hard.stdout, hard.stdout + hard.stderr


def complete(script, tmp_path, line, **variables):
    """What bash offers behind `line`."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"source {script}\nCOMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}\n_slime\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    said = subprocess.run(["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, **variables})
    assert said.stderr == ""
    return said.stdout.split()


def test_bash_completes_commands_options_words_files_runs_and_models(tmp_path):
    script = tmp_path / "slime.bash"
    script.write_text(run("completion", "bash").stdout)
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "run.json").touch()
    (tmp_path / "home" / "hub" / "models--Qwen--Qwen3-0.6B").mkdir(parents=True)
    (tmp_path / "home" / "hub" / "datasets--openai--gsm8k").mkdir(parents=True)
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_CACHE": ""}
    assert complete(script, tmp_path, "slime tra") == ["train", "train-async"]
    assert "--rollout-temperature" in complete(script, tmp_path, "slime train --rollout-t")
    assert complete(script, tmp_path, "slime train --device ") == ["auto", "cpu", "cuda", "hip"]
    assert complete(script, tmp_path, "slime train --device = c") == ["cpu", "cuda"]
    assert "rows.jsonl" in complete(script, tmp_path, "slime train --prompt-data ro")
    assert "openai/gsm8k" in complete(script, tmp_path, "slime train --prompt-data o", **home)
    assert complete(script, tmp_path, "slime train --hf-checkpoint Q", **home) == ["Qwen/Qwen3-0.6B"]
    assert complete(script, tmp_path, "slime serve Q", **home) == ["Qwen/Qwen3-0.6B"]
    assert "runs/first/" in complete(script, tmp_path, "slime ledger runs/")
    assert complete(script, tmp_path, "slime completion f") == ["fish"]
    assert complete(script, tmp_path, "slime session ") == ["list", "end"]
    assert "--chosen-key" in complete(script, tmp_path, "slime data --cho")  # of a run
    assert complete(script, tmp_path, "slime help ser") == ["serve"]
    assert complete(script, tmp_path, "slime train --help rew") == ["reward"]
    assert complete(script, tmp_path, "slime train --lr ") == []


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_the_script(tmp_path):
    script = tmp_path / "_slime"
    script.write_text(run("completion", "zsh").stdout)
    code = f"autoload -U compinit; compinit -D -u; source {script}; print $_comps[slime]"
    said = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (said.stdout.strip(), said.stderr) == ("_slime", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path):
    script = tmp_path / "slime.fish"
    script.write_text(run("completion", "fish").stdout)

    def offered(line):
        code = f"source {script}; complete -C '{line}'"
        said = subprocess.run(["fish", "-N", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
        return [each.split("\t")[0] for each in said.stdout.splitlines()]

    assert {"train", "train-async"} <= set(offered("slime tra"))
    assert "--rollout-temperature" in offered("slime train --rollout-t")
    assert offered("slime train --device c") == ["cpu", "cuda"]


def test_doctor_looks_at_the_machine():
    said = run("doctor", "--json", env={**os.environ, "HF_HUB_OFFLINE": "1"})
    record = json.loads(said.stdout)
    areas = {check["area"] for check in record["checks"]}
    assert {"processor", "devices", "memory", "limits", "disk", "ports", "python", "sandbox", "hub"} <= areas
    assert record["ready"] == (said.returncode == 0)
    assert all(check["state"] in ("ok", "note", "problem") and check["what"] for check in record["checks"])


def test_doctor_does_not_wait_for_a_hub_that_is_silent():
    # An address for documentation, where nobody answers.
    said = run("doctor", "--json", env={**os.environ, "HF_ENDPOINT": "https://192.0.2.1", "HF_HUB_OFFLINE": ""})
    hub = [check for check in json.loads(said.stdout)["checks"] if check["area"] == "hub"]
    assert hub[-1]["state"] == "note" and "is not reached" in hub[-1]["what"]


def test_doctor_looks_at_the_run_too(work, tmp_path):
    flags = ["--hf-checkpoint", str(work / "model"), "--prompt-data", str(work / "data" / "rl.jsonl"), "--rm-type", "random", "--input-key", "prompt"]
    flags += ["--rollout-batch-size", "4", "--n-samples-per-prompt", "4", "--rollout-max-response-len", "6", "--num-rollout", "1"]
    flags += ["--run-dir", str(tmp_path / "run"), "--device", "cpu"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    bad = run("doctor", *flags, env=offline)  # messages, and no template
    assert bad.returncode == 1 and "--apply-chat-template" in bad.stdout and "Not ready" in bad.stdout
    good = run("doctor", *flags, "--apply-chat-template", env=offline)
    assert good.returncode == 0 and "The run would begin" in good.stdout, good.stdout
    assert not (tmp_path / "run").exists()


def report_command_of(done):
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["report"])
    return row.split("report", 1)[1].strip()


def test_the_end_of_a_run_names_commands_that_can_be_pasted(work, tmp_path):
    """Wherever the program lies: by its path, and by its name where PATH finds it."""
    run_dir = tmp_path / "a run"
    nothing = {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    pasted = report_command_of(run_slime(train_command(work, run_dir, rollouts=1), env=os.environ | nothing))
    assert shlex.split(pasted) == [str(SLIME), "report", str(run_dir)]
    shown = subprocess.run(pasted, shell=True, env=os.environ | nothing, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and (run_dir / "report.html").exists(), shown.stderr
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "slime").symlink_to(SLIME)
    found = {"PATH": f"{tmp_path / 'bin'}:{nothing['PATH']}"}
    done = run_slime(train_command(work, tmp_path / "named", rollouts=1), env=os.environ | found)
    assert report_command_of(done) == f"slime report {tmp_path / 'named'}"


def test_a_stage_of_a_script_ends_with_a_line_and_not_as_if_it_were_the_end(work, tmp_path):
    done = run_slime(train_command(work, tmp_path / "run", rollouts=1), env=os.environ | {"SLIME_STAGE": "1 of 2"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("stage 1 of 2 is done: rollout steps 1 of 1, ")
    assert "talk to it" not in done.stdout and f"{tmp_path / 'run'}/latest" in done.stdout


def test_the_page_of_flags_is_that_of_the_flag_table():
    done = run("train", "--help-markdown")
    assert done.returncode == 0, done.stderr
    assert (ROOT / "docs" / "flags.md").read_text() == done.stdout
