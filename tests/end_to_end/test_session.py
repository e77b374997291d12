"""`slime.start(MODEL)`: a model that the script samples and trains by verbs of its own."""

import asyncio
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import textwrap

import pytest
import slime
from conftest import ROOT, SLIME, mean, train_command
from test_loop_in_python import flags_of, gone_within, is_alive
from torch_python import torch_python

FLAGS = {"device": "cpu", "fp32": True, "num_threads": 1, "lr_decay_style": "constant"}
QUIET = {**FLAGS, "output": False, "program": str(SLIME)}


def prompts():
    draw = random.Random(3)
    return [f"{draw.randint(10, 99)}+{draw.randint(10, 99)}=" for _ in range(64)]


def capitals(text):
    return float(any(letter.isupper() for letter in text))


def start(work, **flags):
    return slime.start(work / "model", **{**QUIET, **flags})


@pytest.fixture(scope="module")
def session(work):
    """For tests that leave the weights as they are."""
    with start(work) as s:
        yield s


def weights_of(folder):
    return (folder / "model.safetensors").read_bytes()


def test_the_reward_rises_in_the_steps_of_an_iterator(work, tmp_path):
    with start(work, lr=3e-3) as s:
        rewards = []
        steps = s.grpo(prompts(), lambda sample: capitals(sample.response), groups=4, samples=8, steps=30, max_tokens=6)
        for step in steps:
            rewards.append(step.reward)
            assert step.index == len(rewards) - 1
            if step.index == 12:
                break
        # It goes on, and so does another call; the prompts do too.
        rewards.append(next(steps).reward)
        for step in s.grpo(prompts(), lambda sample: capitals(sample.response), groups=4, samples=8, steps=11, max_tokens=6):
            rewards.append(step.reward)
        assert step.index == 24 and s._cursor == 100
        assert mean(rewards[-5:]) > mean(rewards[:3]) + 0.15, rewards
        folder = s.save(tmp_path / "out")
        assert (folder / "config.json").exists() and (folder / "tokenizer.json").exists()


def run_samples(work, run_dir):
    """The samples of a run's first step, with its weights before and behind it."""
    flags = flags_of(train_command(work, run_dir, rollouts=1))
    with slime.start(flags, output=False, program=str(SLIME)) as run:
        rollout = run.generate()
        samples = list(rollout.samples(tokens=True))
        run.train(rollout)
        run.update_weights()
        run.save()
    return samples


def test_a_pass_and_a_step_give_the_weights_of_the_run_bit_for_bit(work, tmp_path):
    samples = run_samples(work, tmp_path / "run")
    with start(work, use_dynamic_batch_size=True, max_tokens_per_gpu=512) as s:
        groups = {}
        for sample in samples:
            groups.setdefault(sample.group, slime.Group()).append(sample)
        s.advantages(list(groups.values()))
        made = s.forward_backward(groups.values())
        update = s.step(lr=1e-3)
        s.save(tmp_path / "by-verbs")
        row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert weights_of(tmp_path / "by-verbs") == weights_of(tmp_path / "run" / "latest")
    assert update.grad_norm == row["train/grad_norm"] and math.isclose(made.loss, row["train/loss"], abs_tol=1e-12)


def test_grpo_by_verbs_is_grpo_of_a_run(work, tmp_path):
    options = {"groups": 4, "samples": 8, "max_tokens": 6, "steps": 3}
    batches = {"use_dynamic_batch_size": True, "max_tokens_per_gpu": 512}

    def reward(sample):
        return capitals(sample.response) + len(sample.response) / 10

    run = [
        step.reward
        for step in slime.grpo(work / "model", prompts(), reward, lr=3e-3, run_dir=tmp_path / "run", **options, **batches, **QUIET)
    ]
    with start(work, lr=3e-3, **batches) as s:
        own = [step.reward for step in s.grpo(prompts(), reward, **options)]
        s.save(tmp_path / "own")
    assert own == run
    assert weights_of(tmp_path / "own") == weights_of(tmp_path / "run" / "latest")


def test_passes_add_up_until_the_step(work, tmp_path):
    with start(work) as s:
        groups = s.generate(["1+1=", "2+2="], n=2, max_tokens=4)
        for number, sample in enumerate(sample for group in groups for sample in group):
            sample.advantage = 1.0 - number
        whole = s.forward_backward(groups, "importance_sampling", reduction="sum")
        first = s.step(lr=0.0).grad_norm
        parts = [s.forward_backward(group, "importance_sampling", reduction="sum", wait=False) for group in groups]
        second = s.step(lr=0.0, wait=False, after=parts[1])
        assert math.isclose(sum(each.result().loss for each in parts), whole.loss, rel_tol=1e-5)
        assert math.isclose(second.result().grad_norm, first, rel_tol=1e-4)


