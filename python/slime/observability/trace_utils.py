"""Spans and events on samples: what a function of the user's did for a sample, when, and for how long.

    with trace_span(sample, "tool", attrs={"name": "search"}) as span:
        found = await search(...)
        span.update({"hits": len(found)})

They are kept in `sample.trace`, which travels with the sample into the run's rollout files (`user_fields`), from which
`tools/rollout_trace.py` makes a timeline. The duration of each name is also a metric of the rollout: `rollout/trace/NAME/...`.
Nothing here fails a sample: what cannot be noted is left out.
"""

import contextvars
import functools
import inspect
import logging
import math
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

from slime.utils.types import Sample

__all__ = [
    "TRACE_CHILDREN_KEY",
    "TRACE_VERSION",
    "TraceHandle",
    "TraceSpanContext",
    "bind_trace",
    "bind_trace_carrier",
    "build_sglang_meta_trace_attrs",
    "export_trace",
    "import_trace",
    "trace_event",
    "trace_function",
    "trace_next_attempt",
    "trace_span",
]

TRACE_VERSION = 1
TRACE_CHILDREN_KEY = "_trace_children"  # an attribute with this name is spans inside of the span, by offsets
MOST_EVENTS = 4096  # of a sample; beyond them a function is in a loop

logger = logging.getLogger(__name__)

# (trace, span) of the spans that are open here, outermost first, and the handles of the innermost one.
_open_spans = contextvars.ContextVar("slime_open_spans", default=())
_open_handles = contextvars.ContextVar("slime_open_handles", default=())


@dataclass
class TraceHandle:
    """A trace: its carrier has the events."""

    trace_id: str
    carrier: Dict[str, Any]
    sample_id: Any = None
    group_id: Any = None
    attempt: int = 0
    parent_span_id: Optional[str] = None


def _plain(value):
    """The value as JSON can say it."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(each) for each in value]
    return repr(value)[:200]


def _never_fails(function):
    @functools.wraps(function)
    def guarded(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception:
            logger.debug("a trace is not noted", exc_info=True)
            return None

    return guarded


# Durations by name, for the rollout's metrics.


class _Totals:
    def __init__(self):
        self._lock = threading.Lock()
        self._seconds = {}

    def add(self, name, seconds):
        with self._lock:
            count, total, longest = self._seconds.get(name, (0, 0.0, 0.0))
            self._seconds[name] = (count + 1, total + seconds, max(longest, seconds))

    def take(self):
        """{name: [count, seconds, the longest]} since the last call."""
        with self._lock:
            taken, self._seconds = self._seconds, {}
        return {name: list(each) for name, each in taken.items()}


totals = _Totals()


# Traces of samples.


def _filled(carrier, sample_id, group_id, trace_id=None, attempt=0):
    carrier = {} if carrier is None else carrier
    carrier.setdefault("version", TRACE_VERSION)
    carrier.setdefault("trace_id", trace_id or uuid.uuid4().hex)
    carrier.setdefault("events", [])
    for name, value in (("sample_id", sample_id), ("group_id", group_id)):
        if value is not None or name not in carrier:
            carrier[name] = value
    carrier.setdefault("attempt", int(attempt))
    return carrier


def _handle(carrier, parent_span_id=None):
    return TraceHandle(
        carrier["trace_id"], carrier, carrier["sample_id"], carrier["group_id"], carrier["attempt"], parent_span_id
    )


def bind_trace(sample: Sample) -> TraceHandle:
    """The sample's trace, begun when it has none."""
    sample.trace = _filled(getattr(sample, "trace", None), sample.index, sample.group_index)
    return _handle(sample.trace)


def bind_trace_carrier(
    carrier: Optional[Dict[str, Any]],
    *,
    trace_id: Optional[str] = None,
    sample_id=None,
    group_id=None,
    attempt: int = 0,
    parent_span_id: Optional[str] = None,
) -> TraceHandle:
    """The trace that a dictionary carries, or a new one."""
    return _handle(_filled(carrier, sample_id, group_id, trace_id, attempt), parent_span_id)


def export_trace(handle: TraceHandle) -> Dict[str, Any]:
    """What another process needs to go on with it: import_trace()."""
    return {
        "version": TRACE_VERSION,
        "trace_id": handle.trace_id,
        "sample_id": handle.sample_id,
        "group_id": handle.group_id,
        "attempt": handle.attempt,
        "parent_span_id": handle.parent_span_id or _open_span(handle.trace_id),
    }


