"""Which weights made which tokens of a conversation.

Whoever calls a generate function begins a list with `watch`; each answer of an engine that `slime.utils.http_utils` hands
to that function, or to a task that it started, is noted there; `version_runs` lays them over the response that came of it.
"""

from contextvars import ContextVar

__all__ = ["watch", "note", "version_runs"]

NO_VERSION = -1

_turns = ContextVar("turns", default=None)


def watch(turns):
    """From now on, in this task and in those that it starts, answers are noted in the list `turns`."""
    _turns.set(turns)


def note(answer):
    """What a server answered. Anything that is not an answer of an engine is passed over."""
    turns = _turns.get()
    if turns is None:
        return
    for each in answer if isinstance(answer, list) else (answer,):
        if not isinstance(each, dict):
            return
        ids, meta = each.get("output_ids"), each.get("meta_info")
        if not isinstance(ids, list) or not ids or not isinstance(meta, dict):
            continue
        try:
            runs = meta.get("weight_version_runs") or [[int(meta["weight_version"]), len(ids)]]
        except (KeyError, TypeError, ValueError):
            continue
        turns.append((ids, runs))


def _find(response, ids, start):
    last = len(response) - len(ids)
    while True:
        try:
            start = response.index(ids[0], start, last + 1)
        except ValueError:
            return None
        if response[start : start + len(ids)] == ids:
            return start
        start += 1


def _append(runs, version, count):
    if count and runs and runs[-1][0] == version:
        runs[-1][1] += count
    elif count:
        runs.append([version, count])


def version_runs(response, turns, start=0):
    """[[version, tokens], ...] over the tokens of a response, -1 where no turn made them and for the first `start`; None
    where no turn is to be found in it. Turns are looked for in their order."""
    runs, at = [], start
    _append(runs, NO_VERSION, start)
    has_turn = False
    for ids, made in turns:
        place = _find(response, ids, at)
        if place is None:
            continue
        has_turn = True
        _append(runs, NO_VERSION, place - at)
        for version, count in made:
            _append(runs, version, count)
        at = place + len(ids)
    _append(runs, NO_VERSION, len(response) - at)
    return runs if has_turn else None
