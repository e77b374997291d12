"""Where an agent's commands run: an interface, the service E2B behind it, and commands that take long."""

import asyncio
import io
import os
import random
import shlex
import time
from pathlib import Path
from typing import Dict, Optional, Protocol, Tuple, Union, runtime_checkable

__all__ = ["E2BSandbox", "ExecResult", "Sandbox", "ensure_agent_user", "exec_and_wait", "make_sandbox"]

ExecResult = Tuple[int, str, str]  # exit code, standard output, standard error
FileContent = Union[str, bytes, Path]

EXIT_TIME_BUDGET_EXCEEDED = -1
_FIRST_LOOK_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 5.0


@runtime_checkable
class Sandbox(Protocol):
    """An asynchronous context. `idempotent` tells a backend whether a command may be sent again when its answer is lost."""

    sandbox_id: str

    async def __aenter__(self) -> "Sandbox": ...

    async def __aexit__(self, exc_type, exc, tb) -> None: ...

    async def exec(
        self,
        cmd: str,
        *,
        user: str = "root",
        env: Optional[Dict[str, str]] = None,
        timeout: int = 120,
        check: bool = False,
        idempotent: bool = True,
    ) -> ExecResult: ...

    async def write_file(self, sandbox_path: str, content: FileContent, *, user: str = "root") -> None: ...

    async def read_file(self, sandbox_path: str, *, user: str = "root") -> str: ...


async def _exit_code(sandbox, done_file, user, time_budget_sec):
    """Looks for the file that the command leaves at its end, seldomer with time."""
    end, wait = time.monotonic() + time_budget_sec, _FIRST_LOOK_SECONDS
    while True:
        code, text, _ = await sandbox.exec(
            f"test -f {done_file} && cat {done_file}", user=user, timeout=15, check=False
        )
        if code == 0 and (text or "").strip():
            return int(text.strip())
        if time.monotonic() >= end:
            return EXIT_TIME_BUDGET_EXCEEDED
        await asyncio.sleep(min(wait, max(end - time.monotonic(), 0)))
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)


async def exec_and_wait(
    sb,
    *,
    cmd,
    time_budget_sec,
    tag,
    user="root",
    env=None,
    workdir=None,
    out_file=None,
    want_output=False,
):
    """(exit code, output) of a command that may take longer than a connection holds; code -1 when its time is up.

    The command runs by itself and leaves its exit code in a file, so that each call is short and may be repeated. Output
    is whole with `want_output`, else the end of it when the command failed. One call with a `tag` at a time.
    """
    base = f"/tmp/.{tag}"
    out_file = out_file or f"{base}.out"
    done_file, script, started = f"{base}.done", f"{base}.sh", f"{base}.started"
    lines = ["#!/bin/bash"]
    if workdir:
        lines += [f"cd {shlex.quote(workdir)}", f"export HOME=/home/{user}"]
    await sb.write_file(script, "\n".join(lines + [cmd, f"echo $? > {done_file}", ""]), user=user)
    await sb.exec(f"rm -rf {started} {out_file} {done_file}", user=user, timeout=30, check=True)
    # Sent twice it starts once: the folder can be made one time only.
    await sb.exec(
        f"chmod +x {script}; mkdir {started} 2>/dev/null || exit 0; "
        f"setsid bash {script} < /dev/null > {out_file} 2>&1 &",
        user=user,
        env=env,
        timeout=30,
        check=True,
    )
    code = await _exit_code(sb, done_file, user, time_budget_sec)
    if want_output:
        return code, await sb.read_file(out_file, user=user)
    if code == 0:
        return code, ""
    _, end_of_output, _ = await sb.exec(f"tail -c 512 {out_file} 2>/dev/null", user=user, timeout=15, check=False)
    return code, end_of_output or ""


async def ensure_agent_user(sb, workdir):
    """The user `agent` owns the work folder."""
    folder = shlex.quote(workdir)
    await sb.exec(
        "id agent >/dev/null 2>&1 || useradd -m -s /bin/bash agent; "
        f"chown -R agent:agent /home/agent {folder} && git config --system --add safe.directory '*' && id agent",
        user="root",
        check=True,
        timeout=60,
    )


def _setting(names, default=""):
    return next((os.environ[name] for name in names if os.environ.get(name, "").strip()), default)


