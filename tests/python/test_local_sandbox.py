"""`slime.agent.local_sandbox` against the program."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from slime.agent.local_sandbox import LocalSandbox, SandboxError, run_code
from slime.agent.sandbox import Sandbox, exec_and_wait
from slime.program import find_program


def why_not():
    try:
        done = subprocess.run([find_program(), "sandbox", "--check"], capture_output=True, text=True, timeout=60)
    except FileNotFoundError as error:
        return str(error)
    return done.stderr.strip()


WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def test_code_runs_with_its_limits_and_is_judged_outside():
    async def calls():
        plain, late, judged = await asyncio.gather(
            run_code("import sys; print(int(input()) * 2); sys.exit(4)", input="21"),
            run_code("while True: pass", limits={"seconds": 0.3}),
            run_code(
                "a, b = map(int, input().split()); print(a + b)",
                cases=[{"input": "1 2", "expected": "3"}, {"input": "2 2", "expected": "5"}],
            ),
        )
        assert (plain["ending"], plain["code"], plain["output"]) == ("exited", 4, "42\n")
        assert late["ending"] == "time" and late["reason"] == "was ended after 0.3 s"
        assert judged["passed"] == 1 and [case["passed"] for case in judged["cases"]] == [True, False]

    asyncio.run(calls())


def test_text_with_half_a_character_harms_nobody():
    async def calls():
        async with LocalSandbox() as sandbox:
            assert (await run_code("print(ascii(input()))", input="a\ud800b"))["output"] == "'a?b'\n"
            assert (await sandbox.exec("true"))[0] == 0, "the service lives"

    asyncio.run(calls())


def test_a_request_that_makes_no_sense_is_an_error():
    with pytest.raises(SandboxError, match="did you mean seconds"):
        asyncio.run(run_code("", limits={"second": 1}))


def test_it_is_a_sandbox_for_agents(tmp_path):
    (tmp_path / "bytes").write_bytes(bytes(range(256)))

    async def calls():
        async with LocalSandbox() as sandbox:
            assert isinstance(sandbox, Sandbox)
            await sandbox.write_file("/tmp/folder/a.txt", "Gr\u00fc\u00dfe")
            assert await sandbox.read_file("/tmp/folder/a.txt") == "Gr\u00fc\u00dfe"
            assert await sandbox.read_file("/nowhere") == ""
            await sandbox.write_file("/work/bytes", Path(tmp_path / "bytes"))
            assert await sandbox.exec("wc -c < /work/bytes; echo $A >&2", env={"A": "1"}) == (0, "256\n", "1\n")
            assert await sandbox.exec("kill -9 $$") == (137, "", "")
            assert await sandbox.exec("sleep 60", timeout=0.2) == (124, "", "was ended after 0.2 s\n")
            with pytest.raises(RuntimeError, match="exit code 3: exit 3"):
                await sandbox.exec("exit 3", check=True)
        with pytest.raises(SandboxError, match="is not open"):
            await sandbox.exec("true")

    asyncio.run(calls())


def test_a_command_without_a_shell_has_limits_of_its_own():
    async def calls():
        async with LocalSandbox() as sandbox:
            done = await sandbox.run(["cat"], input="text", environment={"A": "1"})
            assert (done["ending"], done["code"], done["output"]) == ("exited", 0, "text") and done["cpu_seconds"] > 0
            split = ["python3", "-c", "import os; os.fork()"]
            assert (await sandbox.run(split))["code"] == 0
            assert "BlockingIOError" in (await sandbox.run(split, limits={"processes": 1}))["error"]

    asyncio.run(calls())


def test_commands_that_take_long_run_beside_the_calls():
    async def calls():
        async with LocalSandbox() as sandbox:
            done = await exec_and_wait(
                sandbox, cmd="sleep 0.5; echo through", time_budget_sec=20, tag="job", want_output=True, workdir="/work"
            )
            assert done == (0, "through\n")

    asyncio.run(calls())
