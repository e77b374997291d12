"""The logits of a micro-batch, as a leaf tensor that the program fills when something reads them.

The program has log-probs and entropies of the response tokens already, so a loss that takes these from
`slime.backends.megatron_utils.loss.get_log_probs_and_entropy` never makes it compute logits.
"""

import torch

__all__ = ["ProgramLogits"]

# What says something about the tensor and nothing about its numbers.
_METADATA = {
    getattr(torch.Tensor, name).__get__
    for name in ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "is_cuda", "grad", "grad_fn")
} | {
    torch.Tensor.size,
    torch.Tensor.dim,
    torch.Tensor.numel,
    torch.Tensor.is_floating_point,
    torch.Tensor.__len__,
    torch.is_floating_point,
    torch.is_tensor,
}

_WithoutOverride = getattr(torch._C, "DisableTorchFunctionSubclass", torch._C.DisableTorchFunction)


def _fill(values):
    for value in values:
        if isinstance(value, ProgramLogits):
            value.fill()
        elif isinstance(value, (list, tuple)):
            _fill(value)


class ProgramLogits(torch.Tensor):
    """[1, tokens, vocabulary]. `log_probs` and `entropy` [response tokens] are leaves as well."""

    @staticmethod
    def over(memory, log_probs, entropy, batch, temperature, fetch):
        """`memory`: the tensor that `fetch` makes the program fill; or, where `fetch` returns one, what that looks like."""
        self = memory.as_subclass(ProgramLogits)
        self._fetch, self._is_filled = fetch, False
        self.log_probs, self.entropy = log_probs, entropy
        self.batch, self.temperature = batch, temperature
        with _WithoutOverride():
            self.requires_grad_()
        return self

    def fill(self):
        if not self._is_filled:
            memory = self._fetch()
            if memory is not None:
                with _WithoutOverride():
                    self.data = memory
            self._is_filled = True

    @property
    def was_read(self):
        return self._is_filled

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function not in _METADATA:
            _fill(args)
            _fill(kwargs.values())
        with _WithoutOverride():
            return function(*args, **kwargs)
