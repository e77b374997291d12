"""A conversation with inside/runner.py in a sandbox, over two named pipes in a folder that the sandbox shows read-only.

What comes back is what hostile code may have sent: sizes are bounded, times too, and nothing is unpickled.
"""

import asyncio
import json
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

from slime.agent.local_sandbox import LocalSandbox, SandboxError, WarmProcess

from examples.kernel_agent.failures import Failed, GraderError
from examples.kernel_agent.named_pipe import NamedPipe

__all__ = ["PythonSession", "WarmProcesses"]

LIMITS = {"seconds": 600, "memory_mb": 16_384, "processes": 256, "open_files": 4096, "disk_mb": 1024, "output_kb": 64}
START_SECONDS = 180  # Torch, and CUDA's first use of a GPU
ASK_SECONDS = 120  # what compiles kernels takes its time
MOST_HEADER = 1 << 18
PLACES = """
import json, sys, sysconfig, torch
places = [sys.prefix, sys.base_prefix, torch.__path__[0], sysconfig.get_path("include")]
try:
    import triton
    places.append(triton.__path__[0])
except ImportError:
    triton = None
print(json.dumps({"places": places, "has_triton": triton is not None, "path": [p for p in sys.path if p]}))
"""

_places = {}  # python: what it needs to be seen


async def _places_of(python):
    if python not in _places:
        words = [python, "-c", PLACES]
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        said, _ = await process.communicate()
        if process.returncode != 0:
            raise GraderError(f"{python} has no Torch: set KERNEL_AGENT_PYTHON to a Python that has Torch and Triton")
        _places[python] = json.loads(said)
    return _places[python]


def gpu_numbers(devices=Path("/dev")):
    return sorted(int(path.name[6:]) for path in devices.glob("nvidia[0-9]*") if path.name[6:].isdigit())


def cuda_index(number, devices=Path("/dev")):
    """What CUDA, in the order of the bus, calls /dev/nvidiaN: it counts the files that are there."""
    found = gpu_numbers(devices)
    return found.index(number) if number in found else 0


def the_gpu():
    """The number of the only GPU."""
    found = gpu_numbers()
    if len(found) != 1:
        raise GraderError(
            f'gpu: this machine has {len(found)} GPUs {found}; name one, or "interpreter" for Triton\'s on the CPU'
        )
    return found[0]


def _shown(about):
    """What is outside of /usr, and the entries of PYTHONPATH that lead there."""
    shown = {path for path in about["places"] if not path.startswith("/usr/")} - {"/usr"}
    return sorted(shown), [path for path in about["path"] if any(place.startswith(path + "/") for place in shown)]


def _environment(about, is_on_gpu):
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TRITON_CACHE_DIR": "/work/triton"}
    _, extra = _shown(about)
    environment |= {"PYTHONPATH": ":".join(extra)} if extra else {}
    return environment if is_on_gpu else environment | {"TRITON_INTERPRET": "1"}


class WarmProcesses:
    """A process that has imported Torch and Triton, for answers on GPUs, and one for those in the interpreter: each answer is run by a
    fork of it, in a sandbox of its own. None has used CUDA, which cannot be forked then."""

    def __init__(self, folder, python):
        self._module, self._python = folder / "loaded.py", python
        self._started = {}  # is_on_gpu: the task that starts it

    async def get(self, is_on_gpu):
        """None where there can be none: then each answer's process imports Torch itself."""
        started = self._started.get(is_on_gpu)
        if started is None or (started.done() and started.result() is not None and started.result().is_over):
            started = self._started[is_on_gpu] = asyncio.create_task(self._start(is_on_gpu))
        return await asyncio.shield(started)

    async def _start(self, is_on_gpu):
        environment = _environment(await _places_of(self._python), is_on_gpu)
        try:
            return await WarmProcess(self._python, self._module, environment=environment).start()
        except SandboxError as error:
            print(f"kernel_agent: every answer's process imports Torch itself: {error}", file=sys.stderr, flush=True)
            return None

    async def close(self):
        for started in self._started.values():
            warm = await started
            if warm is not None:
                await warm.close()


