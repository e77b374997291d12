"""Runs an answer in Python (`ModelNew`, Triton kernels) inside the sandbox, on what comes through one named pipe, and sends what came out
through another. The answer shares this process, so nothing that is said here is believed: outputs are compared outside, and the time is
taken outside, from a secret seed going in to the digests of all calls coming out.

reference.py uses `Channel`-free parts of it, `made` and `chain`, so that both sides draw the same inputs and digest alike.
"""

import contextlib
import importlib.util
import json
import os
import struct
import sys
import traceback

import torch
from torch.utils._python_dispatch import TorchDispatchMode

MAX_FRAME = 1 << 31
# Room and views of it, and constants: what a kernel needs around it. Anything that computes or copies is the kernel's own work.
ALLOWED = set(
    "empty empty_like empty_strided new_empty new_empty_strided new_zeros new_full zeros zeros_like full full_like ones ones_like fill_ "
    "zero_ view _unsafe_view reshape _reshape_alias t transpose permute expand unsqueeze squeeze select slice split "
    "split_with_sizes chunk unbind narrow as_strided detach alias flatten view_as".split()
)


class NotAllowed(RuntimeError):
    pass


class Guard(TorchDispatchMode):
    """While an answer runs: operators of Torch that compute raise, however they are called."""

    is_paused = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func).replace("aten::", "aten.").split(".")[1]
        if not self.is_paused and name not in ALLOWED:
            raise NotAllowed(
                f"torch's operator {name} is not allowed in forward: a kernel of yours has to do this work"
            )
        return func(*args, **(kwargs or {}))


def made(source):
    """The names that source defines: get_inputs, get_init_inputs."""
    names = {}
    exec(compile(source, "inputs", "exec"), names)
    return names


def with_shape(function, shape):
    """function's result for those entries of a shape that it asks for."""
    known = function.__code__.co_varnames[: function.__code__.co_argcount]
    return function(**{name: size for name, size in shape.items() if name in known})


def on(device):
    return torch.device(device) if device != "cpu" else contextlib.nullcontext()


def synchronize(device):
    if device != "cpu":
        torch.cuda.synchronize()


def digest(output):
    flat = output.reshape(-1)
    if not flat.dtype.is_floating_point:
        flat = flat.float()
    return torch.stack([flat.sum(dtype=torch.float32), torch.linalg.vector_norm(flat, 3, dtype=torch.float32)])


def chain(call, get_inputs, shape, seed, calls, device):
    """Digests of so many calls, each on inputs of its own, which follow from the seed. [calls, 2]"""
    digests = []
    for index in range(calls):
        torch.manual_seed(seed + index)
        with on(device):
            inputs = with_shape(get_inputs, shape)
        digests.append(digest(call(*inputs)))
    return torch.stack(digests).cpu()  # waits for the GPU


def to_bytes(tensor):
    tensor = tensor.detach().cpu().contiguous()
    if tensor.numel() == 0:
        return b""
    return bytes(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))


def from_bytes(bytes_, about):
    dtype, shape = getattr(torch, about["dtype"]), about["shape"]
    if not bytes_:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(bytes_), dtype=torch.uint8).view(dtype).reshape(shape)


class Channel:
    """Frames: the lengths of a header in JSON and of its bytes, then both."""

    def __init__(self, folder):
        self._in = os.open(os.path.join(folder, "to"), os.O_RDONLY)
        self._out = os.open(os.path.join(folder, "from"), os.O_WRONLY)

    def _read(self, count):
        parts = []
        while count:
            part = os.read(self._in, min(count, 1 << 20))
            if not part:
                raise SystemExit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive(self):
        header, payload = struct.unpack("<QQ", self._read(16))
        return json.loads(self._read(header)), self._read(payload)

    def send(self, header, payload=b""):
        text = json.dumps(header).encode()
        frame = memoryview(struct.pack("<QQ", len(text), len(payload)) + text + payload)
        while frame:
            frame = frame[os.write(self._out, frame) :]