def test_a_pass_that_fails_changes_nothing(work):
    with start(work) as s:
        [group] = s.generate("1+1=", n=2, max_tokens=4)
        for sample in group:
            sample.advantage = 1.0
        s.forward_backward(group)
        bad = [slime.Sample({**group[0], "log_probs": [-1e9] * group[0].response_length}), group[1]]
        before = s.logprobs(group)
        failed = s.forward_backward(bad, "importance_sampling", wait=False)
        update = s.step(lr=1.0, wait=False, after=failed)
        with pytest.raises(slime.Refused, match=r"the loss of data\[0\].* is -?(inf|nan)"):
            failed.result()
        with pytest.raises(slime.Refused, match="not updated"):
            update.result()
        assert s.logprobs(group) == before
        assert s.step(lr=1e-3, divisor=2).grad_norm > 0  # those of the first pass are there
        with pytest.raises(ValueError, match=r"sample 0: advantage\[0\] is inf"):
            s.forward_backward([slime.Sample({**group[0], "advantage": math.inf})])


def test_what_is_refused_leaves_what_gradients_are_divided_by(work, tmp_path):
    with start(work) as s:
        [group] = s.generate("1+1=", n=2, max_tokens=4)
        for number, sample in enumerate(group):
            sample.advantage = 1.0 - number
        s.forward_backward(group, "ppo")
        expected = s.step(lr=0.0).grad_norm
        s.forward_backward(group, "ppo")
        with pytest.raises(slime.Refused, match="learning_rate must be"):
            s.step(lr=-1.0)
        bad = [slime.Sample({**group[0], "log_probs": [-1e9] * group[0].response_length}), group[1]]
        with pytest.raises(slime.Refused, match="the loss of"):
            s.forward_backward(bad, "importance_sampling", wait=False).result()
        assert s.step(lr=0.0).grad_norm == expected
        s.forward_backward(group, "ppo")
        s.forward_backward(bad, "importance_sampling", wait=False)  # and nobody asks how it went
        with pytest.raises(slime.Refused, match="not updated"):
            s.step(lr=0.0)
        assert s.step(lr=0.0).grad_norm == expected
        with pytest.raises(ValueError, match="clip: not with a function"):
            s.forward_backward(group, lambda log_probs, samples: (0.0, log_probs), clip=(0.1, 0.1))
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "mine.txt").write_text("x")
        with pytest.raises(slime.Refused, match="holds no weights that were saved here"):
            s.save(tmp_path / "notes", overwrite=True)
        assert (tmp_path / "notes" / "mine.txt").exists()
        assert s.save(s.save(tmp_path / "out"), overwrite=True).is_dir()


def test_log_probs_of_the_sampler_are_the_trainers(session):
    groups = session.generate(["1+1=", "20+22="], n=3, max_tokens=5)
    samples = [sample for group in groups for sample in group]
    by_trainer, by_base = session.logprobs(samples), session.base.logprobs(samples)
    for sample, trained, base in zip(samples, by_trainer, by_base):
        assert len(trained) == len(base) == sample.response_length == len(sample.log_probs)
        for one, two, three in zip(sample.log_probs, trained, base):
            assert math.isclose(one, two, abs_tol=1e-4) and math.isclose(two, three, abs_tol=1e-4)


def test_a_snapshot_stays_as_it_is(work):
    with start(work) as s:
        with s.snapshot() as before:
            groups = before.generate(["1+1="], n=4, max_tokens=6, temperature=0)
            for sample in groups[0]:
                sample.weights = [1.0] * sample.response_length
            s.forward_backward(groups, "cross_entropy")
            s.step(lr=1e-2)
            after = s.snapshot()
            assert after is s.snapshot() and after is not before
            assert before.generate(["1+1="], max_tokens=6, temperature=0)[0][0].tokens == groups[0][0].tokens
            assert sum(after.logprobs(groups)[0]) > sum(before.logprobs(groups)[0]) + 0.1


def test_a_loss_in_python_is_the_loss_of_the_program(work, tmp_path):
    def loss(logprobs, samples):
        """-sum of advantage * log-prob, with its gradients."""
        value = -sum(sample.advantage * each for sample, row in zip(samples, logprobs) for each in row)
        return value, [[-sample.advantage] * len(row) for sample, row in zip(samples, logprobs)], {"mine:sum": 3.0}

    with start(work) as s:
        [group] = s.generate("1+1=", n=2, max_tokens=4, seed=5, first_index=0)
        group[0].advantage, group[1].advantage = 1.0, -0.5
        own = s.forward_backward(group, loss)
        own_norm = s.step(lr=1e-3).grad_norm
        s.save(tmp_path / "own")
        s.load(work / "model")
        for sample in group:
            sample.weights = [sample.advantage] * sample.response_length
        built_in = s.forward_backward(group, "cross_entropy")
        assert math.isclose(own.loss, built_in.loss, rel_tol=1e-6) and own.metrics["mine:sum"] == 3.0
        assert s.step(lr=1e-3).grad_norm == own_norm
        s.save(tmp_path / "built-in")
    assert weights_of(tmp_path / "own") == weights_of(tmp_path / "built-in")


