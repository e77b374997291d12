"""The host's loop: frames in, users' functions called, answers out.

One event loop on the main thread. A coroutine function gets a task for each call; a plain function runs in the loop, or in
one thread for all where the original calls it outside its loop. Answers that are ready at the same time are sent at once;
until then they lie on the board (slime.host.board), where they outlive this process.
"""

import asyncio
import functools
import inspect
import logging
import os
import platform
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import slime
from slime import channel
from slime.host.arguments import make_arguments
from slime.host.board import STEP_THREAD, Board, Call, current
from slime.host.calls import CALLS
from slime.host.frames import (
    ANSWERS,
    BEAT,
    CALLS as CALLS_FRAME,
    CANCEL,
    CONFIGURE,
    PROTOCOL,
    READY,
    REPLIES,
    Columns,
    FrameSocket,
    decode,
    encode,
    encode_json,
    frame_bytes,
)
from slime.host.hooks import HOOKS, problem_of, resolve_all
from slime.host.imports import look_at
from slime.host.program import DataSourceProxy, Program
from slime.host.tracebacks import describe
from slime.observability.trace_utils import totals
from slime.rollout.generate_call import cancel_requests
from slime.rollout.other_forms import make_source
from slime.utils import async_utils, http_utils

__all__ = ["Host", "serve"]

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.05
BEAT_SECONDS = 0.25
LEAVE_SECONDS = 2  # for what a host still has to do when its program is gone
MAX_ANSWERS_IN_A_FRAME = 256
BOARD_DESCRIPTOR = 4


def _answers_frame(bodies, arrays):
    return frame_bytes(ANSWERS, encode(b'{"answers":[' + b",".join(bodies) + b"]}", arrays))


async def _await_any(awaitable):
    return await awaitable


def _coroutine_of(awaitable):
    return awaitable if inspect.iscoroutine(awaitable) else _await_any(awaitable)


