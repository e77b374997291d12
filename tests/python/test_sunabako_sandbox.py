"""The sandbox provider sunabako, with a stand-in for its package that has the package's own interface (0.1.2)."""

import asyncio
import json
import sys
import types

import pytest
from slime.agent.sandbox import E2BSandbox, exec_and_wait, make_sandbox
from slime.agent.sunabako_sandbox import SunabakoSandbox


class Machine:
    """AsyncSandbox of the package, on this machine's shell."""

    made = []

    def __init__(self, folder, options):
        self.sandbox_id, self.node = "sb-1", types.SimpleNamespace(name="node-a")
        self.folder, self.options, self.killed = folder, options, 0

    async def exec(self, cmd, *, user="root", env=None, timeout=120, check=False):
        shell = await asyncio.create_subprocess_shell(cmd, stdout=-1, stderr=-1, cwd=self.folder, env=env)
        output, error = await shell.communicate()
        return shell.returncode, output.decode(), error.decode()

    async def write_file(self, path, content, *, user="root"):
        (self.folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path.lstrip("/")).write_text(content)

    async def read_file(self, path, *, user="root"):
        return (self.folder / path.lstrip("/")).read_text()

    async def kill(self, *, defer_cleanup=False):
        self.killed += 1


@pytest.fixture
def package(tmp_path, monkeypatch):
    made = []

    class AsyncSandbox:
        @classmethod
        async def create(cls, template=None, *, node=None, cluster=None, memory_mb=512, memory_mode="cgroup", runtime="native", network="none", envs=None):  # fmt: skip
            made.append(Machine(tmp_path, {"template": template, "cluster": cluster, "memory_mb": memory_mb, "memory_mode": memory_mode, "runtime": runtime, "network": network, "envs": envs}))  # fmt: skip
            return made[-1]

    class Cluster:
        @classmethod
        def from_file(cls, path):
            return json.loads(open(path).read())

    stand_in = types.ModuleType("sunabako")
    stand_in.AsyncSandbox, stand_in.Cluster = AsyncSandbox, Cluster
    monkeypatch.setitem(sys.modules, "sunabako", stand_in)
    (tmp_path / "cluster.json").write_text('["node-a"]')
    (tmp_path / "images.json").write_text('{"repo:1": {"rootfs": "/bundles/repo", "workdir": "/work", "env": {"A": "1"}}}')
    monkeypatch.setenv("SWE_SANDBOX_PROVIDER", "sunabako")
    monkeypatch.setenv("SUNABAKO_CLUSTER", str(tmp_path / "cluster.json"))
    monkeypatch.setenv("SUNABAKO_IMAGES", str(tmp_path / "images.json"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_it_is_made_of_the_environment_and_runs_commands(package, tmp_path, monkeypatch):
    monkeypatch.setenv("SUNABAKO_ARTIFACTS", str(tmp_path / "left"))

    async def use():
        async with make_sandbox("repo:1") as sandbox:
            assert isinstance(sandbox, SunabakoSandbox) and sandbox.sandbox_id == "sb-1"
            await sandbox.write_file("/work/.harness/trajectory.jsonl", "{}\n")
            assert await sandbox.exec("echo out; echo err >&2; exit 3", idempotent=False) == (3, "out\n", "err\n")
            with pytest.raises(RuntimeError, match="exit code 3: exit 3"):
                await sandbox.exec("exit 3", check=True)
            assert await sandbox.read_file("/nowhere") == ""

    asyncio.run(use())
    (machine,) = package
    assert machine.killed == 1
    assert machine.options == {
        "template": "/bundles/repo",
        "cluster": ["node-a"],
        "memory_mb": 2048,
        "memory_mode": "cgroup",
        "runtime": "proot",
        "network": "host",
        "envs": {"A": "1"},
    }
    left = tmp_path / "left" / "sb-1"
    assert json.loads((left / "sandbox.json").read_text()) == {"image": "repo:1", "sandbox_id": "sb-1", "node": "node-a"}
    assert [each["exit_code"] for each in json.loads((left / "commands.json").read_text())] == [3, 3]
    assert (left / "trajectory.jsonl").read_text() == "{}\n"


def test_what_is_missing_is_named(package, monkeypatch):
    with pytest.raises(KeyError, match="has no image other; it has repo:1"):
        asyncio.run(make_sandbox("other").__aenter__())
    monkeypatch.delenv("SUNABAKO_CLUSTER")
    with pytest.raises(RuntimeError, match="set SUNABAKO_CLUSTER"):
        asyncio.run(make_sandbox("repo:1").__aenter__())
    monkeypatch.setitem(sys.modules, "sunabako", None)
    with pytest.raises(ImportError, match="pip install sunabako"):
        asyncio.run(make_sandbox("repo:1").__aenter__())
    monkeypatch.setenv("SWE_SANDBOX_PROVIDER", "docker")
    with pytest.raises(ValueError, match="e2b or sunabako"):
        make_sandbox("repo:1")
    monkeypatch.delenv("SWE_SANDBOX_PROVIDER")
    assert isinstance(make_sandbox("repo:1"), E2BSandbox)


def test_the_interface_is_that_of_the_installed_package():
    package = pytest.importorskip("sunabako", reason="the package sunabako cannot be imported")
    import inspect

    wanted = {"cluster", "memory_mb", "memory_mode", "runtime", "network", "envs"}
    assert wanted <= set(inspect.signature(package.AsyncSandbox.create).parameters)
    assert {"user", "env", "timeout", "check"} <= set(inspect.signature(package.AsyncSandbox.exec).parameters)
    assert callable(package.Cluster.from_file) and callable(exec_and_wait)
