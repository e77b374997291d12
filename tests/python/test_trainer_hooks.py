"""The trainer's hooks: tensors in shared memory, gradients back in it. Compared with the same function called here."""

import mmap
import os
from argparse import Namespace

import pytest
from test_host import host

torch = pytest.importorskip("torch", reason="torch cannot be imported")

import plugins  # noqa: E402
from golden_cases import golden  # noqa: E402
from slime.backends.megatron_utils.loss import get_log_probs_and_entropy  # noqa: E402
from slime.host.frames import Columns  # noqa: E402


class Memory:
    """Shared memory that tensors are put into one behind the other."""

    def __init__(self, size=1 << 20):
        self.descriptor = os.memfd_create("tensors")
        os.ftruncate(self.descriptor, size)
        self.size, self.used = size, 0
        self.map = mmap.mmap(self.descriptor, size)

    def put(self, tensor):
        """The tensor's word, and a view of where it lies."""
        word = {
            "memory": 1,
            "offset": self.used,
            "dtype": str(tensor.dtype)[len("torch.") :],
            "shape": list(tensor.shape),
        }
        view = torch.frombuffer(self.map, dtype=tensor.dtype, count=tensor.numel(), offset=self.used)
        view = view.reshape(tensor.shape)
        view.copy_(tensor)
        self.used += (tensor.numel() * tensor.element_size() + 63) // 64 * 64
        return word, view

    def rows(self, tensors):
        word, view = self.put(torch.cat(tensors))
        starts = [0]
        for tensor in tensors:
            starts.append(starts[-1] + len(tensor))
        return {"rows": word, "starts": starts}, view


def send(h, memory, call):
    head = {"memory": [{"id": 1, "bytes": memory.size}]}
    return h.finish(h.begin([call], descriptors=[memory.descriptor], **head))[0]


LENGTHS = [3, 2]
MASKS = [torch.tensor([1.0, 1, 0]), torch.tensor([1.0, 1])]


VOCABULARY = 4
TOTAL_LENGTHS = [5, 4]


def loss_call(memory, logits, **more):
    """A call of a loss, and views of the gradients that it is to write."""
    rows = torch.cat([torch.arange(1, 4), torch.arange(6, 8)])  # those that predict response tokens
    targets = torch.tensor([0, 1, 2, 3, 0])
    all_log_probs = torch.log_softmax(logits[0, rows], -1)
    log_probs = all_log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    entropy = -(all_log_probs.exp() * all_log_probs).sum(-1)
    tokens = torch.tensor([9, 9, 0, 1, 2, 9, 9, 3, 0])
    token_word, _ = memory.put(tokens)
    advantages, _ = memory.put(torch.tensor([1.0, -1, 2, 0.5, 1]))
    batch = {
        "tokens": {**token_word, "shape": [1, 9]},
        "unconcat_tokens": {"rows": token_word, "by": "total_lengths"},
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": LENGTHS,
        "rollout_mask_sums": [2, 2],
        "loss_masks": memory.rows(MASKS)[0],
        "advantages": {"rows": advantages, "by": "response_lengths"},
        "ref_log_probs": None,
    }
    call = {"batch": batch, "log_probs": memory.put(log_probs)[0], "entropy": memory.put(entropy)[0], **more}
    views = {}
    for name, shape in (("log_probs", [5]), ("entropy", [5]), ("logits", [1, 9, VOCABULARY])):
        call[f"{name}_gradient"], views[name] = memory.put(torch.full(shape, 7.0))
    call["logits"], views["empty"] = memory.put(torch.zeros(1, 9, VOCABULARY))
    return call, views


def leaf_and_loss(logits, name):
    """The same function on a tensor here: its result, and the leaf with its gradient."""
    from slime.backends.megatron_utils.cp_utils import get_sum_of_sample_mean

    leaf = logits.clone().requires_grad_()
    tokens = [torch.tensor([9, 9, 0, 1, 2]), torch.tensor([9, 9, 3, 0])]
    batch = {
        "unconcat_tokens": tokens,
        "total_lengths": TOTAL_LENGTHS,
        "response_lengths": LENGTHS,
        "advantages": list(torch.tensor([1.0, -1, 2, 0.5, 1]).split(LENGTHS)),
    }
    reduce = get_sum_of_sample_mean(TOTAL_LENGTHS, LENGTHS, MASKS)
    result, metrics = getattr(plugins, name)(Namespace(), batch, leaf, reduce)
    result.backward()
    return result, metrics, leaf


