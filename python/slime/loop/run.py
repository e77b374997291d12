"""A run of `slime train` whose loop is this script."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import warnings
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, overload

from slime.loop.calls import Call, Closed, Dropped, Evaluation, Rollout, Saved, Settled, Training, Update
from slime.loop.child import Child
from slime.loop.door import Door
from slime.loop.errors import Error, Refused, RunOver
from slime.loop.flags import flag_words
from slime.loop.metrics import read_metrics

if TYPE_CHECKING:
    from slime.loop.session import Session

__all__ = ["Config", "Run", "astart", "start"]

_AnyCall = TypeVar("_AnyCall", bound=Call)
_LONGEST_SAVE = 1800.0  # seconds
_GOOD_ENDS = (0, 130)  # exit statuses: closed, interrupted


class Config(dict):
    """The flags of a run by name, with underscores; as attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no flag --{name.replace('_', '-')}") from None


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class Run:
    """The stations of a run, driven by verbs. Made by :func:`start`.

    In plain code a verb returns when it is done. Inside an event loop it returns at once and is awaited; ``wait=False`` and
    ``wait=True`` say so anywhere. Verbs are done one at a time, in the order in which they are asked for; only ``generate`` of
    an asynchronous run (``train_async=True``) overlaps: its groups are handed over when it is awaited, and the engines sample
    meanwhile.

    >>> with slime.start(flags) as run:                # doctest: +SKIP
    ...     for i in run.steps:
    ...         rollout = run.generate(i)
    ...         run.train(rollout)
    ...         run.update_weights()
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._owner = os.getpid()
        self._over: RunOver | None = None
        self._is_closed = False
        self._has_ended_well = False  # before it could say so
        self._open: set[Call] = set()  # that nobody has waited for
        self._config: Config | None = None
        address = child.wait_for_door()
        self._door = Door(address["url"], address["token"])
        state = self.state()
        self.run_id: str = state["run_id"]
        self.run_dir = Path(state["run_dir"])
        self.first_step: int = state["first_step"]
        self.num_steps: int = state["num_steps"]
        self.is_async: bool = state["is_async"]
        _running.add(self)

    # The verbs.

    def generate(self, step: int | None = None, *, wait: bool | None = None) -> Rollout:
        """Samples and scores the groups of a step: the next one, which `step` names if it is given."""
        return self._call(Rollout, step, wait)

    def train(self, rollout: Rollout | int | None = None, *, wait: bool | None = None) -> Training:
        """Trains on a rollout; on the one in hand without an argument."""
        return self._call(Training, self._step_of(rollout), wait)

    def update_weights(self, *, wait: bool | None = None) -> Update:
        """Gives the trained weights to the engines. A script that does not call it trains off-policy."""
        return self._call(Update, None, wait)

    def evaluate(self, step: int | None = None, *, wait: bool | None = None) -> Evaluation:
        """Evaluates on the sets of --eval-prompt-data or --eval-config."""
        return self._call(Evaluation, step, wait)

    def save(self, step: int | None = None, *, wait: bool | None = None) -> Saved:
        """Writes a checkpoint behind the step that was trained last, which `step` names if it is given."""
        return self._call(Saved, step, wait)

    def drop(self, rollout: Rollout | int | None = None, *, wait: bool | None = None) -> Dropped:
        """Ends the step of a rollout without training on it."""
        return self._call(Dropped, self._step_of(rollout), wait)

    # The run.

    @property
    def steps(self) -> range:
        """The steps that are left: from the one behind the last checkpoint, or the next one, to the last."""
        return range(self.state()["next_step"], self.num_steps)

    def state(self) -> dict[str, Any]:
        """How far it is: next_step, done_step, saved_step, weight_version, steps_behind, in_hand, ..."""
        return self._request("GET", "state")

    @property
    def config(self) -> Config:
        """All flags, defaults included. Secrets are hidden."""
        if self._config is None:
            self._config = Config(self._request("GET", "config"))
        return self._config

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each step so far, one record a step, as in RUN_DIR/metrics.jsonl. A step's record is written when the
        next verb begins, or a second after the last; where nothing is under way it is written now."""
        if not self._is_over() and not _is_in_event_loop() and not self._open:
            try:
                Settled(self, {}).result()
            except Error:
                pass
        return read_metrics(self.run_dir)

    def close(self) -> None:
        """Ends the run: what was trained is saved, files are complete. Does nothing the second time."""
        if self._is_closed or os.getpid() != self._owner:
            return
        self._is_closed = True
        _running.discard(self)
        is_known = self._over is not None  # somebody has read why
        try:
            if not is_known:
                self._warn_of_refusals()
                Closed(self, {}).result()
        except RunOver as error:
            self._over = error
        finally:
            self._child.clean_up()
        if self._over is not None and not is_known and not self._has_ended_well:
            raise self._over
        self._over = self._over or RunOver("the run is closed")

    def interrupt(self) -> None:
        """Ends the run as Ctrl-C ends `slime train`: what is sampled is abandoned, what was trained is saved."""
        if self._is_closed or os.getpid() != self._owner:
            return
        self._is_closed = True
        _running.discard(self)
        self._over = RunOver("the run was interrupted; what was trained is saved")
        self._child.interrupt()
        try:
            self._child.clean_up()
        except KeyboardInterrupt:  # the second one
            self._child.kill()
            raise

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(kind)

    async def __aenter__(self) -> Run:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._leave, kind)

    def _leave(self, kind: type[BaseException] | None) -> None:
        if kind is not None and issubclass(kind, (KeyboardInterrupt, asyncio.CancelledError)):
            return self.interrupt()
        try:
            self.close()
        except Error:
            if kind is None:
                raise  # otherwise the error of the script is the one to read

    def __repr__(self) -> str:
        return f"<slime run {self.run_id} in {self.run_dir}{': over' if self._is_over() else ''}>"

    # For calls.

    def _is_over(self) -> bool:
        return self._is_closed or self._over is not None

    @staticmethod
    def _step_of(rollout: Rollout | int | None) -> int | None:
        return rollout.step if isinstance(rollout, Rollout) else rollout

    def _call(self, kind: type[_AnyCall], step: int | None, wait: bool | None) -> _AnyCall:
        is_beside = _is_in_event_loop()
        if is_beside and _is_notebook():
            # Cells are often run without await: what they asked for before is done first.
            for call in [each for each in self._open if not isinstance(each, Rollout)]:
                call.result()
        call = kind(self, {} if step is None else {"step": step})
        self._open.add(call)
        if wait is None:
            wait = not is_beside
        return call.result() if wait else call

    def _forget(self, call: Call) -> None:
        self._open.discard(call)

    def _ask(self, verb: str, arguments: dict[str, Any]) -> str:
        if self._is_closed and verb != "close":
            raise self._over or RunOver(f"{verb}: the run is closed")
        return self._request("POST", verb, arguments)["request_id"]

    def _request(self, method: str, route: str, body: dict[str, Any] | None = None, timeout: float | None = 60.0) -> dict[str, Any]:
        if self._over is not None:
            raise self._over
        try:
            return self._door.call(method, route, body, timeout)
        except TimeoutError:
            raise
        except OSError as error:
            # The door closes with the run: what was trained may still be on its way to the disk.
            if not self._child.has_ended(within=_LONGEST_SAVE):
                raise Error(f"the run's door is closed, and the program (process {self._child.pid}) goes on: {error}") from error
            died_of = self._child.end(statuses=_GOOD_ENDS)
            self._has_ended_well = died_of is None
            self._over = died_of or RunOver("the run is closed")
            raise self._over from error

    def _warn_of_refusals(self) -> None:
        for call in list(self._open):
            if isinstance(call, Rollout):
                continue
            try:
                call.result()
            except Refused as error:
                warnings.warn(f"{call!r} was never awaited, and was refused: {error}", stacklevel=3)
            except RunOver:
                return


