"""What coding agents have in common: they are installed, configured, started in a sandbox and waited for."""

import asyncio
import json
import lzma
import os
import shlex
import shutil
import tempfile
from abc import ABC, ABCMeta, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from slime.agent import sandbox as sandboxes
from slime.utils.misc import SingletonMeta

__all__ = ["BaseHarness", "HarnessContext", "install_node22", "install_npm_cli", "run_agent", "with_settings"]

NPM_ATTEMPTS = 3


class SingletonABCMeta(ABCMeta, SingletonMeta):
    pass


@dataclass(frozen=True)
class HarnessContext:
    workdir: str
    session_id: str
    adapter_url: str
    model_label: str = "slime-actor"  # what the agent is told; the engine serves what it has


class BaseHarness(ABC, metaclass=SingletonABCMeta):
    name = ""

    @abstractmethod
    async def install_cli(self, sb):
        """Puts the agent into the sandbox."""

    @abstractmethod
    async def write_config(self, sb, ctx):
        """Writes what the agent reads at its start."""

    @abstractmethod
    async def launch_and_wait(self, sb, ctx, prompt, time_budget_sec):
        """Runs the agent to its end; its exit code."""

    async def run(self, sb, *, workdir, session_id, adapter_url, time_budget_sec, prompt):
        """Everything but the installation, on a work folder that is there."""
        await sandboxes.ensure_agent_user(sb, workdir)
        ctx = HarnessContext(workdir, session_id, adapter_url)
        await self.write_config(sb, ctx)
        return await self.launch_and_wait(sb, ctx, prompt, time_budget_sec)


def with_settings(command, env, extra_args_env, extra_envs_env):
    """(command, env) with what the user set in the two variables: more arguments, a JSON object of variables."""
    extra = os.environ.get(extra_args_env, "").strip()
    more = os.environ.get(extra_envs_env, "").strip()
    return (f"{command} {extra}" if extra else command), {**env, **(json.loads(more) if more else {})}


async def run_agent(sb, *, workdir, start_cmd, env, time_budget_sec):
    """The agent's exit code; what it prints is in .harness/trajectory.jsonl of the work folder."""
    folder = f"{workdir}/.harness"
    quoted = shlex.quote(folder)
    await sb.exec(f"mkdir -p {quoted} && chown agent:agent {quoted}", user="root", check=True, timeout=30)
    code, _ = await sandboxes.exec_and_wait(
        sb,
        cmd=start_cmd,
        user="agent",
        env=env,
        workdir=workdir,
        out_file=f"{folder}/trajectory.jsonl",
        time_budget_sec=time_budget_sec,
        tag="run",
    )
    return code


async def install_npm_cli(sb, *, node_runtime, npm_package, check_cmd):
    """Node, then the agent's npm package, from files of this machine."""
    await install_node22(sb, node_runtime)
    await sb.write_file("/tmp/harness-cli.tgz", Path(npm_package))
    command = f"npm install -g --prefix=/usr/local --no-audit --no-fund /tmp/harness-cli.tgz && {check_cmd}"
    for attempt in range(1, NPM_ATTEMPTS + 1):
        code, output = await sandboxes.exec_and_wait(sb, cmd=command, time_budget_sec=300, tag="harness-npm")
        if code == 0:
            return
        await asyncio.sleep(2.0 * attempt if attempt < NPM_ATTEMPTS else 0)
    raise RuntimeError(f"npm could not install the agent (exit code {code}):\n{output[-1000:]}")


async def install_node22(sb, host_tarball):
    """Images without xz get the archive unpacked here."""
    archive = Path(host_tarball)
    if archive.suffix == ".xz":
        plain = Path(tempfile.gettempdir()) / f"slime-{archive.stem}"
        if not plain.exists():
            partial = plain.with_suffix(f".{os.getpid()}.partial")
            with lzma.open(archive, "rb") as source, open(partial, "wb") as target:
                shutil.copyfileobj(source, target)
            os.replace(partial, plain)
        archive = plain
    await sb.write_file("/tmp/node22.tar", archive)
    links = " && ".join(f"ln -sf /opt/node22/bin/{tool} /usr/local/bin/{tool}" for tool in ("node", "npm", "npx"))
    await sb.exec(
        f"mkdir -p /opt/node22 && tar xf /tmp/node22.tar -C /opt/node22 --strip-components=1 && {links} && node --version",
        user="root",
        timeout=180,
        check=True,
    )