class Host:
    def __init__(self, connection, loop):
        self._loop = loop
        self._frames = FrameSocket(connection, lambda: loop.call_soon_threadsafe(self._write_rest))
        self.program = Program(self._frames, self._receive)
        self._arrived = []
        self._hooks = []
        self._tasks = {}  # by call's id: (task, Call)
        self._board = Board()
        self._answers = []  # (JSON, arrays) of those that are not sent
        self._flush_is_due = False
        self._main_caller = ThreadPoolExecutor(1, thread_name_prefix="user")
        self._ticks = 0
        self._ended = loop.create_future()
        self._behind_answer = []
        self._data_source = None
        self._tensors = None
        self.args = None

    # Frames.

    def start(self):
        self._loop.set_task_factory(self._make_task)
        self._run_in_executor, self._loop.run_in_executor = self._loop.run_in_executor, self._in_executor
        self._loop.add_reader(self._frames.fileno(), self._readable)
        self._tick()
        threading.Thread(target=self._beat, name="beat", daemon=True).start()

    async def ended(self):
        await self._ended

    def _write_rest(self):
        if self._frames.flush():
            self._loop.remove_writer(self._frames.fileno())
            if not self._answers and self._frames.is_open:
                self._board.forget_answers()
        else:
            self._loop.add_writer(self._frames.fileno(), self._write_rest)

    def _receive(self):
        """Replies are delivered at once; other frames wait for `_dispatch`. Called by whoever reads."""
        had_frames = bool(self._arrived)
        for kind, payload in self._frames.receive():
            if kind == REPLIES:
                self.program.answer(*decode(payload))
            else:
                self._arrived.append((kind, payload))
        if self._arrived and not had_frames:
            self._loop.call_soon(self._dispatch)

    def _readable(self):
        try:
            self._receive()
        except BaseException as error:
            self._end(error)
            return
        if not self._frames.is_open:
            self._loop.remove_reader(self._frames.fileno())
            self.program.fail_all()
            self._end(None)

    def _end(self, error):
        if not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    def _dispatch(self):
        arrived, self._arrived = self._arrived, []
        for kind, payload in arrived:
            try:
                head, arrays = decode(payload)
                if kind == CALLS_FRAME:
                    self._begin_calls(head, arrays)
                elif kind == CONFIGURE:
                    self._configure(head)
                elif kind == CANCEL:
                    self._cancel(head)
            except BaseException as error:
                self._end(error)
                return

    # Configuration.

    def _configure(self, head):
        if head.get("protocol") != PROTOCOL:
            problem = {"message": f"protocol {head.get('protocol')}; this host speaks {PROTOCOL}", "path": ""}
            self._frames.send(READY, encode({"problems": [{"flag": "--plugin-python", "traceback": "", **problem}]}))
            return
        if "board" in head:
            self._board = Board(head["board"], BOARD_DESCRIPTOR)
        for folder in reversed(head.get("paths", [])):
            if folder not in sys.path:
                sys.path.insert(0, folder)
        self.args = make_arguments(head.get("args", {}))
        channel.program = self.program
        async_utils.adopt_loop(self._loop)
        channel.takes_metrics = any(each["hook"] in CALLS for each in head.get("hooks", []))
        self._hooks, problems = resolve_all(head.get("hooks", []))
        threads = head.get("args", {}).get("num_threads") or 0
        if threads > 0 and any(HOOKS[hook.kind].needs_torch for hook in self._hooks):
            import torch

            torch.set_num_threads(threads)
        missing, notes = look_at([hook.function for hook in self._hooks if hook.function is not None])
        problems += [{"flag": "import", "path": "", "type": "", "message": text, "traceback": ""} for text in missing]
        for hook in self._hooks:
            notes += [f"--{HOOKS[hook.kind].flag} {hook.path}: {note}" for note in hook.notes]
        if not problems:
            self._name_functions()
            self._make_objects(problems)
        hooks = [
            {
                "is_coroutine": hook.is_coroutine,
                "parameters": list(hook.parameters),
                "abort_mode": getattr(hook.function, "abort_mode", None),
            }
            for hook in self._hooks
        ]
        ready = {
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "slime": slime.__version__,
            "pid": os.getpid(),
            "hooks": hooks,
            "problems": problems,
            "notes": notes,
        }
        self._frames.send(READY, encode(ready))

    def _name_functions(self):
        """A function that is named by its file alone gets its name in `args`: the package's own functions load it by that."""
        for hook in self._hooks:
            name = HOOKS[hook.kind].flag.replace("-", "_")
            if hook.path.endswith(".py") and getattr(self.args, name, None) == hook.path:
                setattr(self.args, name, f"{hook.path}:{hook.function.__name__}")

    def _make_objects(self, problems):
        """Of the classes among the hooks, in the thread where they are called."""
        for hook in self._hooks:
            try:
                if hook.kind == "data_source":
                    self._data_source = self._main_caller.submit(make_source, hook.function, self.args).result()
                elif hook.is_unmade():
                    self._main_caller.submit(hook.make, self.args).result()
            except BaseException as error:
                problems.append(problem_of(hook.kind, hook.path, error))

    def data_source(self):
        """The user's own, or the program's."""
        if self._data_source is None:
            self._data_source = DataSourceProxy(self.program)
        return self._data_source

    # Calls.

    def _begin_calls(self, head, arrays):
        if "memory" in head or "forget" in head:
            self._trainer().map(head, self._frames.take_descriptor)
        for call in head["calls"]:
            started = time.monotonic()
            own = Call(call["id"], call.get("slot"), call.get("seconds"))
            try:
                if "release" in call:
                    self._answer(call["id"], self._trainer().release(), Columns(), started)
                    continue
                hook = self._hooks[call["hook"]]
                own.function = hook.function
                kind = HOOKS[hook.kind]
                way = CALLS.get(hook.kind) or self._trainer().way(hook.kind)
                function, finish = way(self, hook, call, arrays)
                if kind.in_thread and not hook.is_coroutine:
                    marked = functools.partial(self._board.run_in_thread, own, function, STEP_THREAD)
                    outcome = self._run_in_executor(self._main_caller, marked)
                elif hook.is_coroutine or inspect.iscoroutinefunction(function):
                    outcome = function()  # nothing of the user's runs before its first step
                else:
                    outcome = self._board.run(own, function)
                    if not inspect.isawaitable(outcome):
                        self._finish(own, outcome, finish, started)
                        continue
                self._await(own, outcome, finish, started)
            except BaseException as error:
                self._fail(call["id"], error, started)

    def take_descriptor(self):
        return self._frames.take_descriptor()

    def _trainer(self):
        if self._tensors is None:
            from slime.host.tensors import Tensors

            self._tensors = Tensors()
        return self._tensors

    def _await(self, call, outcome, finish, started):
        coroutine = self._answered(call, outcome, finish, started)
        is_of_user = not isinstance(outcome, asyncio.Future)
        token = current.set(call if is_of_user else None)
        try:
            task = self._loop.create_task(coroutine)
        finally:
            current.reset(token)
        self._tasks[call.number] = (task, call)
        # A task that is cancelled before it began runs nothing but this.
        task.add_done_callback(lambda task: self._end_task(call, task, outcome, started))

    async def _answered(self, call, outcome, finish, started):
        """sys.exit() of a user's function must not end the loop."""
        try:
            result = await outcome
            if inspect.isawaitable(result):
                result = await self._board.watch(_coroutine_of(result), call)
        except GeneratorExit:
            raise
        except BaseException as error:
            is_late = isinstance(error, asyncio.CancelledError) and self._board.is_late(call)
            self._fail(call.number, TimeoutError("later than its deadline") if is_late else error, started)
        else:
            self._finish(call, result, finish, started)

    def _finish(self, call, result, finish, started):
        columns = Columns()
        try:
            if self._frames.is_lost() and self._frames.is_open:
                self._frames.is_open = False
                raise RuntimeError("the plug-in host lost its connection (descriptor 3) to this function")
            value = finish(result, columns)
        except BaseException as error:
            self._fail(call.number, error, started, call.function)
        else:
            self._answer(call.number, value, columns, started)
        behind, self._behind_answer = self._behind_answer, []
        for function in behind:
            self._main_caller.submit(self._call_behind, function)

    def call_behind_answer(self, function):
        """Calls it, in the thread of functions of a step, when the answer that is being made is on its way."""
        self._behind_answer.append(function)

    @staticmethod
    def _call_behind(function):
        try:
            function()
        except Exception:
            logger.exception("RolloutFnTrainOutput.on_accepted")

    def _end_task(self, call, task, outcome, started):
        self._tasks.pop(call.number, None)
        if task.cancelled():
            if hasattr(outcome, "close"):
                outcome.close()
            self._fail(call.number, asyncio.CancelledError(), started)

    def _make_task(self, loop, coroutine, **options):
        """Tasks that a call's function starts are the call's."""
        context = options.get("context")
        call = current.get() if context is None else context.get(current)
        if call is not None:
            coroutine = self._board.watch(coroutine, call)
        return asyncio.Task(coroutine, loop=loop, **options)

    def _in_executor(self, executor, function, *args):
        """So are threads; other processes have boards of nobody's."""
        call = current.get()
        if call is not None and (executor is None or isinstance(executor, ThreadPoolExecutor)):
            run = functools.partial(function, *args)
            return self._run_in_executor(executor, self._board.run_in_thread, call, run)
        return self._run_in_executor(executor, function, *args)

    # Answers.

    def _answer(self, number, value, columns, started):
        answer = {"id": number, "value": value, "seconds": round(time.monotonic() - started, 6)}
        try:
            body = encode_json(answer)
        except (TypeError, ValueError, RecursionError) as error:
            told = TypeError(f"what was returned cannot be told to the program: {error}")
            self._fail(number, told, started)
        else:
            self._keep(body, columns.arrays)

    def _fail(self, number, error, started, returned_by=None):
        answer = {"id": number, "error": describe(error, returned_by), "seconds": round(time.monotonic() - started, 6)}
        self._keep(encode_json(answer), [])

    def _keep(self, body, arrays):
        """One answer: on the board by itself, and to be sent with those that are ready at the same time."""
        self._answers.append((body, arrays))
        if not self._board.keep(_answers_frame([body], arrays)):
            self._flush_answers()
            self._frames.drain()  # what does not lie on the board would be lost with this process
            if self._frames.is_open:
                self._board.forget_answers()
        elif len(self._answers) >= MAX_ANSWERS_IN_A_FRAME:
            self._flush_answers()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self):
        self._flush_is_due = False
        self._flush_answers()

    def _flush_answers(self):
        """Those without columns share a frame."""
        answers, self._answers = self._answers, []
        if not answers:
            return
        spans = totals.take() if channel.takes_metrics else None
        if spans:
            self.program.tell("log", {"spans": spans})
        plain = [body for body, arrays in answers if not arrays]
        frames = [_answers_frame(plain, [])] if plain else []
        frames += [_answers_frame([body], arrays) for body, arrays in answers if arrays]
        if self._frames.send_bytes(b"".join(frames)):
            self._board.forget_answers()

    # Deadlines, cancellation, signs of life.

    def _cancel(self, head):
        if head.get("hurries"):
            http_utils.give_up_retries()
        if "aborted" in head:
            self._set_aborted(bool(head["aborted"]))
        wanted = head.get("ids", [])
        for number in list(self._tasks) if wanted == "all" else wanted:
            if number in self._tasks:
                self._tasks[number][0].cancel()

    def _set_aborted(self, aborted):
        from slime.utils.misc import SingletonMeta

        channel.is_aborted = aborted  # for a state that is made later
        for made, state in SingletonMeta._instances.items():
            if made.__name__ == "GenerateState":
                state.aborted = aborted
                if aborted:
                    cancel_requests(state)

    def _tick(self):
        self._ticks += 1
        for task, call in list(self._tasks.values()):
            if self._board.is_late(call):
                task.cancel()
        self._loop.call_later(TICK_SECONDS, self._tick)

    def _beat(self):
        """The count stands still when a function blocks the loop, and beats end when it does not even let threads run."""
        while self._frames.is_open:
            time.sleep(BEAT_SECONDS)
            self._frames.send(BEAT, encode({"loop": self._ticks}))
        # The program is gone. The loop sees that too, unless a function blocks it.
        time.sleep(LEAVE_SECONDS)
        os._exit(1)


async def _serve(connection):
    loop = asyncio.get_running_loop()
    host = Host(connection, loop)
    host.start()
    await host.ended()


def serve(connection):
    """Until the program closes its end."""
    asyncio.run(_serve(connection))