def import_trace(payload: Dict[str, Any], carrier: Optional[Dict[str, Any]] = None) -> TraceHandle:
    known = ("trace_id", "sample_id", "group_id", "parent_span_id")
    return bind_trace_carrier(
        carrier, attempt=int(payload.get("attempt") or 0), **{name: payload.get(name) for name in known}
    )


def _handles(target) -> List[TraceHandle]:
    if isinstance(target, TraceHandle):
        return [target]
    if isinstance(target, Sample):
        return [bind_trace(target)]
    if isinstance(target, TraceSpanContext):
        return target.handles
    if isinstance(target, (list, tuple)):
        return [handle for each in target for handle in _handles(each)]
    return []


def _open_span(trace_id):
    return next((span for trace, span in reversed(_open_spans.get()) if trace == trace_id), None)


def _note(handle, kind, name, when, attrs=None, span_id=None, parent=None):
    """The event; None when the sample has too many."""
    events = handle.carrier["events"]
    if len(events) >= MOST_EVENTS:
        handle.carrier["num_left_out"] = handle.carrier.get("num_left_out", 0) + 1
        return None
    ids = {"trace_id": handle.trace_id, "sample_id": handle.sample_id, "group_id": handle.group_id}
    event = {"type": kind, "name": name, "ts": when, **ids, "attempt": handle.carrier.get("attempt", handle.attempt)}
    if span_id is not None:
        event["span_id"] = span_id
    if parent is not None:
        event["parent_span_id"] = parent
    if attrs:
        event["attrs"] = _plain(attrs)
    events.append(event)
    return event


@_never_fails
def trace_event(target, name: str, *, attrs: Optional[Dict[str, Any]] = None) -> None:
    """An event of no duration on a sample, a handle, or a list of them."""
    now = time.time()
    for handle in _handles(target):
        _note(handle, "event", name, now, attrs, parent=handle.parent_span_id or _open_span(handle.trace_id))


@dataclass
class TraceSpanContext:
    """An open span: attributes set here stand at its end, also when they are set after it."""

    target: Any
    handles: List[TraceHandle]
    name: str = ""
    start_ts: float = 0.0
    span_ids: List[str] = field(default_factory=list)
    end_attrs: Dict[str, Any] = field(default_factory=dict)
    ends: List[Dict[str, Any]] = field(default_factory=list)

    def set(self, key: str, value: Any) -> "TraceSpanContext":
        return self.update({key: value})

    def update(self, attrs: Optional[Dict[str, Any]]) -> "TraceSpanContext":
        self._update(attrs)
        return self

    set_attr = set
    update_attrs = update

    @_never_fails
    def _update(self, attrs):
        own = dict(attrs or {})
        children = own.pop(TRACE_CHILDREN_KEY, None)
        self.end_attrs.update(own)
        for event in self.ends:
            event.setdefault("attrs", {}).update(_plain(own))
        for handle, span_id in zip(self.handles, self.span_ids):
            _note_children(handle, span_id, children, self.start_ts)

    @_never_fails
    def _begin(self, attrs):
        self.start_ts = time.time()
        for handle in self.handles:
            self.span_ids.append(uuid.uuid4().hex)
            parent = handle.parent_span_id or _open_span(handle.trace_id)
            _note(handle, "span_start", self.name, self.start_ts, attrs, self.span_ids[-1], parent)

    @_never_fails
    def _end(self):
        now = time.time()
        totals.add(self.name, max(0.0, now - self.start_ts))
        for handle, span_id in zip(self.handles, self.span_ids):
            event = _note(handle, "span_end", self.name, now, self.end_attrs, span_id)
            if event is not None:
                self.ends.append(event)


def _note_children(handle, parent, children, begin):
    for child in [children] if isinstance(children, dict) else children or []:
        start = begin + float(child["start_offset"])
        if child["type"] == "event":
            _note(handle, "event", child["name"], start, child.get("attrs"), parent=parent)
            continue
        span_id = uuid.uuid4().hex
        _note(handle, "span_start", child["name"], start, None, span_id, parent)
        _note_children(handle, span_id, child.get("children"), start)
        _note(handle, "span_end", child["name"], begin + float(child["end_offset"]), child.get("attrs"), span_id)


@contextmanager
def trace_span(target, name: str, *, attrs: Optional[Dict[str, Any]] = None, record_error: bool = True):
    """A span on a sample, a handle, or a list of them; spans begun inside are its children. An exception is noted at its
    end, and goes on."""
    span = TraceSpanContext(target, _never_fails(_handles)(target) or [], name)
    span._begin(attrs)
    ids = tuple((handle.trace_id, span_id) for handle, span_id in zip(span.handles, span.span_ids))
    spans, handles = _open_spans.set(_open_spans.get() + ids), _open_handles.set(tuple(span.handles))
    try:
        yield span
    except BaseException as error:
        if record_error:
            span.end_attrs.update({"error_type": type(error).__name__, "error_message": str(error)[:500]})
        raise
    finally:
        span._end()
        for variable, token in ((_open_spans, spans), (_open_handles, handles)):
            try:
                variable.reset(token)
            except ValueError:
                pass  # a generator that was closed in another context