def test_a_loss_of_log_probs_needs_no_logits():
    torch.manual_seed(1)
    memory, logits = Memory(), torch.randn(1, 9, VOCABULARY)
    call, views = loss_call(memory, logits)
    with host(("loss", "loss")) as h:
        value = send(h, memory, call)["value"]
        again = h.call(call)["value"]  # the memory is there already
        assert h.asks == []
    result, metrics, leaf = leaf_and_loss(logits, "loss")
    assert value["loss"] == pytest.approx(result.item(), abs=1e-6) and again["loss"] == value["loss"]
    assert value["metrics"] == {"picked": pytest.approx(metrics["picked"].item(), abs=1e-6), "plain": 2.0}
    assert value["log_probs"] and not value["logits"]
    # The log-probs' gradient through a softmax is the logits' gradient of the same function.
    other = logits.clone().requires_grad_()
    rows = torch.cat([torch.arange(1, 4), torch.arange(6, 8)])
    scored = torch.log_softmax(other[0, rows], -1).gather(1, torch.tensor([[0], [1], [2], [3], [0]])).squeeze(1)
    scored.backward(views["log_probs"])
    assert torch.allclose(other.grad, leaf.grad, atol=1e-6) and leaf.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["loss_of_logits", "loss_of_changed_tokens"])
def test_logits_that_a_loss_reads_are_asked_for_once(name):
    torch.manual_seed(2)
    memory, logits = Memory(), torch.randn(1, 9, VOCABULARY)
    call, views = loss_call(memory, logits)

    def fill(ask, arrays):
        views["empty"].copy_(logits)
        return {}, Columns()

    with host(("loss", name), on_ask=fill) as h:
        value = send(h, memory, call)["value"]
        assert [ask["what"] for ask in h.asks] == ["logits"]
    result, _, leaf = leaf_and_loss(logits, name)
    assert value["loss"] == pytest.approx(result.item(), abs=1e-6)
    assert value["logits"] and not value["log_probs"]
    assert torch.allclose(views["logits"], leaf.grad, atol=1e-7) and leaf.grad.abs().sum() > 0


def test_entropies_have_gradients_where_they_count():
    memory, logits = Memory(), torch.randn(1, 9, VOCABULARY)
    call, views = loss_call(memory, logits)
    with host(("loss", "entropy_loss")) as h:
        assert send(h, memory, call)["value"]["entropy"]
        assert views["entropy"].tolist() == [0.5, 0.5, 0, 0.5, 0.5]
        del call["entropy_gradient"]
        without = h.call(call)["value"]
        assert not without["entropy"] and not without["log_probs"]


@pytest.mark.parametrize(
    "name, says",
    [
        ("nan_loss", "one finite number"),
        ("vector_loss", "one finite number"),
        ("lonely_loss", "returns its loss, a tensor, and a dictionary"),
        ("nan_gradient", "the gradient of the log_probs has numbers that are not finite"),
        ("text_metric", "the metric word is str"),
    ],
)
def test_what_is_no_loss_is_said(name, says):
    memory = Memory()
    call, _ = loss_call(memory, torch.zeros(1, 9, VOCABULARY))
    with host(("loss", name)) as h:
        assert says in send(h, memory, call)["error"]["message"]


def test_advantages():
    memory = Memory()
    masks, _ = memory.rows(MASKS)
    outputs = {name: memory.put(torch.zeros(5)) for name in ("advantages", "returns")}
    words = {name: word for name, (word, _) in outputs.items()}
    with host(("advantage", "advantages")) as h:
        send(h, memory, {"rollout_data": {"loss_masks": masks}, "outputs": words})
    assert outputs["advantages"][1].tolist() == [1, 1, 0, 2, 2]
    assert outputs["returns"][1].tolist() == [0.5, 0.5, 0, 0.5, 0.5]