def tensors_of(abouts, payload):
    at, tensors = 0, []
    for about in abouts:
        tensors.append(from_bytes(payload[at : at + about["bytes"]], about))
        at += about["bytes"]
    return tensors


class Answer:
    def __init__(self, device, path):
        self.device, self.path = device, path
        self.guard = Guard()
        self.make_model = None
        self.model = None
        self.names = {}

    def load(self, request):
        self.names = made(request["input_source"])
        spec = importlib.util.spec_from_file_location("answer", self.path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["answer"] = module
        spec.loader.exec_module(module)
        self.make_model = module.ModelNew

    def build(self, shape, weights):
        """A ModelNew for a shape, with the weights of the Model that it is compared with."""
        with on(self.device):
            model = self.make_model(*with_shape(self.names["get_init_inputs"], shape))
        torch.nn.Module.to(model, self.device)
        torch.nn.Module.load_state_dict(model, weights)
        self.model = model

    def __call__(self, *inputs):
        with torch.no_grad(), self.guard:
            output = self.model(*inputs)
        if type(output) is not torch.Tensor or output.layout != torch.strided:
            raise NotAllowed(f"forward should return a plain tensor, not {type(output).__name__}")
        if output.device.type != torch.device(self.device).type:
            raise NotAllowed(f"forward returned a tensor on {output.device}, not on {self.device}")
        return output

    def answer(self, header, payload):
        tensors = tensors_of(header.get("tensors", []), payload)
        names = header.get("weights", [])
        if header["do"] == "build":
            self.build(header["shape"], dict(zip(names, tensors)))
            return {}, b""
        if header["do"] == "call":
            inputs = [tensor.to(self.device) for tensor in tensors]
            kept = [tensor.clone() for tensor in inputs]
            output = self(*inputs)
            synchronize(self.device)
            if not all(torch.equal(a, b) for a, b in zip(inputs, kept)):
                raise NotAllowed("forward changed its inputs")
            about = {"dtype": str(output.dtype).removeprefix("torch."), "shape": list(output.shape)}
            if output.numel() * output.element_size() > header["limit_bytes"]:
                raise NotAllowed(f"forward returned a tensor of shape {list(output.shape)}")
            return about, to_bytes(output)
        if header["do"] == "sample":
            torch.manual_seed(header["seed"])
            with on(self.device):
                inputs = with_shape(self.names["get_inputs"], header["shape"])
            return {}, to_bytes(self(*inputs))
        digests = chain(self, self.names["get_inputs"], header["shape"], header["seed"], header["calls"], self.device)
        return {"digests": digests.tolist()}, b""


def interpret(guard):
    """Triton's interpreter is itself written with Torch: its own work is not the answer's."""
    try:
        from triton.runtime import interpreter
    except ImportError:  # an answer that imports Triton says so
        return
    if not hasattr(torch.Tensor, "untyped_storage"):  # before Torch 2.0
        torch.Tensor.untyped_storage = lambda tensor: tensor.storage().untyped()
    launch = interpreter.GridExecutor.__call__

    def __call__(self, *args, **kwargs):
        guard.is_paused = True
        try:
            return launch(self, *args, **kwargs)
        finally:
            guard.is_paused = False

    interpreter.GridExecutor.__call__ = __call__


def main(folder, device, path):
    channel = Channel(folder)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    answer = Answer(device, path)
    if os.environ.get("TRITON_INTERPRET") == "1":
        interpret(answer.guard)
    if device != "cpu":
        torch.cuda.init()
    channel.send({"ready": True})
    while True:
        header, payload = channel.receive()
        try:
            if header["do"] == "load":
                answer.load(header)
                channel.send({})
            else:
                channel.send(*answer.answer(header, payload))
        except Exception as error:  # an answer may raise anything, and is told
            line = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path][-1:]
            where = f" (line {line[0]})" if line else ""
            channel.send({"problem": f"{type(error).__name__}: {error}{where}"})


if __name__ == "__main__":
    main(*sys.argv[1:])