class PythonSession:
    def __init__(self, trusted_folder, python, code, gpu, warm):
        self._trusted, self._python, self._code = trusted_folder, python, code
        self._gpu, self._warm = gpu, warm
        self._task = self._sandbox = self._to = self._from = None

    async def __aenter__(self):
        about = await _places_of(self._python)
        is_on_gpu = self._gpu != "interpreter"
        device = "cuda" if is_on_gpu else "cpu"
        gpu = the_gpu() if self._gpu is None else self._gpu
        self.folder = Path(tempfile.mkdtemp(prefix="kernel_agent-session-"))
        self.folder.chmod(0o755)
        shutil.copy(self._trusted / "runner.py", self.folder / "runner.py")
        self._to, self._from = NamedPipe(self.folder / "to"), NamedPipe(self.folder / "from")
        self._sandbox = LocalSandbox(
            limits=LIMITS, readable=[self.folder, *_shown(about)[0]], gpu=gpu if is_on_gpu else None
        )
        await self._sandbox.__aenter__()
        await self._sandbox.write_file("/work/answer.py", self._code)
        warm = await self._warm.get(is_on_gpu) if self._warm is not None else None
        words = [self._python, self.folder / "runner.py", self.folder, device, "/work/answer.py"]
        self._task = asyncio.create_task(self._sandbox.run(words, environment=_environment(about, is_on_gpu), warm=warm))
        said, _, _ = await self._exchange(None, b"", START_SECONDS, MOST_HEADER)
        if said is None:
            done = await self._task
            raise GraderError(
                f"the Python of the sandbox does not start: {done.get('reason', '')} {done['error'][-600:]}"
            )
        return self

    async def __aexit__(self, *_):
        if self._sandbox is not None:
            await self._sandbox.__aexit__(None, None, None)
        if self._task is not None:
            await self._task
        self._to.close()
        self._from.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def ask(self, header, payload=b"", *, where="", stage="run", limit_bytes=0):
        said, data, _ = await self._asked(header, payload, where, stage, limit_bytes)
        return (said, data)

    async def timed(self, header):
        """(header, bytes, seconds from the request's first byte to the answer's last)"""
        return await self._asked(header, b"", "", "run", 0)

    async def _asked(self, header, payload, where, stage, limit_bytes):
        said, data, seconds = await self._exchange(header, payload, ASK_SECONDS, limit_bytes)
        if said is None:
            if not self._task.done():
                raise Failed("run", f"it was ended after {ASK_SECONDS} s{where}")
            done = self._task.result()
            raise Failed("run", f"the process ended{where}: {done.get('reason') or 'exit code 0'}")
        if "problem" in said:
            words = str(said["problem"])[:450]
            if words.startswith("CompilationError:"):  # Triton's: kernels are compiled when they are first called
                stage, words = "compile", words.replace("CompilationError", "does not compile", 1)
            # Of a shape that is not shown its type alone: words of the answer's own could name the sizes.
            raise Failed(stage, f"{words.partition(':')[0][:40]}{where}" if where else words)
        return said, data, seconds

    async def _exchange(self, header, payload, patience, limit_bytes):
        return await asyncio.get_running_loop().run_in_executor(
            None, self._talk, header, payload, patience, limit_bytes
        )

    def _talk(self, header, payload, patience, limit_bytes):
        """(None, b"", 0) where no whole frame of a bounded size came in time."""
        begin = time.perf_counter()
        deadline = begin + patience
        if header is not None:
            text = json.dumps(header).encode()
            frame = struct.pack("<QQ", len(text), len(payload)) + text + payload
            if not self._to.write(frame, deadline, self._is_over):
                return None, b"", 0.0
        sizes = self._from.read(16, deadline, self._is_over)
        if len(sizes) < 16:
            return None, b"", 0.0
        text_size, data_size = struct.unpack("<QQ", sizes)
        if text_size > MOST_HEADER or data_size > limit_bytes:
            return {"problem": "more was returned than there is room for"}, b"", 0.0
        text = self._from.read(text_size, deadline, self._is_over)
        data = self._from.read(data_size, deadline, self._is_over)
        seconds = time.perf_counter() - begin
        if (len(text), len(data)) != (text_size, data_size):
            return None, b"", 0.0
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        return said if isinstance(said, dict) else {"problem": "what was returned is no answer"}, data, seconds

    def _is_over(self):
        return self._task is not None and self._task.done()