def test_a_correction_and_its_backward_pass():
    memory = Memory()
    pg, train, rollout = torch.randn(5), torch.randn(5), torch.randn(5)
    call = {
        "pg_loss": memory.put(pg)[0],
        "train_log_probs": memory.rows(list(train.split(LENGTHS)))[0],
        "rollout_log_probs": memory.rows(list(rollout.split(LENGTHS)))[0],
        "loss_masks": memory.rows(MASKS)[0],
        "total_lengths": [5, 4],
        "response_lengths": LENGTHS,
    }
    call["out_pg_loss"], out = memory.put(torch.zeros(5))
    call["out_loss_masks"], masks = memory.put(torch.zeros(5))
    out_gradient, _ = memory.put(torch.tensor([1.0, 2, 3, 4, 5]))
    back_word, back = memory.put(torch.zeros(5))
    with host(("tis", "tis")) as h:
        answer = send(h, memory, call)
        weights = answer["arrays"][answer["value"]["metrics"]["weight"]["$column"]]
        second = {"backward": answer["id"], "out_gradient": out_gradient, "pg_loss_gradient": back_word}
        assert "error" not in h.call(second)
    weight = torch.exp(train - rollout)
    assert torch.allclose(out, pg * weight) and masks.tolist() == [0, 0, 0, 1, 1]
    assert torch.allclose(torch.tensor(weights.tolist()), weight)
    assert torch.allclose(back, weight * torch.tensor([1.0, 2, 3, 4, 5]))


def test_a_reducer():
    memory = Memory()
    values, _ = memory.put(torch.arange(5.0))
    gradient_word, gradient = memory.put(torch.zeros(5))
    call = {
        "values": values,
        "values_gradient": gradient_word,
        "loss_masks": memory.rows(MASKS)[0],
        "total_lengths": [5, 4],
        "response_lengths": LENGTHS,
    }
    with host(("reducer", "reducer")) as h:
        assert send(h, memory, call)["value"] == {"value": 1.0}
    assert torch.allclose(gradient, torch.full((5,), 0.1))


def test_data_that_a_hook_replaces_is_written_back():
    memory = Memory()
    word, view = memory.rows([torch.tensor([1.0, 2]), torch.tensor([3.0])])
    with host(("data_postprocess", "data_postprocess")) as h:
        send(h, memory, {"rollout_id": 0, "rollout_data": {"log_probs": word}})
    assert view.tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    "name, says",
    [
        ("spoiled_in_place", "has numbers that are not finite"),
        ("shifted_lengths", "has tensors of [1, 2] numbers; the responses have [2, 1] tokens"),
        ("fractional_masks", "has fractions"),
        ("removed", 'rollout_data["log_probs"] is gone'),
    ],
)
def test_data_that_cannot_be_trained_is_said(name, says):
    memory = Memory()
    data = {
        "log_probs": memory.rows([torch.tensor([1.0, 2]), torch.tensor([3.0])])[0],
        "loss_masks": memory.rows([torch.ones(2, dtype=torch.int32), torch.ones(1, dtype=torch.int32)])[0],
    }
    with host(("data_postprocess", name)) as h:
        assert says in send(h, memory, {"rollout_id": 0, "rollout_data": data})["error"]["message"]


def test_advantages_of_other_lengths_are_said():
    memory = Memory()
    outputs = {name: memory.put(torch.zeros(5))[0] for name in ("advantages", "returns")}
    data = {"loss_masks": memory.rows(MASKS)[0], "response_lengths": [2, 3]}
    with host(("advantage", "advantages")) as h:
        said = send(h, memory, {"rollout_data": data, "outputs": outputs})["error"]["message"]
    assert "has tensors of [3, 2] numbers; the responses have [2, 3] tokens" in said


def test_hooks_around_a_step_and_what_is_not_here():
    with host(("init", "init"), ("before_train_step", "before_train_step")) as h:
        assert "error" not in h.call({"hook": 0})
        error = h.call({"hook": 1, "rollout_id": 0, "step_id": 0})["error"]
        assert "model.parameters" in error["message"] and "in the program" in error["message"]


