"""The notebook of examples/ in a kernel: its cells run, the reward rises, and the program ends with it."""

import asyncio
import os
import time

import nbformat
import pytest
from conftest import ROOT, SLIME, mean
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from test_loop_in_python import gone_within, is_alive

NOTEBOOK = ROOT / "examples" / "notebook" / "grpo.ipynb"


@pytest.fixture
def client_of(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("SLIME_BINARY", str(SLIME))

    def make(notebook):
        return NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOK.parent)}})

    return make


def cell(source):
    return nbformat.v4.new_code_cell(source)


def value_of(client, name):
    """Of a variable of the kernel, by what a cell prints."""
    client.nb.cells.append(cell(f"print({name})"))
    done = client.execute_cell(client.nb.cells[-1], len(client.nb.cells) - 1)
    return eval(done["outputs"][0]["text"], {})  # a number or a list of numbers


def test_the_notebook_runs_and_its_reward_rises(client_of):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = client_of(notebook)
    with client.setup_kernel():
        for index, each in enumerate(notebook.cells):
            client.execute_cell(each, index)
        rewards = value_of(client, "rewards")
        assert len(rewards) == 25 and mean(rewards[-5:]) > mean(rewards[:3]) + 0.15, rewards
        assert not is_alive(value_of(client, "s._child.pid"))


def session_cells(work):
    return [cell(f"""import slime
s = slime.start({str(work / "model")!r}, device="cpu", fp32=True, num_threads=1, output=False)""")]


def test_an_error_of_a_reward_names_the_cell(work, client_of):
    client = client_of(nbformat.v4.new_notebook(cells=session_cells(work)))
    with client.setup_kernel():
        client.execute_cell(client.nb.cells[0], 0)
        failing = cell("""def reward(sample):
    return 1 / 0

next(s.grpo(["1+1="], reward, groups=1, samples=2, max_tokens=3))""")
        client.nb.cells.append(failing)
        with pytest.raises(CellExecutionError) as error:
            client.execute_cell(failing, 1)
        assert "cell In[2], line 2, in reward" in str(error.value) and "prompt '1+1='" in str(error.value)


def test_a_kernel_that_is_interrupted_keeps_its_session_and_one_that_is_killed_ends_it(work, client_of):
    client = client_of(nbformat.v4.new_notebook(cells=session_cells(work)))
    with client.setup_kernel():
        client.execute_cell(client.nb.cells[0], 0)
        pid = value_of(client, "s._child.pid")
        endless = cell("""import time
def reward(sample):
    open("/tmp/slime-notebook-" + str(s._child.pid), "w").close()
    time.sleep(600)

next(s.grpo(["1+1="], reward, groups=1, samples=2, max_tokens=3))""")
        client.nb.cells.append(endless)
        at = len(client.nb.cells) - 1
        mark = f"/tmp/slime-notebook-{pid}"

        async def interrupted():
            running = asyncio.ensure_future(client.async_execute_cell(endless, at))
            until = time.monotonic() + 120
            while not os.path.exists(mark) and time.monotonic() < until:
                await asyncio.sleep(0.02)
            os.unlink(mark)
            await client.km.interrupt_kernel()
            with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
                await running

        asyncio.get_event_loop().run_until_complete(interrupted())
        assert value_of(client, 'len(s.generate("1+1=", n=2, max_tokens=3)[0])') == 2
        assert is_alive(pid)
        asyncio.get_event_loop().run_until_complete(client.km.signal_kernel(9))
        assert gone_within(pid, 30)