class E2BSandbox:
    """A sandbox of the service E2B, by its package e2b. The image is told by a metadata key of the gateway."""

    image_metadata_key_env = ("SLIME_AGENT_SANDBOX_IMAGE_METADATA_KEY", "SWE_SANDBOX_IMAGE_METADATA_KEY")
    lifetime_sec_env = ("SLIME_AGENT_SANDBOX_LIFETIME_SEC", "SWE_SANDBOX_LIFETIME_SEC")
    rpc_retries_env = ("SLIME_AGENT_SANDBOX_RPC_RETRIES", "SWE_RPC_RETRIES")
    size_env = ("SLIME_AGENT_E2B_SANDBOX_SIZE", "SWE_E2B_SANDBOX_SIZE")
    longest_wait_sec = 32.0

    # Errors of the connection, by name: their modules are e2b's own.
    _PASSING = frozenset(
        "ProtocolError LocalProtocolError RemoteProtocolError ReadError WriteError ConnectError ConnectTimeout "
        "ReadTimeout WriteTimeout PoolTimeout SSLError".split()
    )

    def __init__(self, image, *, timeout=None, image_metadata_key=None, rpc_retries=None, size=None):
        self.image = image
        self.timeout = int(_setting(self.lifetime_sec_env, "3600")) if timeout is None else timeout
        self.image_metadata_key = image_metadata_key or _setting(self.image_metadata_key_env) or None
        self.rpc_retries = int(_setting(self.rpc_retries_env, "6")) if rpc_retries is None else rpc_retries
        self.size = _setting(self.size_env, "md") if size is None else size
        self.sandbox_id = ""
        self._sandbox = None

    @classmethod
    def _passes(cls, error):
        name, text = type(error).__name__, str(error)
        if name == "SandboxException":
            return "does not exist" not in text and "STOPPED state" not in text
        return name in cls._PASSING

    async def _call(self, make, idempotent=True):
        for attempt in range(self.rpc_retries):
            try:
                return await make()
            except Exception as error:
                if not idempotent or not self._passes(error) or attempt + 1 == self.rpc_retries:
                    raise
            await asyncio.sleep(random.uniform(0, min(self.longest_wait_sec, 2.0**attempt)))
        raise ValueError("rpc_retries is 0: nothing was called")

    async def __aenter__(self):
        if self.image_metadata_key is None:
            raise RuntimeError(f"set {self.image_metadata_key_env[0]} to the gateway's metadata key for images")
        from e2b import AsyncSandbox

        metadata = {self.image_metadata_key: self.image}
        if self.size:
            folder, slash, _ = self.image_metadata_key.rpartition("/")
            metadata[f"{folder}{slash}size"] = self.size
        self._sandbox = await self._call(lambda: AsyncSandbox.create(timeout=self.timeout, metadata=metadata))
        self.sandbox_id = self._sandbox.sandbox_id
        return self

    async def __aexit__(self, exc_type, exc, tb):
        if self._sandbox is not None:
            try:
                await self._sandbox.kill()
            except Exception:
                pass  # its lifetime ends it

    async def exec(self, cmd, *, user="root", env=None, timeout=120, check=False, idempotent=True):
        from e2b.sandbox.commands.command_handle import CommandExitException

        try:
            done = await self._call(
                lambda: self._sandbox.commands.run(cmd, user=user, envs=env, timeout=timeout), idempotent
            )
        except CommandExitException as error:
            done = error
        if check and done.exit_code != 0:
            raise RuntimeError(f"exit code {done.exit_code}: {cmd[:200]}\n{(done.stderr or '')[:1000]}")
        return done.exit_code, done.stdout or "", done.stderr or ""

    async def write_file(self, sandbox_path, content, *, user="root"):
        def write():
            if isinstance(content, str):
                return self._sandbox.files.write(sandbox_path, content, user=user)
            data = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
            return self._sandbox.files.write(
                sandbox_path, data, user=user, gzip=False, use_octet_stream=True, request_timeout=600
            )

        await self._call(write)

    async def read_file(self, sandbox_path, *, user="root"):
        """Its text; "" for a file that cannot be read."""
        try:
            return await self._call(lambda: self._sandbox.files.read(sandbox_path, user=user))
        except Exception:
            return ""


def make_sandbox(image):
    """A sandbox of the provider that SWE_SANDBOX_PROVIDER names: e2b, which is the default, or sunabako."""
    provider = _setting(("SWE_SANDBOX_PROVIDER",), "e2b").strip().lower()
    if provider == "e2b":
        return E2BSandbox(image)
    if provider == "sunabako":
        from slime.agent.sunabako_sandbox import SunabakoSandbox

        return SunabakoSandbox(image)
    raise ValueError(f"SWE_SANDBOX_PROVIDER={provider}: e2b or sunabako")