def trace_next_attempt(target, *, attrs: Optional[Dict[str, Any]] = None):
    """From here on it is another attempt at the same samples."""
    handles = _handles(target)
    for handle in handles:
        handle.attempt = handle.carrier["attempt"] = int(handle.carrier.get("attempt", 0)) + 1
        trace_event(handle, "attempt_start", attrs={"attempt": handle.attempt, **(attrs or {})})
    return handles[0] if len(handles) == 1 else handles or target


def _target_of_call(function, args, kwargs, target, target_getter):
    """What a call of a traced function is noted on; None: nothing."""
    if target_getter is not None:
        return target_getter(*args, **kwargs)
    given = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    if target is not None:
        if target not in given:
            logger.warning("trace_function: %s was called without %s", function.__qualname__, target)
        return given.get(target)
    for value in given.values():
        if isinstance(value, (Sample, TraceHandle)):
            return value
        if isinstance(value, list) and value and all(isinstance(each, (Sample, TraceHandle)) for each in value):
            return value
    return list(_open_handles.get())


def trace_function(
    name: str,
    *,
    target: Optional[str] = None,
    target_getter: Optional[Callable] = None,
    attrs_getter: Optional[Callable] = None,
    record_error: bool = True,
):
    """A decorator: each call is a span on the argument named `target`, on what `target_getter(*arguments)` says, else on
    the first argument that is a sample or a list of them, else on those of the span around the call."""

    def decorate(function):
        find, describe = _never_fails(_target_of_call), _never_fails(attrs_getter or (lambda *args, **kwargs: None))

        def span(args, kwargs):
            found = find(function, args, kwargs, target, target_getter)
            return trace_span(found, name, attrs=describe(*args, **kwargs), record_error=record_error)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced(*args, **kwargs):
                with span(args, kwargs):
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def traced(*args, **kwargs):
                with span(args, kwargs):
                    return function(*args, **kwargs)

        return traced

    return decorate


# What an engine's answer says about its request.

_OF_REQUEST = ("prompt_tokens", "completion_tokens", "cached_tokens", "queue_time", "e2e_latency", "decode_throughput")
_OF_PAIRS = ("pd_transfer_speed_gb_s", "pd_transfer_total_mb", "pd_prefill_retry_count")
_PHASES = {
    "prefill": ("bootstrap_queue", "bootstrap", "alloc_wait", "forward", "transfer_queue"),
    "decode": ("prealloc", "bootstrap", "alloc_wait", "transfer", "forward"),
}


def build_sglang_meta_trace_attrs(meta: Dict[str, Any]) -> Dict[str, Any]:
    """Attributes of a span from the meta_info of an answer; the phases of a prefill and a decode server are spans inside."""
    attrs = {name: meta[name] for name in _OF_REQUEST if meta.get(name) is not None}
    reason = meta.get("finish_reason")
    reason = reason.get("type") if isinstance(reason, dict) else reason
    for name, value in (("finish_reason", reason), ("sglang_request_id", meta.get("id"))):
        if value is not None:
            attrs[name] = value
    children = _never_fails(_phases)(meta)
    return {**attrs, TRACE_CHILDREN_KEY: children} if children else attrs


def _phases(meta):
    spans, begin = [], 0.0
    for phase, steps in _PHASES.items():
        inside, end = [], begin
        for step in steps:
            key = f"pd_{phase}_{step}_duration"
            seconds = float(meta.get(key) or 0)
            if seconds > 0:
                place = {"start_offset": end - begin, "end_offset": end - begin + seconds}
                inside.append({"type": "span", "name": f"sglang_pd_{phase}_{step}", **place, "attrs": {key: seconds}})
                end += seconds
        if inside:
            spans.append(
                {
                    "type": "span",
                    "name": f"sglang_pd_{phase}",
                    "start_offset": begin,
                    "end_offset": end,
                    "attrs": {"phase": phase, "duration_s": end - begin},
                    "children": inside,
                }
            )
        begin = end
    summary = {name: meta[name] for name in _OF_PAIRS if meta.get(name) is not None}
    if summary:
        spans.append({"type": "event", "name": "sglang_pd_summary", "start_offset": begin, "attrs": summary})
    return spans