def test_sums_over_samples():
    from slime.backends.megatron_utils.cp_utils import (
        all_gather_with_cp,
        get_sum_of_sample_mean,
        slice_log_prob_with_cp,
    )

    values = torch.tensor([1.0, 3, 100, 5, 7])
    assert get_sum_of_sample_mean([5, 4], LENGTHS, MASKS)(values) == 2 + 6
    assert get_sum_of_sample_mean([5, 4], LENGTHS, MASKS, calculate_per_token_loss=True)(values) == 16
    assert get_sum_of_sample_mean([5, 4], LENGTHS, MASKS, [4, 0])(values) == 1 + 12
    assert all_gather_with_cp(values, 5, 3) is values and slice_log_prob_with_cp([1.0], 2, 1) == [1.0]
    with pytest.raises(ValueError):
        slice_log_prob_with_cp([1.0], 5, 3)


@pytest.mark.parametrize("case", golden("logprob_entropy"), ids=lambda case: case["name"])
def test_log_probs_and_entropies_of_logits_are_the_originals(case):
    """Also among the ids that a token was drawn from; a row of the case predicts one response token."""
    inputs, expected = case["inputs"], case["expected"]
    logits = torch.tensor(inputs["logits"], dtype=torch.float64, requires_grad=True)
    targets, mask = inputs["targets"], inputs["keep_mask"]
    rows = torch.cat([logits, logits[:1]]).unsqueeze(0)  # the last row predicts nothing
    kept = [[v for v, is_kept in enumerate(row) if is_kept] for row in mask or []]
    ends = [0]
    for ids in kept:
        ends.append(ends[-1] + len(ids))
    nuclei = {}
    if mask:
        flat = [v for ids in kept for v in ids]
        nuclei = {"top_p_token_ids": [torch.tensor(flat, dtype=torch.int32)], "top_p_token_offsets": [torch.tensor(ends)]}
    found = get_log_probs_and_entropy(
        rows,
        args=Namespace(rollout_temperature=case["params"]["temperature"], entropy_coef=1.0),
        unconcat_tokens=[torch.tensor([0, *targets])],
        total_lengths=[len(targets) + 1],
        response_lengths=[len(targets)],
        with_entropy=True,
        **nuclei,
    )[1]
    (log_probs,), (entropy,) = found["log_probs"], found["entropy"]
    assert log_probs.tolist() == pytest.approx(expected["log_prob"], abs=1e-6)
    assert entropy.tolist() == pytest.approx(expected["entropy"], abs=1e-6)
    weights = [torch.tensor(inputs[f"grad_{name}_weight"], dtype=torch.float64) for name in ("log_prob", "entropy")]
    ((log_probs * weights[0]).sum() + (entropy * weights[1]).sum()).backward()
    assert torch.allclose(logits.grad, torch.tensor(expected["dlogits"], dtype=torch.float64), atol=1e-6)


def test_nuclei_of_other_lengths_are_said():
    given = {"args": Namespace(), "unconcat_tokens": [torch.tensor([0, 1])], "total_lengths": [2], "response_lengths": [1]}
    logits = torch.zeros(1, 2, 4)
    ids, offsets = [torch.tensor([1, 2])], [torch.tensor([0, 1])]
    with pytest.raises(ValueError, match="2 kept ids in 1 nuclei, for 1 response tokens"):
        get_log_probs_and_entropy(logits, **given, top_p_token_ids=ids, top_p_token_offsets=offsets)
    with pytest.raises(ValueError, match="belong together"):
        get_log_probs_and_entropy(logits, **given, top_p_token_ids=ids)


class OfTheGpu:
    """Memory that a host believes to be a GPU's: bytes as a tensor, as slime.host.gpu_memory gives them."""

    def __init__(self, monkeypatch):
        self.opened = []

        def open_memory(descriptor, num_bytes, device):
            self.opened.append((num_bytes, device))
            return torch.frombuffer(mmap.mmap(descriptor, num_bytes), dtype=torch.uint8)

        monkeypatch.setattr("slime.host.gpu_memory.open_memory", open_memory)


