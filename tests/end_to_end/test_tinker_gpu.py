"""`slime tinker --device cuda`: adapters over one base, trained and sampled beside each other. Skipped where there is no GPU."""

import pytest
from conftest import SLIME
from test_tinker_messages import DATA, NAME, OTHER, ask_for_scores, open_model, sampler_of, scores, send, train
from tinker_program import TinkerProgram, read_pass, read_samples, write_model, write_store
from visible_gpus import num_gpus

pytestmark = pytest.mark.skipif(num_gpus() == 0, reason="no NVIDIA GPU")

# Of a log-prob against the CPU's in float32.
BOUNDS = {"float16": 0.03, "bfloat16": 0.15}


@pytest.fixture(scope="module")
def model(work):
    write_model(work / "tinker-gpu", work / "model")
    return work / "tinker-gpu"


@pytest.fixture(scope="module")
def on_cpu(model, tmp_path_factory):
    """Passes of two models that learn, one after the other."""
    program = TinkerProgram(SLIME, model, tmp_path_factory.mktemp("cpu") / "store")
    passes = {}
    for name, rank, data in [("one", 4, DATA), ("two", 8, OTHER)]:
        _, trained = open_model(program, rank=rank)
        passes[name] = [read_pass(each) for each in train(program, trained, data, 1)]
    program.stop()
    return passes


@pytest.fixture(scope="module", params=BOUNDS)
def program(model, tmp_path_factory, request):
    store = tmp_path_factory.mktemp(request.param) / "store"
    write_store(store)
    started = TinkerProgram(SLIME, model, store, "--kv-cache-gb", "1", device=("--device", "cuda", "--dtype", request.param))
    started.bound = BOUNDS[request.param]
    yield started
    started.stop()


def far(one, two):
    """The largest difference."""
    return max(abs(a - b) for a, b in zip(one, two, strict=True))


def test_two_adapters_over_one_base_learn_what_each_learns_on_the_cpu(program, on_cpu):
    models = {"one": open_model(program, rank=4)[1], "two": open_model(program, rank=8)[1]}
    made = {"one": [], "two": []}
    for step in range(3):
        for name, data in [("one", DATA), ("two", OTHER)]:
            made[name].append(read_pass(train(program, models[name], data, 2 * step + 1, steps=1)[0]))
    for name, passes in made.items():
        losses = [metrics["loss:sum"] for metrics, _ in passes]
        assert losses[-1] < losses[0], losses  # the third step goes too far, on the CPU too
        for step, ((_, own), (_, expected)) in enumerate(zip(passes, on_cpu[name], strict=True)):
            bound = program.bound * (1 if step == 0 else 5)  # Adam divides small gradients by themselves
            assert far(own[0]["logprobs"], expected[0]["logprobs"]) < bound, (name, step, own, expected)


def log_probs(message):
    return read_samples(message)["prompt_logprobs"][1:]


def test_snapshots_sampled_beside_each_other_have_their_own_numbers(program):
    session, model = open_model(program)
    early = sampler_of(program, model, 1, 0)
    train(program, model, DATA, 2)
    late = sampler_of(program, model, 8, 1)
    base = program.post("create_sampling_session", session_id=session, sampling_session_seq_id=2, base_model=NAME)["sampling_session_id"]
    alone = {sampler: log_probs(scores(program, sampler, 0)) for sampler in (early, late, base)}
    asked = [(sampler, ask_for_scores(program, sampler, 1 + i)) for i in range(8) for sampler in (early, late, base)]
    for sampler, request in asked:  # the same rows, mixed
        assert far(log_probs(program.result(request)), alone[sampler]) < program.bound / 3
    assert far(alone[early], alone[base]) < program.bound / 3  # B begins at zero
    assert far(alone[late], alone[base]) > 3 * program.bound
    passed = read_pass(program.result(send(program, model, 9, DATA, forward_only=True)))
    assert far(alone[late], passed[1][0]["logprobs"]) < program.bound / 3  # the sampler's numbers are the trainer's


def test_an_adapter_trains_while_others_are_sampled(program):
    _, model = open_model(program)
    sampler = sampler_of(program, model, 1, 0)
    expected = log_probs(scores(program, sampler, 0))
    asked = []
    for step in range(6):
        asked += [ask_for_scores(program, sampler, 1 + 4 * step + i) for i in range(4)]
        train(program, model, DATA, 2 + 2 * step, steps=1)
    for request in asked:
        assert far(log_probs(program.result(request)), expected) < program.bound / 3


def test_float32_has_no_adapters_there_and_says_what_to_do(model, tmp_path):
    program = TinkerProgram(SLIME, model, tmp_path / "store", "--kv-cache-gb", "1", device=("--device", "cuda", "--fp32"))
    session = program.post("create_session", tags=[], sdk_version="0.38.0", type="create_session")["session_id"]
    asked = {"session_id": session, "model_seq_id": 0, "base_model": NAME, "lora_config": {"rank": 4}}
    status, answer = program.call("create_model", asked)
    program.stop()
    assert status == 400 and "--dtype bfloat16" in answer["detail"], answer