def test_save_and_load_go_on_bit_for_bit(work, tmp_path):
    def train(s):
        [group] = s.generate("1+1=", n=2, max_tokens=4, seed=1, first_index=0)
        for number, sample in enumerate(group):
            sample.advantage = 1.0 - 2 * number
        s.forward_backward(group, "ppo", clip=(0.2, 0.28))
        return s.step(lr=1e-3).index

    with start(work) as s:
        train(s)
        s.save(tmp_path / "first")
        train(s)
        s.save(tmp_path / "straight")
        with pytest.raises(slime.Refused, match="is there already"):
            s.save(tmp_path / "straight")
    with start(work) as s:
        s.load(tmp_path / "first")
        assert train(s) == 2
        s.save(tmp_path / "resumed")
    assert weights_of(tmp_path / "resumed") == weights_of(tmp_path / "straight")


def test_a_load_that_is_refused_changes_nothing(work, tmp_path):
    with start(work) as s:
        [group] = s.generate("1+1=", n=2, max_tokens=4, seed=1, first_index=0)
        for number, sample in enumerate(group):
            sample.advantage = 1.0 - 2 * number
        s.forward_backward(group)
        s.step(lr=1e-3)
        s.save(tmp_path / "first")
        s.forward_backward(group)
        s.step(lr=1e-3)
        s.save(tmp_path / "before")
        moments = tmp_path / "first" / "optimizer" / "exp_avg_sq.safetensors"
        whole = moments.read_bytes()
        moments.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        s.forward_backward(group)
        with pytest.raises(slime.Refused, match="exp_avg_sq.safetensors has a wrong checksum"):
            s.load(tmp_path / "first")
        s.save(tmp_path / "after")
        assert weights_of(tmp_path / "after") == weights_of(tmp_path / "before")
        assert s.step(lr=1e-3).index == 3, "the gradients that were added are still there"
        moments.write_bytes(whole)
        s.load(tmp_path / "first")


def test_awaited_it_is_the_same(work):
    async def main():
        async with await slime.astart(work / "model", **QUIET) as s:

            async def reward(response, label):
                await asyncio.sleep(0)
                return response == label

            groups = await s.agenerate(["1+1="], n=2, max_tokens=3)
            await s.ascore(groups, reward)
            s.advantages(groups)
            await s.aforward_backward(groups)
            assert (await s.astep(lr=1e-4)).index == 1
            assert len(await s.alogprobs(groups)) == 2
            seen = [step.index async for step in s.grpo(["1+1="], lambda sample: 0.5, groups=1, samples=2, steps=2, max_tokens=3)]
            assert seen == [1, 2]

    asyncio.run(main())


def test_an_error_of_the_reward_has_the_sample_and_the_line(session):
    def reward(sample):
        return 1 / 0  # the line

    with pytest.raises(slime.RewardError, match=rf"test_session.py:{reward.__code__.co_firstlineno + 1}") as error:
        next(session.grpo(["1+1="], reward, groups=1, samples=2, max_tokens=3))
    assert error.value.sample.prompt == "1+1=" and isinstance(error.value.__cause__, ZeroDivisionError)
    assert "'1+1='" in str(error.value) and "return 1 / 0  # the line" in str(error.value)


def test_what_cannot_be_is_refused_by_name(work, session):
    with pytest.raises(slime.RunOver, match="here it is --lr"):
        start(work, learning_rate=1)
    with pytest.raises(slime.RunOver, match="--lora-rank: not with slime tinker"):
        start(work, lora_rank=4)
    with pytest.raises(slime.RunOver, match="no such directory"):
        start(work / "nothing")
    [group] = session.generate("1+1=", n=1, max_tokens=2)
    with pytest.raises(ValueError, match="has no advantage"):
        session.forward_backward(group)
    with pytest.raises(ValueError, match="there are policy, ppo"):
        session.forward_backward(group, "pppo")
    with pytest.raises(slime.Refused, match="together more than"):
        session.generate("1+1=", max_tokens=10**6)
    with pytest.raises(slime.Refused, match="vocabulary"):
        session.logprobs([slime.Sample({**group[0], "tokens": [*group[0].tokens[:-1], 10**6]})])


