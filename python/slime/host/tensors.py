"""The trainer's hooks. Tensors lie in memory shared with the program; torch tensors here are views of it.

Memory comes as descriptors beside a frame of calls: its head has "memory": [{"id", "bytes"}], one descriptor each in that
order, and "forget": [ids] for what is not used again. A tensor in a call is

    {"memory": id, "offset": bytes, "dtype": "float32", "shape": [4, 7]}

and a list of one tensor for each sample is {"rows": tensor, "starts": [0, 3, 7]}, slices of its first dimension, or with
"by" in the place of "starts": the name of the list beside it that has their lengths.
Gradients and results are written into tensors that the call names for them. Memory with a "device" is of that GPU, and so
are its tensors. What is written is there when the answer is: the program waits for nothing else.
"""

import gc
import math
import mmap
import os

from slime.host import gpu_memory
from slime.host.calls import WrongResult

__all__ = ["Tensors"]


class _NotHere:
    """The model and the optimizer are in the program; this says so to code that reaches for them."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        raise AttributeError(f"{self._name}.{attribute}: the {self._name} is in the program, not in this process")


def _placeholder(word, beside):
    """Shape, precision and device of a tensor whose memory is to come."""
    import torch

    shape = word["shape"]
    return torch.empty_strided(shape, [0] * len(shape), dtype=getattr(torch, word["dtype"]), device=beside.device)


class Tensors:
    def __init__(self):
        self._memory = {}
        self._saved = {}

    def map(self, head, take_descriptor):
        """Takes the memory that a frame announces. Views of forgotten memory keep it as long as they live."""
        for number in head.get("forget", []):
            self._memory.pop(number, None)
        for each in head.get("memory", []):
            descriptor = take_descriptor()
            try:
                if "device" in each:
                    self._memory[each["id"]] = gpu_memory.open_memory(descriptor, each["bytes"], each["device"])
                else:
                    self._memory[each["id"]] = mmap.mmap(descriptor, each["bytes"])
            finally:
                os.close(descriptor)

    def release(self):
        """Everything that nobody holds goes back: mapped memory, and what torch keeps of the GPU's for reuse."""
        gc.collect()
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return {}

    def way(self, kind):
        """How a hook of the trainer is called, in the form of slime.host.calls."""
        own = getattr(self, "_" + kind)

        def way(host, hook, call, arrays):
            function, finish = own(host, hook, call, arrays)

            def finish_and_settle(result, columns):
                value = finish(result, columns)
                self._settle()
                return value

            return function, finish_and_settle

        return way

    def _settle(self):
        """Waits for what was launched on the GPU, by users' functions too, on whatever stream."""
        if not all(isinstance(memory, mmap.mmap) for memory in self._memory.values()):
            import torch

            torch.cuda.synchronize()

    def _tensor(self, word):
        import torch

        count = math.prod(word["shape"])
        dtype = getattr(torch, word["dtype"])
        memory = self._memory[word["memory"]]
        if torch.is_tensor(memory):
            size = count * torch.empty((), dtype=dtype).element_size()
            return memory[word["offset"] : word["offset"] + size].view(dtype).reshape(word["shape"])
        if count == 0:
            return torch.empty(word["shape"], dtype=dtype)
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=word["offset"]).reshape(word["shape"])

    def _value(self, word, beside):
        if isinstance(word, dict) and "memory" in word:
            return self._tensor(word)
        if isinstance(word, dict) and "rows" in word:
            return self._rows(word, beside)
        return word

    def _rows(self, word, beside):
        if "by" in word:
            lengths = beside[word["by"]]
        else:
            lengths = [last - first for first, last in zip(word["starts"], word["starts"][1:])]
        return list(self._tensor(word["rows"]).split(lengths))

    def _batch(self, words):
        return {name: self._value(word, words) for name, word in words.items()}

    def _write(self, word, tensors, what):
        """Results into the memory that is meant for them; lists are put end to end."""
        import torch

        target = self._tensor(word)
        source = torch.cat([each.reshape(-1) for each in tensors]) if isinstance(tensors, (list, tuple)) else tensors
        if not torch.is_tensor(source):
            raise WrongResult(f"{what} is {type(source).__name__}; it is a tensor or a list of tensors")
        if source.numel() != target.numel():
            raise WrongResult(f"{what} has {source.numel()} numbers; {target.numel()} are wanted")
        if source.is_floating_point() and not bool(torch.isfinite(source).all()):
            raise WrongResult(f"{what} has numbers that are not finite")
        if source.is_floating_point() and not target.is_floating_point():
            if not bool((source == source.round()).all()):
                raise WrongResult(f"{what} has fractions; it is of whole numbers")
        with torch.no_grad():
            target.copy_(source.detach().reshape(target.shape))

    def _write_gradient(self, word, leaf, what):
        import torch

        self._write(word, torch.zeros_like(leaf) if leaf.grad is None else leaf.grad, what)

    def _leaf(self, word):
        return self._tensor(word).requires_grad_()

    def _numbers(self, metrics):
        """Metrics as numbers; of a tensor its mean."""
        if not isinstance(metrics, dict):
            raise WrongResult(f"metrics are a dictionary, not {type(metrics).__name__}")
        numbers = {}
        for name, value in metrics.items():
            number = value.detach().double().mean().item() if hasattr(value, "detach") else value
            if not isinstance(number, (int, float)):
                raise WrongResult(f"the metric {name} is {type(value).__name__}; it is a number")
            if not math.isfinite(number):
                raise WrongResult(f"the metric {name} is {number}")
            numbers[name] = number
        return numbers

    def _loss(self, host, hook, call, arrays):
        from slime.backends.megatron_utils.cp_utils import get_sum_of_sample_mean
        from slime.host.logits import ProgramLogits

        batch = self._batch(call["batch"])
        for name in ("packed_seq_params", "multimodal_train_inputs", "max_seq_lens"):
            batch.setdefault(name, None)
        log_probs = self._leaf(call["log_probs"])
        entropy = self._leaf(call["entropy"]) if "entropy_gradient" in call else self._tensor(call["entropy"])
        targets = {f"{name}_gradient": call.get(f"{name}_gradient") for name in ("log_probs", "entropy", "logits")}

        def fetch():
            """Makes the program write the logits. Where their memory comes only now (on a GPU): a tensor over it."""
            reply = host.program.ask_and_wait("logits", {})
            if "logits" not in reply:
                return None
            self.map(reply, host.take_descriptor)
            targets["logits_gradient"] = reply["logits_gradient"]
            return self._tensor(reply["logits"])

        word = call["logits"]
        logits = ProgramLogits.over(
            self._tensor(word) if "memory" in word else _placeholder(word, log_probs),
            log_probs,
            entropy,
            batch,
            call.get("temperature", 1.0),
            fetch,
        )
        reduce = get_sum_of_sample_mean(
            batch["total_lengths"],
            batch["response_lengths"],
            batch["loss_masks"],
            batch.get("rollout_mask_sums"),
            call.get("calculate_per_token_loss", False),
        )

        def finish(result, columns):
            import torch

            if not isinstance(result, (list, tuple)) or len(result) != 2 or not torch.is_tensor(result[0]):
                raise WrongResult("a loss function returns its loss, a tensor, and a dictionary of metrics")
            loss, metrics = result
            if loss.numel() != 1 or not math.isfinite(float(loss)):
                raise WrongResult(f"the loss is {loss.detach()}; it is one finite number")
            if loss.requires_grad:
                (loss.reshape(()) * call.get("scale", 1.0)).backward()
            leaves = {"log_probs": log_probs, "entropy": entropy, "logits": logits}
            written = {}
            for name, leaf in leaves.items():
                written[name] = leaf.grad is not None
                if written[name]:
                    self._write(targets[f"{name}_gradient"], leaf.grad, f"the gradient of the {name}")
            return {"loss": float(loss), "metrics": self._numbers(metrics), **written}

        return lambda: hook.function(host.args, batch, logits, reduce), finish

    def _tis(self, host, hook, call, arrays):
        if "backward" in call:
            return self._tis_backward(call)
        names = ("train_log_probs", "rollout_log_probs", "loss_masks", "total_lengths", "response_lengths")
        given = {name: self._value(call[name], call) for name in names}
        pg_loss = self._leaf(call["pg_loss"])

        def finish(result, columns):
            from array import array

            if not isinstance(result, (list, tuple)) or len(result) != 3:
                raise WrongResult("three things are returned: pg_loss, loss masks, metrics")
            out, masks, metrics = result
            self._write(call["out_pg_loss"], out, "pg_loss")
            self._write(call["out_loss_masks"], masks, "the loss masks")
            self._saved = {call["id"]: (pg_loss, out)}  # one micro-batch is under way at a time
            words = {name: columns.add(array("f", value.reshape(-1).tolist())) for name, value in metrics.items()}
            return {"metrics": words}

        return lambda: hook.function(host.args, pg_loss=pg_loss * 1, **given), finish

    def _tis_backward(self, call):
        pg_loss, out = self._saved.pop(call["backward"])

        def run():
            if out.requires_grad:
                out.backward(self._tensor(call["out_gradient"]).reshape(out.shape))
            self._write_gradient(call["pg_loss_gradient"], pg_loss, "the gradient of pg_loss")

        return run, lambda result, columns: {}

    def _reducer(self, host, hook, call, arrays):
        values = self._leaf(call["values"])
        masks = self._value(call["loss_masks"], call)

        def finish(reduce, columns):
            if not callable(reduce):
                raise WrongResult(f"{type(reduce).__name__} is returned; it is a function of a tensor")
            total = reduce(values)
            if getattr(total, "numel", lambda: 0)() != 1 or not math.isfinite(float(total)):
                raise WrongResult(f"the reducer makes {total}; it makes one finite number")
            if total.requires_grad:
                total.reshape(()).backward()
            self._write_gradient(call["values_gradient"], values, "the reducer's gradient")
            return {"value": float(total)}

        return (
            lambda: hook.function(
                call["total_lengths"], call["response_lengths"], masks, call.get("calculate_per_token_loss", False)
            ),
            finish,
        )

    def _same_lengths(self, tensors, lengths, name):
        """Numbers end to end say nothing of whose they are."""
        if not isinstance(tensors, (list, tuple)) or any(not hasattr(each, "numel") for each in tensors):
            raise WrongResult(f'rollout_data["{name}"] is a list of one tensor for each sample')
        found = [each.numel() for each in tensors]
        if lengths is not None and found != list(lengths):
            raise WrongResult(f'rollout_data["{name}"] has tensors of {found} numbers; the responses have {lengths} tokens')

    def _advantage(self, host, hook, call, arrays):
        data = self._batch(call["rollout_data"])

        def finish(result, columns):
            for name in ("advantages", "returns"):
                if name not in data:
                    raise WrongResult(f'rollout_data["{name}"] is not set')
                self._same_lengths(data[name], data.get("response_lengths"), name)
                self._write(call["outputs"][name], data[name], name)
            return {}

        return lambda: hook.function(host.args, data), finish

    def _data_postprocess(self, host, hook, call, arrays):
        words = call["rollout_data"]
        data = self._batch(words)
        before = {name: list(value) for name, value in data.items() if isinstance(value, list)}

        def finish(result, columns):
            # In-place changes are in the memory already; here come tensors that took the place of others.
            for name, word in words.items():
                if not (isinstance(word, dict) and "rows" in word):
                    continue
                if name not in data:
                    raise WrongResult(f'rollout_data["{name}"] is gone')
                self._same_lengths(data[name], [each.numel() for each in before[name]], name)
                if any(new is not old for new, old in zip(data[name], before[name])):
                    self._write(word["rows"], data[name], f'rollout_data["{name}"]')
                changed = self._tensor(word["rows"])
                if changed.is_floating_point() and not bool(changed.isfinite().all()):
                    raise WrongResult(f'rollout_data["{name}"] has numbers that are not finite')
            return {}

        return lambda: hook.function(host.args, call["rollout_id"], data), finish

    def _init(self, host, hook, call, arrays):
        return lambda: hook.function(host.args), lambda result, columns: {}

    def _before_log_prob(self, host, hook, call, arrays):
        model = _NotHere("model")
        return lambda: hook.function(host.args, model, call["store_prefix"]), lambda result, columns: {}

    def _before_train_step(self, host, hook, call, arrays):
        parts = [_NotHere(name) for name in ("model", "optimizer", "scheduler")]
        return (
            lambda: hook.function(host.args, call["rollout_id"], call["step_id"], *parts),
            lambda result, columns: {},
        )