_running: set[Run] = set()


@atexit.register
def _close_all() -> None:
    for run in list(_running):
        try:
            run.close()
        except Exception as error:
            print(f"slime: {error}", file=sys.stderr)


_RUNS_OWN = ("prompt_data", "config", "rollout_function_path", "data_source_path", "load_debug_rollout_data")


@overload
def start(model: str | os.PathLike[str], *, prompt_data: Any, output: TextIO | bool | None = ..., share_weights: bool = ..., program: str | None = ..., **flags: Any) -> Run: ...  # fmt: skip
@overload
def start(model: str | os.PathLike[str], *, output: TextIO | bool | None = ..., program: str | None = ..., **flags: Any) -> Session: ...
@overload
def start(model: Any = ..., *, output: TextIO | bool | None = ..., share_weights: bool = ..., program: str | None = ..., **flags: Any) -> Run: ...
def start(
    model: Any = None, *, output: TextIO | bool | None = None, share_weights: bool = False, program: str | None = None, **flags: Any
) -> Run | Session:
    """Starts the program as a child of this script, and returns when the model is loaded.

    ``start(MODEL)``, a directory or a name of the hub, gives a :class:`Session`: a model to sample, score and train by verbs.
    ``start(MODEL, prompt_data=..., rm_type=...)``, and ``start(flags)`` with the flags of `slime train` as a list of words, a namespace
    of argparse or a dictionary, give a :class:`Run`, whose steps this script decides.

    Keywords are flags: ``start(MODEL, lr=1e-6, device="cpu")``.
    `output`: a stream for what the program says; default sys.stderr, False for none.
    `share_weights`: of a run: engines that take turns with the trainer read its weights; that is less memory, and
    ``update_weights`` is then needed between ``train`` and ``generate``.
    `program`: path of the program; default: see slime.program.

    Raises RunOver with the program's sentence when the flags, the data or the model cannot work.

    >>> session = slime.start("Qwen/Qwen3-0.6B", lr=1e-6)       # doctest: +SKIP
    >>> run = slime.start(["--config", "run.yaml"], lr=1e-6)    # doctest: +SKIP
    """
    if isinstance(model, (str, os.PathLike)) and not share_weights and not any(flags.get(each) for each in _RUNS_OWN):
        from slime.loop.session import start_session

        return start_session(model, output, program, flags)
    words = flag_words(model, flags)
    return Run(Child([*(["--share-weights"] if share_weights else []), *words], output, program))


@overload
async def astart(model: str | os.PathLike[str], *, prompt_data: Any, **options: Any) -> Run: ...
@overload
async def astart(model: str | os.PathLike[str], **options: Any) -> Session: ...
@overload
async def astart(model: Any = ..., **options: Any) -> Run: ...
async def astart(model: Any = None, **options: Any) -> Run | Session:
    """:func:`start` for an event loop, which goes on while model and data are loaded."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: start(model, **options))
