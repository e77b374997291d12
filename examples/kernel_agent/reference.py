"""The trusted side of grading, a process of its own with Torch: draws inputs and weights, computes what is right, compares, times eager Torch.

No answer's code ever runs here, and what is right never enters a sandbox. Requests and answers are JSON lines (grade.py); tensors go through
files. `python reference.py FOLDER`, FOLDER holding a copy of inside/runner.py.
"""

import copy
import importlib.util
import json
import os
import struct
import sys
import time

import torch

# Of |output - right| relative to |right| and the root mean square of all, where "right" is computed in double precision. Eager Torch stays
# below a tenth of each on every task; the next lower precision (float32: TF32 and half; bfloat16: 8 bits) is above.
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 3e-3, "bfloat16": 1.5e-2, "int64": 0.0}
WORK_SECONDS = 0.02  # of eager Torch on the CPU: so many sets of inputs are made
MOST_BYTES = 48 << 20  # of all sets
MOST_SETS = 256
# Of digests: what is wrong in many elements by chance alone averages out in them, and so do an honest answer's roundings.
DIGEST_SHARE = 1 / 20
GPU_SECONDS = 0.05
MOST_CALLS = 100


def runner_in(folder):
    spec = importlib.util.spec_from_file_location("runner", os.path.join(folder, "runner.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_double(tensor):
    return tensor.double() if tensor.dtype.is_floating_point else tensor


def problem_of(output, right, dtype):
    """What is wrong with an output, for the model; nothing when it is right."""
    tolerance = TOLERANCE[dtype]
    output, right = in_double(output), in_double(right)
    if tolerance == 0:
        is_wrong = output != right
    else:
        scale = right.pow(2).mean().sqrt()
        is_wrong = ~((output - right).abs() <= tolerance * (right.abs() + scale))  # also where it is no number
    count = int(is_wrong.sum())
    if count == 0:
        return ""
    first = [int(index) for index in is_wrong.nonzero()[0]]
    at = tuple(first)
    return f"element {first} is {output[at].item():.6g}, should be {right[at].item():.6g}; {count} of {right.numel()} elements are wrong"


class Case:
    """A task at a shape: a Model with weights drawn anew, and sets of inputs."""

    def __init__(self, runner, task, shape, seed, device="cpu"):
        self.runner, self.device = runner, device
        self.names = runner.made(task)
        self.shape = {name: value for default in self._defaults() for name, value in default.items()} | shape
        torch.manual_seed(seed)
        self.model = self.names["Model"](*runner.with_shape(self.names["get_init_inputs"], self.shape))
        for tensor in self.model.parameters():  # also those that start as zeros and ones
            with torch.no_grad():
                tensor += 0.1 * torch.randn_like(tensor)
        self.model.requires_grad_(False)
        self.seed = seed
        self.sets = []

    def _defaults(self):
        for name in ("get_inputs", "get_init_inputs"):
            function = self.names[name]
            known = function.__code__.co_varnames[: function.__code__.co_argcount]
            yield dict(zip(known, function.__defaults__ or ()))

    def draw(self):
        return self.runner.with_shape(self.names["get_inputs"], self.shape)

    def add_sets(self, count):
        for index in range(count):
            torch.manual_seed(self.seed + 1 + index)
            self.sets.append(self.draw())

    def weights(self):
        return list(self.model.state_dict().items())

    def right(self, inputs):
        """In double precision."""
        return copy.deepcopy(self.model).double()(*map(in_double, inputs))

    def eager_seconds(self):
        """Processor time of all sets."""
        begin = time.process_time()
        for inputs in self.sets:
            self.model(*inputs)
        return time.process_time() - begin


def about(tensor):
    size = tensor.numel() * tensor.element_size()
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "bytes": size}


class Reference:
    def __init__(self, folder):
        self.runner = runner_in(folder)
        self.cases = {}

    def open(self, request):
        """A case. `sets`: how many, or 0 for as many as make a time that can be measured."""
        case = Case(self.runner, request["source"], request["shape"], request["seed"], request.get("device", "cpu"))
        self.cases[request["key"]] = case
        if case.device != "cpu":
            case.model.to(case.device)
            return {}
        case.add_sets(max(1, request["sets"]))
        output = case.model(*case.sets[0])
        if request["sets"] == 0:
            seconds = min(case.eager_seconds() for _ in range(3))
            size = sum(about(tensor)["bytes"] for tensor in [*case.sets[0], output])
            count = min(WORK_SECONDS / max(seconds, 1e-6), MOST_SETS, MOST_BYTES / size)
            case.add_sets(max(4, int(count)) - 1)
        return {"sets": len(case.sets), "output": about(output)}

    def write_words(self, request):
        """The file that inside/cpp_main.cpp reads."""
        case = self.cases[request["key"]]
        weights = [tensor for _, tensor in case.weights()]
        with open(request["path"], "wb") as file:
            size = about(case.model(*case.sets[0]))["bytes"]
            file.write(struct.pack("<8q", len(case.sets), len(case.sets[0]) + len(weights), size, *[0] * 5))
            for inputs in case.sets:
                for tensor in [*inputs, *weights]:
                    data = self.runner.to_bytes(tensor)
                    file.write(struct.pack(f"<{tensor.dim() + 2}q", tensor.dim(), *tensor.shape, len(data)))
                    file.write(bytes(-file.tell() % 64))
                    file.write(data)
                    file.write(bytes(-file.tell() % 64))
        return {}

    def write_tensors(self, request):
        """Weights, then inputs, end to end."""
        case = self.cases[request["key"]]
        names = [name for name, _ in case.weights()]
        tensors = [tensor for _, tensor in case.weights()] + [tensor for inputs in case.sets for tensor in inputs]
        with open(request["path"], "wb") as file:
            for tensor in tensors:
                file.write(self.runner.to_bytes(tensor))
        return {"weights": names, "tensors": [about(tensor) for tensor in tensors], "shape": case.shape}

    def check(self, request):
        """All outputs of a case, end to end in a file."""
        case = self.cases[request["key"]]
        with open(request["path"], "rb") as file:
            data = file.read()
        first = about(case.model(*case.sets[0]))
        said = request.get("about")
        if said is not None and (said["dtype"], said["shape"]) != (first["dtype"], first["shape"]):
            return {
                "problem": f"it is {said['dtype']} of shape {said['shape']}, should be {first['dtype']} of shape {first['shape']}"
            }
        if len(data) != first["bytes"] * len(case.sets):
            return {"problem": "not every call had an output"}
        for index, inputs in enumerate(case.sets):
            part = data[index * first["bytes"] : (index + 1) * first["bytes"]]
            problem = problem_of(self.runner.from_bytes(part, first), case.right(inputs), first["dtype"])
            if problem:
                return {"problem": problem}
        return {"problem": ""}

    def time(self, request):
        return {"seconds": self.cases[request["key"]].eager_seconds()}

    def _timed_chain(self, case, call, seed, calls):
        self.runner.synchronize(case.device)
        begin = time.perf_counter()
        digests = self.runner.chain(call, case.names["get_inputs"], case.shape, seed, calls, case.device)
        return digests, time.perf_counter() - begin

    def chain(self, request):
        """Digests and time of eager Torch on the GPU, and the time of all but the calls."""
        case, seed, calls = self.cases[request["key"]], request["seed"], request["calls"]
        with torch.no_grad():
            torch.manual_seed(seed)
            with self.runner.on(case.device):
                output = case.model(*case.draw())
            if calls == 0:
                for _ in range(2):  # the first has much to set up
                    seconds = self._timed_chain(case, case.model, seed, 5)[1] / 5
                calls = max(5, min(MOST_CALLS, int(GPU_SECONDS / seconds)))
            kept, null = [], min(self._timed_chain(case, lambda *inputs: output, seed, calls)[1] for _ in range(2))

            def call(*inputs):
                kept.append(case.model(*inputs).float().abs().sum())
                return output

            digests, eager = min(
                (self._timed_chain(case, case.model, seed, calls) for _ in range(2)), key=lambda pair: pair[1]
            )
            self.runner.chain(call, case.names["get_inputs"], case.shape, seed, calls, case.device)
            sizes = torch.stack(kept).cpu()
        torch.cuda.empty_cache()
        tolerance = TOLERANCE[str(output.dtype).removeprefix("torch.")] or 1e-3
        return {
            "digests": digests.tolist(),
            "room": torch.stack([sizes, digests[:, 1]], dim=1).mul(tolerance * DIGEST_SHARE).tolist(),
            "calls": calls,
            "seconds": eager,
            "null_seconds": null,
            "output": about(output),
        }

    def check_sample(self, request):
        """One call at the shape that is timed, in full, on inputs that follow from a seed."""
        case = self.cases[request["key"]]
        torch.manual_seed(request["seed"])
        with self.runner.on(case.device):
            inputs = case.draw()
            right = case.right(inputs)
        first = about(case.model(*inputs))
        with open(request["path"], "rb") as file:
            data = file.read()
        if len(data) != first["bytes"]:
            return {"problem": "the output has another size"}
        output = self.runner.from_bytes(data, first).to(case.device)
        problem = problem_of(output, right, first["dtype"])
        del right, output
        torch.cuda.empty_cache()
        return {"problem": problem}

    def close(self, request):
        for key in request["keys"]:
            self.cases.pop(key, None)
        return {}


def main(folder):
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False  # what eager Torch is asked for is its dtype
    torch.backends.cudnn.allow_tf32 = False
    reference = Reference(folder)
    verbs = {
        name: getattr(reference, name)
        for name in ("open", "write_words", "write_tensors", "check", "time", "chain", "check_sample", "close")
    }
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with torch.no_grad():
                answer = verbs[request["do"]](request)
        except Exception as error:  # grade.py raises it there
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
