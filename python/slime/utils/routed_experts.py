"""Experts that the engine chose for the tokens of a sample (routing replay): whether they can be replayed."""

from slime.utils.int_arrays import flat_int32

__all__ = ["materialize_routed_experts", "validate_routed_experts_tensor", "validate_routed_experts_value"]


def _moe_layers(args):
    every = getattr(args, "moe_layer_freq", None)
    layers = range(args.num_layers)
    if isinstance(every, (list, tuple)):
        return [layer for layer in layers if every[layer]]
    return [layer for layer in layers if layer % every == 0] if isinstance(every, int) and every > 0 else list(layers)


def validate_routed_experts_value(value, args, *, sample_index=None, expected_rows=None) -> None:
    """Throws ValueError where [rows, layers, topk] is another shape, has no row, has an id that is no expert, or nothing at
    all for a layer (zeros throughout, where there are several choices)."""
    shape = tuple(value.shape) if hasattr(value, "shape") else (len(value), len(value[0]), len(value[0][0]))
    what = f"routed experts of sample {sample_index}"
    if len(shape) != 3 or shape[1:] != (args.num_layers, args.moe_router_topk):
        raise ValueError(f"{what}: shape {shape}; it is [rows, {args.num_layers}, {args.moe_router_topk}]")
    if shape[0] == 0:
        raise ValueError(f"{what}: no row")
    if expected_rows is not None and shape[0] != expected_rows:
        raise ValueError(f"{what}: {shape[0]} rows for {expected_rows} tokens that follow another")
    numbers, width = flat_int32(value), shape[1] * shape[2]
    num_experts = getattr(args, "num_experts", None) or 1 << 31
    for layer in _moe_layers(args):
        begin = layer * shape[2]
        ids = [numbers[row + begin + k] for row in range(0, len(numbers), width) for k in range(shape[2])]
        wrong = next((expert for expert in ids if not 0 <= expert < num_experts), None)
        if wrong is not None:
            raise ValueError(f"{what}: layer {layer} has expert {wrong}; there are {num_experts}")
        if shape[2] > 1 and not any(ids):
            raise ValueError(f"{what}: layer {layer} has no choice, zeros throughout")


validate_routed_experts_tensor = validate_routed_experts_value


def materialize_routed_experts(value, *, pin_memory: bool = False):
    """As a torch tensor."""
    import torch

    tensor = value.to_torch() if hasattr(value, "to_torch") else torch.as_tensor(value)
    return tensor.pin_memory() if pin_memory else tensor
