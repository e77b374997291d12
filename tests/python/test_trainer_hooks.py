"""The trainer's hooks: tensors in shared memory, gradients back in it. Compared with the same function called here."""

import mmap
import os

import pytest
from test_host import host

torch = pytest.importorskip("torch", reason="torch cannot be imported")

import plugins  # noqa: E402


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


def batch_words(memory):
    targets, _ = memory.put(torch.tensor([0, 1, 2, 3, 0]))
    advantages, _ = memory.put(torch.tensor([1.0, -1, 2, 0.5, 1]))
    masks, _ = memory.rows(MASKS)
    return {
        "total_lengths": [5, 4],
        "response_lengths": LENGTHS,
        "loss_masks": masks,
        "targets": targets,
        "flat_advantages": advantages,
    }


def test_a_loss_and_the_gradient_of_its_logits():
    torch.manual_seed(1)
    memory, logits = Memory(), torch.randn(5, 4)
    words, _ = memory.put(logits)
    gradient_word, gradient = memory.put(torch.zeros(5, 4))
    call = {"batch": batch_words(memory), "logits": words, "logits_gradient": gradient_word, "scale": 2.0}
    with host(("loss", "loss")) as h:
        value = send(h, memory, call)["value"]
        again = h.call(call)["value"]  # the memory is there already

    from slime.backends.megatron_utils.cp_utils import get_sum_of_sample_mean

    leaf = logits.clone().requires_grad_()
    batch = {"targets": torch.tensor([0, 1, 2, 3, 0]), "flat_advantages": torch.tensor([1.0, -1, 2, 0.5, 1])}
    reduce = get_sum_of_sample_mean([5, 4], LENGTHS, MASKS)
    loss, metrics = plugins.loss(None, batch, leaf, reduce)
    (loss * 2).backward()
    assert value["loss"] == pytest.approx(loss.item(), abs=1e-6) and again["loss"] == value["loss"]
    assert value["metrics"] == {"picked": pytest.approx(metrics["picked"].item()), "plain": 2.0}
    assert torch.allclose(gradient, leaf.grad, atol=1e-7) and gradient.abs().sum() > 0


def test_a_loss_that_is_no_number():
    memory = Memory()
    words, _ = memory.put(torch.zeros(5, 4))
    call = {"batch": batch_words(memory), "logits": words, "logits_gradient": words}
    with host(("loss", "nan_loss")) as h:
        assert "finite" in send(h, memory, call)["error"]["message"]


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
