"""Branches of a run: whatever is killed whenever, each goes on bit for bit as if nobody had disturbed it, and none touches another."""

import hashlib
import json
import random
import re
import shutil
import subprocess
import time

import pytest
from conftest import SLIME, numbers_that_repeat, run_slime, train_command, weights

STEPS = 9
AT = 4


def command(work, run_dir, extra=(), steps=STEPS):
    args = train_command(work, run_dir, rollouts=steps, extra=extra)
    args[args.index("--keep-checkpoints") + 1] = "0"
    return args


def done(args):
    finished = run_slime(args)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr


def branches(run_dir):
    return sorted(path for path in (run_dir / "branches").iterdir()) if (run_dir / "branches").exists() else []


def samples(folder):
    """What the rollout files hold, by step; numbers of this machine's time are left out."""
    rows = {}
    for path in sorted((folder / "rollouts").glob("step_*.jsonl")):
        rows[path.name] = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in path.open()]
    return rows


def audit(folder):
    told = subprocess.run([str(SLIME), "ledger", str(folder), "--json"], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    return json.loads(told.stdout)


def assert_same(folder, reference):
    assert weights(folder) == weights(reference)
    assert numbers_that_repeat(folder) == numbers_that_repeat(reference)
    tokens = lambda rows: {name: [sample["tokens"] for sample in group] for name, group in rows.items()}  # noqa: E731
    assert tokens(samples(folder)) == tokens(samples(reference))
    ours, theirs = audit(folder)["checkpoint"], audit(reference)["checkpoint"]
    assert ours["prompts"] == theirs["prompts"] and ours["tokens"] == theirs["tokens"]


def digest(folder):
    """Of all files of the first branch that say what was trained."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        is_of_main = "branches" not in path.relative_to(folder).parts and path.name not in ("lock", ".reserve", "current.json")
        if path.is_file() and not path.is_symlink() and is_of_main:
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def killed_until_done(args, rng, times, seconds):
    """The same command, killed so often at random instants of the `seconds` that it takes, then left alone."""
    for _ in range(times):
        process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=rng.uniform(0.1, 0.9) * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        if process.wait() == 0:
            break
    return done(args)


@pytest.fixture(scope="module")
def undisturbed(work, tmp_path_factory):
    """main to its end, a branch of it with another learning rate, and main once more, further: nothing is killed."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    begun = time.monotonic()
    done(command(work, run))
    (run.parent / "seconds").write_text(str(time.monotonic() - begun))
    done(command(work, run, ["--ckpt-step", str(AT), "--lr", "5e-3"]))
    done(command(work, run, ["--load", str(run / "branches" / "main")], steps=STEPS + 3))
    return run


def test_the_branch_of_a_run_is_what_a_run_set_back_would_be(work, undisturbed, tmp_path):
    """The same settings again give main's own numbers again; others give others, and leave main as it is."""
    run = tmp_path / "run"
    done(command(work, run))
    before = digest(run)
    told = done(command(work, run, ["--ckpt-step", str(AT)]))
    (branch,) = branches(run)
    assert "goes on after rollout 4 of branch main" in told
    assert digest(run) == before
    assert_same(branch, run)
    assert weights(branches(undisturbed)[0]) != weights(run)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_instants_both_branches_go_on_as_if_nobody_had_disturbed_them(work, undisturbed, tmp_path, seed):
    rng = random.Random(seed)
    run, seconds = tmp_path / "run", float((undisturbed.parent / "seconds").read_text())
    killed_until_done(command(work, run), rng, 2, seconds)
    killed_until_done(command(work, run, ["--ckpt-step", str(AT), "--lr", "5e-3"]), rng, 4, seconds)
    (branch,) = branches(run)
    killed_until_done(command(work, run, ["--load", str(run / "branches" / "main")], steps=STEPS + 3), rng, 2, seconds)
    assert branches(run) == [branch]
    assert_same(run, undisturbed)
    assert_same(branch, branches(undisturbed)[0])


def test_each_form_of_load_chooses_its_step_and_the_run_says_what_it_does(work, tmp_path):
    run, save = tmp_path / "run", tmp_path / "save"
    with_save = ["--save", str(save)]
    done(command(work, run, with_save, steps=5))
    record = json.loads((save / "rollout" / "committed_2.json").read_text())
    assert record["version"] == 1 and record["rollout_id"] == 2 and record["resumable"] and record["run_id"] == "rollout"
    for name, file in record["files"].items():
        data = (save / name).read_bytes()
        assert file["size"] == len(data)
        assert name.endswith(".json") == ("sha256" in file)
        assert file.get("sha256", "") in ("", hashlib.sha256(data).hexdigest())
    told = done(command(work, run, [*with_save, "--load", str(save / "rollout" / "committed_2.json")], steps=4))
    assert "after rollout 2 of branch main" in told
    (first,) = branches(run)
    assert (save / "branches" / first.name / "iter_0000003" / "COMMITTED").exists()
    (save / "latest_checkpointed_iteration.txt").write_text("1\n")
    told = done(command(work, run, [*with_save, "--load", str(save)], steps=4))
    assert "latest_checkpointed_iteration.txt: says 1" in told and len(branches(run)) == 2
    told = done(command(work, run, [*with_save, "--load", str(save / "branches" / first.name)], steps=6))
    assert f"goes on in branch {first.name}" in told and "continuing after rollout 3" in told
    assert json.loads((save / "rollout" / "current.json").read_text())["directory"] == f"branches/{first.name}"
    told = done(command(work, run, with_save, steps=7))
    assert "continuing after rollout 5" in told


def test_a_run_that_begins_in_another_goes_on_in_its_own_folder_when_the_same_command_comes_again(work, tmp_path):
    other, straight, killed = tmp_path / "other", tmp_path / "straight", tmp_path / "killed"
    done(command(work, other, steps=3))
    record = other / "checkpoints" / "rollout" / "committed_1.json"
    begin = ["--load", str(record), "--lr", "5e-3"]
    done(command(work, straight, begin))
    process = subprocess.Popen(command(work, killed, begin), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (killed / "checkpoints" / "iter_0000004").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait()
    another = run_slime(command(work, killed, ["--load", str(record.with_name("committed_2.json")), "--lr", "5e-3"]))
    assert another.returncode == 2 and "it has checkpoints of its own" in another.stderr, another.stdout + another.stderr
    shutil.rmtree(other)
    told = done(command(work, killed, begin))
    assert "the run began there, and goes on after its own newest checkpoint" in told
    assert_same(killed, straight)


def test_what_a_branch_cannot_do_is_refused_before_anything_is_written(work, tmp_path):
    run = tmp_path / "run"
    done(command(work, run, steps=4))
    before = digest(run)
    for extra, said in [
        (["--ckpt-step", "9"], "no checkpoint of rollout 9 in the history of branch main"),
        (["--ckpt-step", "1", "--start-rollout-id", "3"], "goes on with rollout 2"),
        (["--ckpt-step", "1", "--rollout-data-transport", "straw", "--no-load-optim"], "--no-load-optim: not with"),
        (["--load", str(run / "checkpoints/rollout/committed_1.json"), "--finetune"], "--finetune: not with"),
        (["--load", str(run / "checkpoints/rollout/committed_7.json")], "there is no such record"),
        (["--ckpt-step", "1", "--overwrite"], "not with --overwrite"),
    ]:
        refused = run_slime(command(work, run, extra))
        assert refused.returncode == 2 and said in refused.stderr, (extra, refused.stdout + refused.stderr)
    assert branches(run) == [] and digest(run) == before


def test_a_dry_run_says_which_branch_would_be_made(work, tmp_path):
    run = tmp_path / "run"
    done(command(work, run, steps=3))
    told = done(command(work, run, ["--ckpt-step", "1", "--dry-run"]))
    assert "a new branch would go on after rollout 1 of branch main" in told
    assert branches(run) == []


def test_online_collection_keeps_the_disk_flat_and_survives_kills(work, tmp_path):
    """The files of a long run are as large as those of a short one; killed in the middle of it all adds up and nothing differs."""
    queue = ["--rollout-data-transport", "straw", "--rollout-queue-online-gc"]
    straight, run, short = tmp_path / "straight", tmp_path / "run", tmp_path / "short"
    begun = time.monotonic()
    done(train_command(work, straight, rollouts=40, extra=["--rollout-data-transport", "straw"]))
    killed_until_done(train_command(work, run, rollouts=40, extra=queue), random.Random(5), 5, time.monotonic() - begun)
    done(train_command(work, short, rollouts=10, extra=queue))
    assert weights(run) == weights(straight)
    assert numbers_that_repeat(run) == numbers_that_repeat(straight)
    ours, theirs = audit(run)["checkpoint"], audit(straight)["checkpoint"]
    assert ours["prompts"] == theirs["prompts"] and ours["tokens"] == theirs["tokens"]
    assert audit(run)["collected_to"] > 0
    of_two_steps = 2 * (straight / "ledger.jsonl").stat().st_size / 40
    assert (run / "ledger.jsonl").stat().st_size < 4 * of_two_steps
    assert (run / "ledger.jsonl").stat().st_size < 2 * (short / "ledger.jsonl").stat().st_size
    assert len(list((run / "rollouts").iterdir())) <= 3


def test_rollouts_lie_in_the_pool_and_the_run_is_known_by_its_name(work, tmp_path):
    run, pool = tmp_path / "run", tmp_path / "pool"
    straw = ["--rollout-data-transport", "straw", "--rollout-data-dir", str(pool)]
    done(command(work, run, straw, steps=3))
    assert (run / "rollouts").is_symlink() and len(list(pool.rglob("step_*.jsonl"))) == 3
    done(command(work, run, straw, steps=4))
    assert len(list(pool.rglob("step_*.jsonl"))) == 4
    refused = run_slime(command(work, run, [*straw, "--rollout-queue-run-id", "other"], steps=5))
    assert refused.returncode == 2 and "is of the run rollout" in refused.stderr
    elsewhere = ["--rollout-data-transport", "straw", "--rollout-data-dir", str(tmp_path / "second")]
    refused = run_slime(command(work, run, elsewhere, steps=5))
    assert refused.returncode == 2 and "the rollouts of this run are in" in refused.stderr
    shutil.rmtree(pool)
    for more in ([], ["--dry-run"]):
        refused = run_slime(command(work, run, [*straw, *more], steps=5))
        assert refused.returncode == 2 and "which is not there: bring it back, or mkdir -p" in refused.stdout + refused.stderr


def test_a_replay_of_a_branch_lies_beside_the_run(work, tmp_path):
    run = tmp_path / "run"
    done(command(work, run, steps=3))
    done(command(work, run, ["--ckpt-step", "1"], steps=4))
    (branch,) = branches(run)
    assert "the weights are equal" in done([str(SLIME), "replay", str(branch)])
    assert branches(run) == [branch] and (tmp_path / f"run-{branch.name}-replay" / "run.json").exists()


def test_overwriting_says_what_goes_and_a_record_is_checked(work, tmp_path):
    run = tmp_path / "run"
    done(command(work, run, steps=3))
    done(command(work, run, ["--ckpt-step", "1", "--lr", "5e-3"], steps=3))
    (branch,) = branches(run)
    for more in (["--dry-run"], []):
        told = done(command(work, run, ["--overwrite", *more], steps=2))
        assert "--overwrite deletes what is in" in told and f"branch {branch.name} (checkpoints up to iter_0000002)" in told
        assert branch.exists() == bool(more)
    record = run / "checkpoints" / "rollout" / "committed_1.json"
    record.write_text(record.read_text().replace('"rollout_id": 1', '"rollout_id": 0'))
    refused = run_slime(command(work, run, ["--load", str(record)], steps=3))
    assert refused.returncode == 2 and "rollout_id 0: its name says 1" in refused.stderr


def test_runs_are_listed_with_their_branches(work, tmp_path):
    run = tmp_path / "all" / "first"
    done(command(work, run, steps=4))
    done(command(work, run, ["--ckpt-step", "1", "--lr", "5e-3"], steps=3))
    done(command(work, tmp_path / "all" / "second", ["--seed", "7"], steps=2))
    told = done([str(SLIME), "runs", str(tmp_path / "all")])
    assert max(map(len, told.splitlines())) <= 80, told
    (branch,) = branches(run)
    assert f"{branch.name} after 1" in told and "--lr 0.001 -> 0.005" in told
    assert "--seed 7" in told and re.search(r"^RUN .* num-rollout$", told, re.M) and re.search(r"^second .* 2 *$", told, re.M), told
    listed = json.loads(done([str(SLIME), "runs", str(tmp_path / "all"), "--json"]))
    first, second = sorted(listed, key=lambda entry: entry["run"])
    assert (first["state"], first["last_step"], first["num_steps"]) == ("finished", 3, 4)
    (child,) = first["branches"]
    assert child["is_active"] and child["from_step"] == 1 and child["checkpoints"] == [1, 2]
    assert second["run"] == "second" and second["reward"] is not None

    killed = tmp_path / "all" / "third"
    process = subprocess.Popen(command(work, killed, steps=500), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state = lambda: json.loads(done([str(SLIME), "runs", str(killed), "--json"]))[0]  # noqa: E731
    deadline = time.monotonic() + 60
    while not (killed / "latest").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert state()["state"] == "running"
    process.kill()
    process.wait()
    assert state()["state"] == "died"


def test_any_rollout_is_dumped_and_replayed(work, tmp_path):
    run, again = tmp_path / "run", tmp_path / "again"
    archive = str(tmp_path / "dump" / "r_{rollout_id}.straw.json")
    done(command(work, run, ["--save-debug-rollout-data", archive], steps=3))
    descriptor = json.loads((tmp_path / "dump" / "r_2.straw.json").read_text())
    assert descriptor["format"] == "slime.rollout" and descriptor["rollout_id"] == 2 and len(descriptor["index"]) == 16
    lines = [json.loads(line) for line in done([str(SLIME), "dump", str(run), "2"]).splitlines()]
    assert len(lines) == 16 and all(line["tokens"] for line in lines)
    text = done([str(SLIME), "dump", str(run), "2", "--text"])
    assert text.count("\nsample ") == 16 and f"\n{text}".count("\nprompt ") == 4 and '"tokens"' not in text
    assert text == done([str(SLIME), "dump", str(run), "--text"]), "the newest, if none is named"
    for line in lines:
        shown = text.split(f"\nsample {line['index']}: ")[1].split("\n\n")[0]
        assert shown.startswith(f"reward {line['reward']:g}, ")
    for step in range(3):
        done([str(SLIME), "dump", str(run), str(step), "--out", str(tmp_path / f"out_{step}.straw.json")])
    done(command(work, again, ["--load-debug-rollout-data", str(tmp_path / "out_{rollout_id}.straw.json")], steps=3))
    assert weights(again) == weights(run)
    missing = run_slime([str(SLIME), "dump", str(run), "7"])
    assert missing.returncode == 2 and "there are those of: 0-2" in missing.stderr
    of_straw = tmp_path / "straw_0.straw.json"
    of_straw.write_text(json.dumps({"format": "slime.straw-debug", "version": 1, "rollout_id": 0, "root": "/pool"}, indent=1))
    for more in ([], ["--dry-run"]):
        refused = run_slime(command(work, tmp_path / "x", ["--load-debug-rollout-data", str(tmp_path / "straw_{rollout_id}.straw.json"), *more]))
        assert refused.returncode == 2 and "slime.straw-debug version 1" in refused.stdout + refused.stderr
