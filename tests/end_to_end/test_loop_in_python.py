"""`slime.start`: the steps of a run decided by a script. The weights are those of the built-in loops, bit for bit."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import pytest
import slime
from conftest import ROOT, SLIME, command_on, metric, numbers_that_repeat, run_slime, sft_command, train_command, weights

STEPS = 4


def flags_of(command):
    """Of a command of conftest.py."""
    return command[2:]


def start(command, **options):
    return slime.start(flags_of(command), output=False, program=str(SLIME), **options)


def synchronous(run, *, saves=True):
    for step in run.steps:
        rollout = run.generate(step)
        run.train(rollout)
        run.update_weights()
        if saves:
            run.save(step)


def script(command, body):
    """A script of its own process, with `run` in it."""
    text = f"import os, signal, sys, time, slime\nflags = {flags_of(command)!r}\n" + textwrap.dedent(body)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SLIME_BINARY": str(SLIME)}
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone_within(pid, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not is_alive(pid):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def built_in(work):
    run_dir = work / "loop-built-in"
    done = run_slime(train_command(work, run_dir, rollouts=STEPS))
    assert done.returncode == 0, done.stderr
    return run_dir


def test_a_synchronous_script_trains_what_slime_train_trains(work, built_in):
    run_dir = work / "loop-script"
    with start(train_command(work, run_dir, rollouts=STEPS)) as run:
        assert list(run.steps) == list(range(STEPS))
        assert run.config.rollout_batch_size == 4
        synchronous(run)
    assert weights(run_dir) == weights(built_in)
    assert numbers_that_repeat(run_dir) == numbers_that_repeat(built_in)
    proof = run_slime([str(SLIME), "ledger", str(run_dir)])
    assert proof.returncode == 0, proof.stdout + proof.stderr
    assert len([line for line in (run_dir / "rollouts").iterdir()]) == STEPS


def test_awaited_one_by_one_it_is_the_same(work, built_in):
    run_dir = work / "loop-awaited"

    async def main():
        async with await slime.astart(flags_of(train_command(work, run_dir, rollouts=STEPS)), output=False, program=str(SLIME)) as run:
            for step in run.steps:
                rollout = await run.generate(step)
                trained = await run.train(rollout)
                assert trained.step == step and trained.metrics["train/grad_norm"] == trained.grad_norm
                await run.update_weights()

    asyncio.run(main())
    assert weights(run_dir) == weights(built_in)


@pytest.mark.parametrize("way", [[], ["--train-async", "--deterministic-schedule", "--update-mode", "suspend"]], ids=["train", "train-async"])
def test_the_example_is_the_built_in_loop(work, way):
    evaluates = ["--eval-interval", "2", "--eval-prompt-data", "small", str(work / "data" / "test.jsonl"), "--n-samples-per-eval-prompt", "1"]
    extra = [*way, *evaluates, "--save-interval", "3"]
    by_loop, by_example = (work / f"example-{name}-{len(way)}" for name in ("built-in", "script"))
    done = run_slime(train_command(work, by_loop, rollouts=STEPS, extra=extra))
    assert done.returncode == 0, done.stderr
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SLIME_BINARY": str(SLIME)}
    flags = flags_of(train_command(work, by_example, rollouts=STEPS, extra=extra))
    done = run_slime([sys.executable, ROOT / "examples" / "python_loop" / "train_loop.py", *flags], env=environment)
    assert done.returncode == 0, done.stderr
    assert weights(by_example) == weights(by_loop)
    assert without_load(numbers_that_repeat(by_example)) == without_load(numbers_that_repeat(by_loop))


def test_on_shared_weights_it_is_the_same_and_needs_updates(work, built_in):
    run_dir = work / "loop-shared"
    with start(train_command(work, run_dir, rollouts=STEPS), share_weights=True) as run:
        rollout = run.generate()
        run.train(rollout)
        with pytest.raises(slime.Refused, match="share-weights"):
            run.generate()
        run.update_weights()
        synchronous(run, saves=False)
    assert weights(run_dir) == weights(built_in)


def test_the_moved_await_is_train_async(work):
    extra = ["--train-async", "--deterministic-schedule", "--update-mode", "suspend", "--max-staleness", "1"]
    built_in, moved = work / "loop-async-built-in", work / "loop-async-moved"
    done = run_slime(train_command(work, built_in, rollouts=STEPS, extra=extra))
    assert done.returncode == 0, done.stderr

    async def main():
        with start(train_command(work, moved, rollouts=STEPS, extra=extra)) as run:
            assert run.is_async
            ahead = run.generate()
            for step in run.steps:
                rollout = await ahead
                if step + 1 < run.num_steps:
                    ahead = run.generate(step + 1)  # sampled while the rollout in hand is trained
                await run.train(rollout)
                await run.update_weights()
                await run.save(step)

    asyncio.run(main())
    assert weights(moved) == weights(built_in)
    assert without_load(numbers_that_repeat(moved)) == without_load(numbers_that_repeat(built_in))


def without_load(steps):
    """What the engine has to do at a moment, and when an evaluation beside training ends, does not repeat."""
    return {step: {k: v for k, v in row.items() if not k.startswith(("rollout/engine/", "eval/weight_version/lag"))} for step, row in steps.items()}


def test_supervised_rows_are_trained_by_the_same_verbs(work):
    by_loop, by_script = work / "loop-rows", work / "script-rows"
    data = work / "data" / "sft.jsonl"
    extra = ["--rollout-batch-size", "8", "--global-batch-size", "8"]
    done = run_slime(sft_command(work, by_loop, data, rollouts=3, extra=extra))
    assert done.returncode == 0, done.stderr
    with start(sft_command(work, by_script, data, rollouts=3, extra=extra)) as run:
        synchronous(run)
    assert weights(by_script) == weights(by_loop)


def test_two_ranks_train_what_slime_train_trains(work):
    extra = ["--actor-num-gpus-per-node", "2"]
    by_loop, by_script = work / "loop-ranks", work / "script-ranks"
    done = run_slime(train_command(work, by_loop, rollouts=2, extra=extra))
    assert done.returncode == 0, done.stderr
    with start(train_command(work, by_script, rollouts=2, extra=extra)) as run:
        synchronous(run)
    assert weights(by_script) == weights(by_loop)


def test_a_script_that_never_publishes_trains_off_policy_and_says_so(work, built_in):
    run_dir = work / "loop-off-policy"
    with start(train_command(work, run_dir, rollouts=STEPS)) as run:
        for step in run.steps:
            rollout = run.generate(step)
            assert {sample.weight_version for sample in rollout.samples()} == {0}
            run.train(rollout)
        assert run.state()["steps_behind"] == STEPS
        behind = [row.get("rollout/weight_version/behind_trainer", 0) for row in run.metrics]
    assert behind == list(range(STEPS))
    assert weights(run_dir) != weights(built_in)


def test_samples_are_read_page_by_page(work):
    with start(train_command(work, work / "loop-samples", rollouts=2)) as run:
        rollout = run.generate()
        samples = list(rollout.samples())
        assert len(samples) == len(rollout) == rollout.num_samples == 16 and rollout.num_groups == 4
        assert abs(sum(sample.reward for sample in samples) / 16 - rollout.reward) < 1e-6
        first = samples[0]
        assert first.prompt and isinstance(first.response, str) and first.label is not None and first.status in ("completed", "truncated")
        assert "tokens" not in first
        [tokens] = rollout.samples(3, 4, tokens=True)
        assert tokens.index == samples[3].index
        assert len(tokens.log_probs) == tokens.response_length == len(tokens.tokens) - tokens.prompt_length
        run.train(rollout)
        run.generate()
        assert next(rollout.samples()).index == first.index
        run.drop()
        assert [row["step"] for row in run.metrics] == [0, 1]


def test_out_of_order_is_refused_by_name_and_the_run_goes_on(work):
    # 48 optimizer steps a rollout: training goes on while it is asked for something else.
    many = ["--rollout-batch-size", "48", "--n-samples-per-prompt", "16"]
    with start(train_command(work, work / "loop-order", rollouts=3, extra=many)) as run:
        with pytest.raises(slime.Refused, match=r"generate\(2\): the next rollout is 0"):
            run.generate(2)
        with pytest.raises(slime.Refused, match="--eval-interval"):
            run.evaluate()
        rollout = run.generate()
        with pytest.raises(slime.Refused, match="start the run with --train-async"):
            run.generate()
        training = run.train(rollout, wait=False)
        with pytest.raises(slime.Refused, match=r"save: a rollout is being trained"):
            run.save()
        training.result()
        with pytest.raises(slime.Refused, match=r"train\(rollout 0\): it was trained already"):
            run.train(rollout)
        run.save(0)
        with pytest.raises(slime.Refused, match="is there already"):
            run.save(0)
    with pytest.raises(slime.RunOver, match="the run is closed"):
        run.generate()


def test_a_refusal_that_nobody_awaited_is_told_at_the_end(work):
    run = start(train_command(work, work / "loop-unawaited", rollouts=2))
    run.train(wait=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run.close()
    assert any("no rollout is generated yet" in str(each.message) for each in told)


def test_evaluation_and_what_a_script_decides(work):
    extra = ["--eval-interval", "100", "--eval-prompt-data", "small", str(work / "data" / "test.jsonl"), "--n-samples-per-eval-prompt", "1"]
    with start(train_command(work, work / "loop-evaluates", rollouts=3, extra=extra)) as run:
        before = run.evaluate()
        assert "eval/small" in before.metrics, before.metrics
        rollout = run.generate()
        rollout.drop()
        rollout = run.generate()
        assert rollout.step == 1
        run.train(rollout)
        run.update_weights()
        assert "eval/small" in run.evaluate(1).metrics
    ledger = (work / "loop-evaluates" / "ledger.jsonl").read_text()
    assert "dropped_by_the_loop" in ledger
    proof = run_slime([str(SLIME), "ledger", str(work / "loop-evaluates")])
    assert proof.returncode == 0, proof.stdout + proof.stderr


def test_flags_that_cannot_work_raise_the_programs_sentence(work):
    with pytest.raises(slime.RunOver, match="--rollout-batchsize; did you mean --rollout-batch-size"):
        slime.start(work / "model", output=False, program=str(SLIME), rollout_batchsize=3)
    with pytest.raises(slime.RunOver, match="--lr -1"):
        start([*train_command(work, work / "loop-bad"), "--lr", "-1"])


def test_a_saved_checkpoint_is_named_and_stays_what_it_was(work):
    """`latest` moves on with the next one."""
    with start(train_command(work, work / "saved-paths", rollouts=3, extra=["--keep-checkpoints", "0"])) as run:
        saved = []
        for step in run.steps:
            run.train(run.generate(step))
            run.update_weights()
            saved.append(run.save(step))
        paths = [each.path for each in saved]
    assert [path.name for path in paths] == ["iter_0000000", "iter_0000001", "iter_0000002"]
    assert all((path / "COMMITTED").exists() and path.is_absolute() and not path.is_symlink() for path in paths)
    assert len({(path / "model.safetensors").read_bytes() for path in paths}) == 3


def test_an_error_in_a_step_is_an_exception_and_what_was_trained_is_saved(work):
    run_dir = work / "loop-nothing-accepted"
    command = train_command(work, run_dir, extra=["--loss-type", "sft_loss", "--rejection-min-reward", "2", "--max-untrained-steps", "2"])
    with pytest.raises(slime.RunOver, match="3 rollout steps in a row had no token to train on"):
        with start(command) as run:
            synchronous(run, saves=False)
    with pytest.raises(slime.RunOver, match="had no token to train on"):
        run.generate()
    assert (run_dir / "latest" / "model.safetensors").exists()


def test_a_killed_script_goes_on_behind_its_last_save(work, built_in):
    run_dir = work / "loop-killed"
    command = train_command(work, run_dir, rollouts=STEPS)
    killed = script(command, """
        run = slime.start(flags)
        print(run._child.pid, flush=True)
        for step in run.steps:
            run.train(run.generate(step))
            run.update_weights()
            if step == 1:
                run.save(step)
            if step == 2:
                os.kill(os.getpid(), signal.SIGKILL)
    """)
    out, err = killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL, err
    assert gone_within(int(out), 2)
    with start(command) as run:
        assert list(run.steps) == [2, 3]
        synchronous(run)
    assert weights(run_dir) == weights(built_in)


def test_a_died_program_is_an_exception_with_its_last_words(work):
    run = start(train_command(work, work / "loop-dies", rollouts=3))
    run.generate()
    os.kill(run._child.pid, signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(slime.RunOver, match=r"(?s)ended by signal SIGKILL; its last words:\n  .+"):
        run.train()
    assert time.monotonic() - begin < 2
    with pytest.raises(slime.RunOver, match="SIGKILL"):
        run.save()
    run.close()


def test_ctrl_c_in_the_script_saves_what_was_trained(work):
    run_dir = work / "loop-interrupted"
    interrupted = script(train_command(work, run_dir, rollouts=1000), """
        with slime.start(flags) as run:
            print(run._child.pid, flush=True)
            for step in run.steps:
                run.train(run.generate(step))
                run.update_weights()
                if step == 2:
                    print("ready", flush=True)
    """)
    pid = int(interrupted.stdout.readline())
    assert interrupted.stdout.readline() == "ready\n"
    interrupted.send_signal(signal.SIGINT)
    _, err = interrupted.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    assert not is_alive(pid)
    assert (run_dir / "latest" / "model.safetensors").exists()


def test_an_error_of_the_script_leaves_no_program_behind(work):
    failed = script(train_command(work, work / "loop-script-fails", rollouts=5), """
        run = slime.start(flags)
        print(run._child.pid, flush=True)
        run.train(run.generate())
        raise ValueError("mine")
    """)
    out, err = failed.communicate(timeout=60)
    assert "ValueError: mine" in err
    assert not is_alive(int(out))
    assert (work / "loop-script-fails" / "latest" / "model.safetensors").exists()


def test_the_door_is_for_who_has_the_token(work):
    import http.client

    with start(train_command(work, work / "loop-door", rollouts=1)) as run:
        folder = run._child.folder
        assert (os.stat(folder).st_mode & 0o777, os.stat(folder / "door.json").st_mode & 0o777) == (0o700, 0o600)
        words = open(f"/proc/{run._child.pid}/cmdline").read()
        assert not re.search(r"[0-9a-f]{64}", words)
        for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401)):
            connection = http.client.HTTPConnection(run._door._host, run._door._port)
            connection.request("POST", "/api/run/v1/close", "{}", headers)
            assert connection.getresponse().status == status
        with pytest.raises(slime.Refused, match="stepp is unknown; did you mean step"):
            run._request("POST", "generate", {"stepp": 1})
        with pytest.raises(slime.Refused, match="no verb has it"):
            run._request("POST", "retrieve_future", {"request_id": "77"})
    assert not folder.exists()


def test_a_door_that_others_can_look_into_is_refused(work, tmp_path):
    tmp_path.chmod(0o755)
    done = run_slime([str(SLIME), "steps", "--door", str(tmp_path), *flags_of(train_command(work, work / "loop-open-door"))])
    assert done.returncode == 2 and "mode 0700" in done.stderr


def test_the_built_in_loop_has_a_handle(work, built_in):
    run_dir = work / "loop-handle"
    run = slime.train(flags_of(train_command(work, run_dir, rollouts=STEPS)), output=False, program=str(SLIME))
    assert run.run_dir == run_dir and run.status == "running"
    assert [row["step"] for row in run] == list(range(STEPS))  # as they come
    assert not run.is_running and run.status == "finished"
    assert [row["step"] for row in run.metrics] == list(range(STEPS))
    assert weights(run_dir) == weights(built_in)


def test_the_handle_stops_a_run_as_ctrl_c_does(work):
    run_dir = work / "loop-stopped"
    run = slime.train(flags_of(train_command(work, run_dir, rollouts=100_000)), output=False, program=str(SLIME))
    while not run.metrics:
        assert run.is_running
        time.sleep(0.02)
    with pytest.raises(TimeoutError):
        run.wait(timeout=0.05)
    run.stop()
    assert (run_dir / "latest" / "model.safetensors").exists()


def test_the_handle_says_what_a_run_died_of(work):
    with pytest.raises(slime.RunOver, match="--lr -1"):
        slime.train([*flags_of(train_command(work, work / "loop-handle-bad")), "--lr", "-1"], output=False, program=str(SLIME))
    run = slime.train(flags_of(train_command(work, work / "loop-handle-dies", rollouts=100_000)), output=False, program=str(SLIME))
    os.kill(run._child.pid, signal.SIGKILL)
    with pytest.raises(slime.RunOver, match="SIGKILL"):
        run.wait()
    assert run.status == "failed"
