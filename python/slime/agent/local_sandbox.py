"""Model-written code in the program's own sandbox (bubblewrap): `run_code`, and a `Sandbox` for agents.

A child `slime sandbox --serve` does the work; it is started at the first call and ends with this process, and everything
in its sandboxes with it. docs/sandbox.md says what code in there has and what it has not.
"""

import asyncio
import atexit
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path

from slime.program import find_program

__all__ = ["LocalSandbox", "SandboxError", "WarmProcess", "run_code"]

EXIT_LIMIT_REACHED = 124


class SandboxError(RuntimeError):
    """There can be no sandbox, or a request made no sense."""


def _command():
    """The small program where it lies beside slime, because it starts in a tenth of the time; it is the same."""
    program = Path(find_program())
    small = program.with_name("slime-sandbox")
    return [str(small)] if os.access(small, os.X_OK) else [str(program), "sandbox"]


class _Service:
    """The child: requests by line, answers in the order in which they are ready."""

    def __init__(self):
        self._process = subprocess.Popen(
            [*_command(), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._numbers = itertools.count()
        self._waiting = {}
        self._lock = threading.Lock()  # of _waiting, _is_over and the child's input
        self._is_over = False
        threading.Thread(target=self._read, name="sandbox", daemon=True).start()
        atexit.register(self._process.kill)

    @property
    def is_over(self):
        return self._is_over

    def _read(self):
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer.pop("id"))
            if future.set_running_or_notify_cancel():
                future.set_result(answer)
        said = self._process.stderr.read().decode("utf-8", "replace").strip()
        with self._lock:
            self._is_over = True
            left, self._waiting = list(self._waiting.values()), {}
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(SandboxError(said or "slime sandbox ended"))

    def submit(self, request):
        future = Future()
        number = next(self._numbers)
        # What a model wrote may have halves of characters in it, which are no text that can be sent.
        text = json.dumps({"id": number, **request}, ensure_ascii=False, allow_nan=False)
        line = text.encode("utf-8", "replace") + b"\n"
        with self._lock:
            self._waiting[number] = future
            if not self._is_over:
                try:
                    self._process.stdin.write(line)
                    self._process.stdin.flush()
                except (BrokenPipeError, ValueError):
                    pass  # the reader is about to say why
                return future
            del self._waiting[number]
        raise SandboxError("slime sandbox has ended")


_service = None
_starting = threading.Lock()


async def _ask(request):
    global _service
    with _starting:
        if _service is None or _service.is_over:
            _service = _Service()
        service = _service
    # A write waits when the child is busy: not in the event loop.
    future = await asyncio.get_running_loop().run_in_executor(None, service.submit, request)
    answer = await asyncio.wrap_future(future)
    if "problem" in answer:
        raise SandboxError(answer["problem"])
    return answer


def _shown(limits, readable, gpu):
    shown = {"limits": limits or {}, "readable": [str(path) for path in readable]}
    return shown if gpu is None else shown | {"gpu": gpu}


async def run_code(code, *, language="python", input="", arguments=(), cases=None, limits=None, readable=(), gpu=None):
    """How a program ended, in a sandbox of its own: {"ending", "code", "output", "error", "seconds", "reason", ...}.

    With `cases`, a list of {"input", "expected"}: {"passed": how many, "cases": [...]}. They are compared outside the
    sandbox, so that code earns one by printing what is expected and in no other way. `gpu`: N of /dev/nvidiaN.
    """
    request = {"do": "run", "language": language, "code": code, "input": input, "arguments": list(arguments)}
    request |= _shown(limits, readable, gpu)
    if cases is not None:
        request["cases"] = list(cases)
    return await _ask(request)


class WarmProcess:
    """A process that has imported a module; commands of sandboxes that are forks of it (warm_process.py) start in milliseconds.

    It is trusted: the module is yours, and its main(*words) is the first thing that a fork calls inside. Where forks would not be as
    safe as processes of their own, start() raises SandboxError, and commands run without.
    """

    def __init__(self, python, module, *, environment=None):
        self._words = [str(python), str(Path(__file__).with_name("warm_process.py"))]
        self._module = str(module)
        self._environment = environment or {}
        self._folder = None
        self._process = None
        self.socket = None

    async def start(self):
        self._folder = Path(tempfile.mkdtemp(prefix="slime-warm-"))
        self.socket = self._folder / "socket"
        # Its memory is that of every fork: none of this process's variables, which may have keys in them.
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ}
        environment = {"HOME": "/work", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
        self._process = await asyncio.create_subprocess_exec(
            *self._words,
            str(self.socket),
            self._module,
            env=kept | environment | self._environment,
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if await self._process.stdout.readline() != b"ready\n":
            said = (await self._process.stderr.read()).decode("utf-8", "replace").strip()
            await self.close()
            raise SandboxError(said.splitlines()[-1] if said else "the warm process ended before it was ready")
        return self

    @property
    def is_over(self):
        return self._process is None or self._process.returncode is not None

    async def close(self):
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class LocalSandbox:
    """The interface of slime.agent.sandbox.Sandbox on this machine. There is one user in it, nobody: `user` names no other.

    Commands start in /work, the one folder that can be written (/tmp lies in it). A command that reaches a limit has exit
    code 124 and the reason at the end of its standard error; one that was ended by a signal 128 and its number.
    """

    def __init__(self, *, limits=None, readable=(), gpu=None):
        self._request = {"do": "open"} | _shown(limits, readable, gpu)
        self._number = None
        self.sandbox_id = ""

    async def __aenter__(self):
        self._number = (await _ask(self._request))["sandbox"]
        self.sandbox_id = f"local-{self._number}"
        return self

    async def __aexit__(self, exc_type, exc, tb):
        try:
            await _ask({"do": "close", "sandbox": self._number})
        except SandboxError:
            pass  # its service is gone, and it with it

    async def run(self, words, *, input="", environment=None, limits=None, warm=None):
        """How a command ended, without a shell: {"ending", "code", "output", "error", "seconds", "cpu_seconds", ...}. `limits`
        are this command's. `warm`: a WarmProcess, of which the command is a fork; the words are [Python, module, what main() gets]."""
        request = {"do": "exec", "sandbox": self._number, "words": [str(word) for word in words], "input": input}
        if warm is not None:
            request["warm"] = str(warm.socket)
        return await _ask(request | {"environment": environment or {}, "limits": limits or {}})

    async def exec(self, cmd, *, user="nobody", env=None, timeout=120, check=False, idempotent=True):
        done = await self.run(["/bin/bash", "-c", cmd], environment=env, limits={"seconds": timeout})
        code, error = done["code"], done["error"]
        if done["ending"] == "signal":
            code += 128
        elif done["ending"] != "exited":
            code = EXIT_LIMIT_REACHED
            error += f"{done['reason']}\n"
        if check and code != 0:
            raise RuntimeError(f"exit code {code}: {cmd[:200]}\n{error[:1000]}")
        return code, done["output"], error

    async def write_file(self, sandbox_path, content, *, user="nobody"):
        if isinstance(content, Path):
            content = content.read_bytes()
        elif isinstance(content, str):
            content = content.encode()
        text = content.decode("latin-1")  # a character for each byte
        await _ask({"do": "write", "sandbox": self._number, "path": str(sandbox_path), "bytes": text})

    async def read_file(self, sandbox_path, *, user="nobody"):
        """Its text; "" for a file that cannot be read."""
        try:
            answer = await _ask({"do": "read", "sandbox": self._number, "path": str(sandbox_path)})
        except SandboxError:
            return ""
        return answer["bytes"].encode("latin-1").decode("utf-8", "replace")
