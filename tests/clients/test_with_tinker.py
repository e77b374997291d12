"""Tinker's own client, unmodified, on `slime tinker`: training of adapters, losses of its own, states, samples, and a server that is killed."""

import os
import signal
import sys
from pathlib import Path

import pytest

os.environ.update(TINKER_TELEMETRY="0", TINKER_API_KEY="tml-tests")
tinker = pytest.importorskip("tinker", reason="tinker is not installed")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))
from recite import write_model as write_reciter  # noqa: E402
from tinker_program import NAME, TinkerProgram, write_model  # noqa: E402

SLIME = Path(os.environ.get("SLIME", ROOT / "build/release/slime"))
ADAM = tinker.AdamParams(learning_rate=1e-2, eps=1e-8)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tinker")
    write_reciter(folder / "tokenizer", {"x": "y"})  # the fixture's model has none
    write_model(folder / "model", folder / "tokenizer")
    return folder / "model"


@pytest.fixture
def program(model, tmp_path):
    started = TinkerProgram(SLIME, model, tmp_path / "store")
    yield started
    started.stop()


def client(program, key="tml-tests"):
    return tinker.ServiceClient(base_url=program.url, api_key=key)


def value(result):
    """Of a call that gives a future in newer versions."""
    return result.result() if hasattr(result, "result") else result


def open_model(service, rank=4, **more):
    return value(service.create_lora_training_client(base_model=NAME, rank=rank, seed=1, **more))


def datum(tokens, **inputs):
    weights = {"weights": tinker.TensorData(data=[1.0] * (len(tokens) - 1), dtype="float32", shape=[len(tokens) - 1])}
    targets = tinker.TensorData(data=tokens[1:], dtype="int64", shape=[len(tokens) - 1])
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={"target_tokens": targets, **(inputs or weights)})


DATA = [datum([5, 6, 7, 8]), datum([9, 4, 57, 214, 12, 3])]


def log_probs(result):
    return [list(output["logprobs"].data) for output in result.loss_fn_outputs]


def train(training, steps, data=DATA):
    losses = []
    for _ in range(steps):
        passed, updated = training.forward_backward(data, "cross_entropy"), training.optim_step(ADAM)
        losses.append(passed.result().metrics["loss:sum"])
        updated.result()
    return losses


def test_an_adapter_learns_and_is_sampled_as_it_was_then(program):
    service = client(program)
    training = open_model(service)
    info = training.get_info()
    assert info.is_lora and info.lora_rank == 4 and info.model_data.model_name == NAME
    first = value(training.save_weights_and_get_sampling_client())
    prompt = tinker.ModelInput.from_ints([5, 6, 7, 8])
    before = value(first.compute_logprobs(prompt))
    losses = train(training, 40)
    assert losses[-1] < losses[0] / 2
    later = value(training.save_weights_and_get_sampling_client())
    assert sum(value(later.compute_logprobs(prompt))[1:]) > sum(before[1:])
    assert value(first.compute_logprobs(prompt)) == before
    greedy = tinker.SamplingParams(max_tokens=3, temperature=0.0, stop=[])
    made = later.sample(prompt=tinker.ModelInput.from_ints([5]), sampling_params=greedy, num_samples=2).result()
    assert [sequence.tokens for sequence in made.sequences] == [[6, 7, 8]] * 2
    base = value(service.create_sampling_client(base_model=NAME))
    assert value(base.compute_logprobs(prompt))[1:] == pytest.approx(before[1:], abs=1e-5)


def test_reinforcement_learning_takes_one_step(program):
    training = open_model(client(program))
    sampler = value(training.save_weights_and_get_sampling_client())
    prompt = [5, 6, 7]
    params = tinker.SamplingParams(max_tokens=4, temperature=1.0, seed=3, stop=[])
    made = sampler.sample(prompt=tinker.ModelInput.from_ints(prompt), sampling_params=params, num_samples=4).result()
    data = []
    for i, sequence in enumerate(made.sequences):
        count = len(prompt) - 1

        def column(values, count=count):
            padded = [0.0] * count + [float(each) for each in values]
            return tinker.TensorData(data=padded, dtype="float32", shape=[len(padded)])

        advantage = 1.0 if i % 2 == 0 else -1.0
        columns = {"logprobs": column(sequence.logprobs), "advantages": column([advantage] * len(sequence.tokens))}
        data.append(datum(prompt + list(sequence.tokens), **columns))
    passed = training.forward_backward(data, "importance_sampling").result()
    for output, sequence in zip(passed.loss_fn_outputs, made.sequences):
        assert list(output["logprobs"].data)[len(prompt) - 1 :] == pytest.approx(list(sequence.logprobs), abs=1e-4)
    training.optim_step(ADAM).result()
    clipped = training.forward_backward(data, "ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}).result()
    assert log_probs(clipped) != log_probs(passed)


def test_states_are_gone_on_from(program):
    service = client(program)
    training = open_model(service)
    train(training, 2)
    saved = training.save_state("two").result().path
    expected = train(training, 2)
    again = value(service.create_training_client_from_state_with_optimizer(saved))
    assert train(again, 2) == expected
    assert log_probs(again.forward(DATA, "cross_entropy").result()) == log_probs(training.forward(DATA, "cross_entropy").result())


def test_what_is_wrong_is_said_and_the_model_goes_on(program):
    service = client(program)
    training = open_model(service)
    with pytest.raises(tinker.RequestFailedError, match="vocabulary"):
        training.forward_backward([datum([5, 6, 100000])], "cross_entropy").result()
    assert train(training, 1)[0] > 0
    with pytest.raises(tinker.BadRequestError):
        open_model(service, rank=4096)


def test_another_clients_models_are_not_there(program):
    training = open_model(client(program))
    saved = training.save_state("mine").result().path
    other = client(program, "tml-other")
    with pytest.raises(tinker.APIStatusError):
        value(other.create_training_client_from_state(saved))
    with pytest.raises(tinker.APIStatusError):
        value(other.create_sampling_client(model_path=saved))


@pytest.mark.parametrize("state_seconds", [0, 1000], ids=["from-a-state", "from-the-beginning"])
def test_a_killed_server_is_gone_on_with(model, tmp_path, state_seconds):
    """The client repeats what it has no answer to, and the weights are those of a run without a kill, bit for bit."""
    flags = ["--state-seconds", str(state_seconds)]
    undisturbed = TinkerProgram(SLIME, model, tmp_path / "undisturbed", *flags)
    training = open_model(client(undisturbed))
    losses = train(training, 6)
    expected = log_probs(training.forward(DATA, "cross_entropy").result())
    undisturbed.stop()

    program = TinkerProgram(SLIME, model, tmp_path / "store", *flags)
    port = int(program.url.rsplit(":", 1)[1])
    training = open_model(client(program))
    made = train(training, 3)
    passed, updated = training.forward_backward(DATA, "cross_entropy"), training.optim_step(ADAM)
    program.stop(signal.SIGKILL)
    program = TinkerProgram(SLIME, model, tmp_path / "store", *flags, port=port)
    made.append(passed.result().metrics["loss:sum"])
    updated.result()
    assert made + train(training, 2) == losses
    assert log_probs(training.forward(DATA, "cross_entropy").result()) == expected
    program.stop()