SCRIPT = """
    import os, signal, sys, threading, time, slime
    s = slime.start({model!r}, output=False, **{flags!r})
    print(s._child.pid, flush=True)
"""


def script(work, body):
    text = textwrap.dedent(SCRIPT.format(model=str(work / "model"), flags=FLAGS)) + textwrap.dedent(body)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SLIME_BINARY": str(SLIME)}
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGTERM)", "sys.exit(3)", "raise KeyboardInterrupt"])
def test_the_program_ends_with_the_script(work, end):
    process = script(work, end)
    pid = int(process.stdout.readline())
    process.communicate(timeout=120)
    assert gone_within(pid, 30)


def test_ctrl_c_ends_a_step_and_the_session_goes_on(work):
    process = script(work, """
        def endless(sample):
            print("in the reward", flush=True)
            time.sleep(600)
        try:
            next(s.grpo(["1+1="], endless, groups=1, samples=2, max_tokens=3))
        except KeyboardInterrupt:
            print(len(s.generate("1+1=", n=2, max_tokens=3)[0]), flush=True)
        s.close()
    """)  # fmt: skip
    pid = int(process.stdout.readline())
    assert process.stdout.readline().strip() == "in the reward"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().strip() == "2", process.communicate()
    assert process.wait(timeout=120) == 0 and not is_alive(pid)


def test_a_program_that_is_killed_is_told(work):
    with start(work) as s:
        os.kill(s._child.pid, signal.SIGKILL)
        with pytest.raises(slime.RunOver, match="SIGKILL"):
            s.generate("1+1=", max_tokens=3)


TORCH_SCRIPT = """
import sys, torch, slime
with slime.start({model!r}, output=False, **{flags!r}) as s:
    [group] = s.generate("1+1=", n=2, max_tokens=4, seed=5, first_index=0)
    group[0].advantage, group[1].advantage = 1.0, -0.5
    def loss(logprobs, samples):
        ratios = [torch.exp(row - torch.tensor(sample.log_probs)) for row, sample in zip(logprobs, samples)]
        return sum(-(ratio * sample.advantage).sum() for ratio, sample in zip(ratios, samples)), {{"mine:sum": 1.0}}
    own = s.forward_backward(group, loss)
    own_norm = s.step(lr=0.0, divisor=1).grad_norm
    built_in = s.forward_backward(group, "importance_sampling", reduction="sum")
    norm = s.step(lr=0.0, divisor=1).grad_norm
    assert abs(own.loss - built_in.loss) < 1e-5 and abs(own_norm / norm - 1) < 1e-4, (own.loss, built_in.loss, own_norm, norm)
    assert own.metrics["mine:sum"] == 1.0
    print("same")
"""


def test_a_loss_in_torch_is_the_loss_of_the_program(work):
    python = torch_python()
    if python is None:
        pytest.skip("no interpreter has torch")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SLIME_BINARY": str(SLIME)}
    text = TORCH_SCRIPT.format(model=str(work / "model"), flags=FLAGS)
    done = subprocess.run([python, "-c", text], capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.stdout == "same\n", done.stderr


def snippets():
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)


def test_the_ten_lines_of_the_page_run(work, tmp_path, capsys):
    rows = [{"prompt": each, "label": "5"} for each in prompts()]
    (tmp_path / "task.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = {
        '"Qwen/Qwen3-0.6B", lr=1e-6': f"{str(work / 'model')!r}, lr=1e-6, **{QUIET!r}",
        '"task.jsonl"': repr(str(tmp_path / "task.jsonl")),
        "groups=32, samples=8, steps=200": "groups=2, samples=2, steps=2, max_tokens=3",
        '"out"': repr(str(tmp_path / "out")),
    }
    text = snippets()[0]
    for given, own in small.items():
        assert given in text
        text = text.replace(given, own)
    exec(text, {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0", "1"]
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_the_verbs_of_the_page_run(work):
    [text] = [each for each in snippets() if "s.forward_backward(groups, loss=" in each]
    text = text.replace("max_tokens=512", "max_tokens=3")
    with start(work) as s:
        seen = {"s": s, "prompts": prompts()[:2], "reward": lambda sample: capitals(sample.response)}
        exec(text, seen)
    assert seen["update"].index == 1 and len(seen["made"].logprobs) == 16


def test_more_prompts_than_answers_that_are_kept(session):
    """The program forgets old answers; a call has fewer under way."""
    groups = session.generate(["1+1="] * 5000, n=1, max_tokens=1)
    assert len(groups) == 5000 and all(len(group) == 1 and group[0].response_length == 1 for group in groups)