class HostOf:
    """A host without a process: `answer` is what the program replies to the question for logits."""

    def __init__(self, tensors, answer):
        self.args, self.program, self.asks = Namespace(), self, []
        self._answer, self._descriptors = answer, []
        self.take_descriptor = lambda: self._descriptors.pop(0)
        self.tensors = tensors

    def announce(self, memory, number):
        self._descriptors.append(os.dup(memory.descriptor))
        return {"memory": [{"id": number, "bytes": memory.size, "device": 0}]}

    def ask_and_wait(self, what, arguments):
        self.asks.append(what)
        return self._answer(self)

    def call(self, name, call):
        function, finish = self.tensors.way("loss")(self, Namespace(function=getattr(plugins, name)), call, [])
        return finish(function(), Columns())


@pytest.mark.parametrize("name", ["loss", "loss_of_logits"])
def test_on_a_gpu_the_memory_of_logits_comes_when_they_are_read(monkeypatch, name):
    from slime.host.tensors import Tensors

    torch.manual_seed(4)
    gpu = OfTheGpu(monkeypatch)
    columns, later, logits = Memory(), Memory(1 << 16), torch.randn(1, 9, VOCABULARY)
    call, views = loss_call(columns, logits)
    call["logits"] = {"dtype": "float32", "shape": [1, 9, VOCABULARY]}
    del call["logits_gradient"]

    def answer(host):
        word, _ = later.put(logits)
        gradient_word, views["gradient"] = later.put(torch.zeros(1, 9, VOCABULARY))
        words = {"logits": {**word, "memory": 2}, "logits_gradient": {**gradient_word, "memory": 2}}
        return {**host.announce(later, 2), **words}

    tensors = Tensors()
    host = HostOf(tensors, answer)
    settled = []
    monkeypatch.setattr(tensors, "_settle", lambda: settled.append(True))
    tensors.map(host.announce(columns, 1), host.take_descriptor)
    value = host.call(name, call)
    result, _, leaf = leaf_and_loss(logits, name)
    assert value["loss"] == pytest.approx(result.item(), abs=1e-6) and settled == [True]
    reads = name == "loss_of_logits"
    assert host.asks == ["logits"] * reads and value["logits"] == reads
    assert gpu.opened == [(columns.size, 0)] + [(later.size, 0)] * reads
    if reads:
        assert torch.allclose(views["gradient"], leaf.grad, atol=1e-7) and leaf.grad.abs().sum() > 0
    else:
        assert views["log_probs"].abs().sum() > 0 and not (views["log_probs"] == 7).any()


def test_memory_of_a_gpu_is_held_as_long_as_a_tensor_over_it_and_released_behind_it(monkeypatch):
    import weakref

    from slime.host.tensors import Tensors

    OfTheGpu(monkeypatch)
    memory, tensors = Memory(), Tensors()
    host = HostOf(tensors, None)
    word, view = memory.put(torch.arange(6.0))
    tensors.map(host.announce(memory, 1), host.take_descriptor)
    kept = tensors._tensor(word)
    mapped = weakref.ref(tensors._memory[1])
    tensors.map({"forget": [1]}, host.take_descriptor)
    view[0] = 9
    assert kept.tolist() == [9, 1, 2, 3, 4, 5] and tensors._memory == {}
    del kept
    assert tensors.release() == {} and mapped() is None


def test_a_torch_without_cuda_says_what_to_do(monkeypatch):
    from slime.host.gpu_memory import open_memory

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="name an interpreter whose torch has CUDA: --plugin-python"):
        open_memory(0, 1, 0)


def test_what_nobody_holds_is_released_when_the_program_asks():
    memory = Memory()
    call, views = loss_call(memory, torch.randn(1, 9, VOCABULARY))
    with host(("loss", "loss")) as h:
        send(h, memory, call)
        assert h.finish(h.begin([{"release": True}], forget=[1]))[0]["value"] == {}
        assert "KeyError" in h.finish(h.begin([call]))[0]["error"]["type"]  # memory 1 is not there any more
