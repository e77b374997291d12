"""Sandboxes of the package sunabako: on nodes of one's own, without a container engine inside of the container.

    SWE_SANDBOX_PROVIDER=sunabako SUNABAKO_CLUSTER=cluster.json SUNABAKO_IMAGES=images.json

`SUNABAKO_CLUSTER` names the nodes, `SUNABAKO_IMAGES` {image: {"rootfs", "workdir", "env"}}: bundles that each node has.
`SUNABAKO_RUNTIME` (proot), `SUNABAKO_MEMORY_MB` (2048), `SUNABAKO_ALLOW_TEST_MEMORY` (1: memory is watched, not limited by
a cgroup) and `SUNABAKO_ARTIFACTS`, a folder for what a sandbox leaves, are optional.
"""

import json
import logging
import os
from pathlib import Path

__all__ = ["SunabakoSandbox"]

logger = logging.getLogger(__name__)

_PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY")


def _package():
    try:
        import sunabako
    except ImportError as error:
        raise ImportError(
            "SWE_SANDBOX_PROVIDER=sunabako needs the package sunabako in the plug-ins' Python: pip install sunabako, or name "
            "an interpreter that has it: --plugin-python"
        ) from error
    return sunabako


def _setting(name):
    path = os.environ.get(name, "").strip()
    if not path:
        raise RuntimeError(f"set {name} to a file: slime.agent.sunabako_sandbox says what is in it")
    return path


def _bundle(image):
    """What SUNABAKO_IMAGES says of an image."""
    path = _setting("SUNABAKO_IMAGES")
    images = json.loads(Path(path).read_text(encoding="utf-8"))
    if image not in images:
        raise KeyError(f"{path} has no image {image}; it has {', '.join(sorted(images)[:5])}")
    return images[image]


class SunabakoSandbox:
    """A sandbox of slime.agent.sandbox.Sandbox's form. No command is sent twice, whatever `idempotent` says."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.sandbox_id = ""
        self._sandbox = None
        self._workdir = "/testbed"
        self._commands = []

    async def __aenter__(self) -> "SunabakoSandbox":
        package, bundle = _package(), _bundle(self.image)
        self._workdir = bundle.get("workdir", self._workdir)
        is_watched = os.environ.get("SUNABAKO_ALLOW_TEST_MEMORY") == "1"
        self._sandbox = await package.AsyncSandbox.create(
            bundle["rootfs"],
            cluster=package.Cluster.from_file(_setting("SUNABAKO_CLUSTER")),
            runtime=os.environ.get("SUNABAKO_RUNTIME", "proot"),
            network="host",
            memory_mb=int(os.environ.get("SUNABAKO_MEMORY_MB", "2048")),
            memory_mode="rss" if is_watched else "cgroup",
            envs={**bundle.get("env", {}), **{name: os.environ[name] for name in _PROXIES if name in os.environ}},
        )
        self.sandbox_id = self._sandbox.sandbox_id
        try:
            self._leave("sandbox.json", {"image": self.image, "sandbox_id": self.sandbox_id, "node": self._sandbox.node.name})
        except BaseException:
            await self._sandbox.kill()
            raise
        return self

    async def __aexit__(self, exc_type, exc, tb) -> None:
        if self._sandbox is None:
            return
        try:
            await self._leave_all()
        except Exception:
            logger.exception("%s: what it leaves could not be kept", self.sandbox_id)
        finally:
            await self._sandbox.kill()

    def _folder(self):
        folder = os.environ.get("SUNABAKO_ARTIFACTS", "").strip()
        return Path(folder) / self.sandbox_id if folder else None

    def _leave(self, name, content):
        folder = self._folder()
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8")

    async def _leave_all(self):
        if self._folder() is None:
            return
        self._leave("commands.json", self._commands)
        for path in (f"{self._workdir}/.harness/trajectory.jsonl", "/tmp/.harness-npm.out", "/tmp/.run.out"):
            try:
                self._leave(Path(path).name.lstrip("."), await self._sandbox.read_file(path))
            except Exception:
                logger.debug("%s has no %s", self.sandbox_id, path)

    async def exec(self, cmd, *, user="root", env=None, timeout=120, check=False, idempotent=True):
        code, output, error = await self._sandbox.exec(cmd, user=user, env=env, timeout=timeout, check=False)
        self._commands.append({"command": cmd, "exit_code": code, "stdout": output, "stderr": error})
        if check and code != 0:
            raise RuntimeError(f"exit code {code}: {cmd[:200]}\n{error[:1000]}")
        return code, output, error

    async def write_file(self, sandbox_path, content, *, user="root") -> None:
        await self._sandbox.write_file(sandbox_path, content, user=user)

    async def read_file(self, sandbox_path, *, user="root") -> str:
        """Its text; "" for a file that cannot be read."""
        try:
            return await self._sandbox.read_file(sandbox_path, user=user)
        except Exception:
            return ""
