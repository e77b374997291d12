"""Which weights made which tokens of a conversation.

Whoever calls a generate function begins a list with `watch`; each answer of an engine that `slime.utils.http_utils` hands
to that function, or to a task that it started, is noted there; `version_runs` lays them over the response that came of it, and
`untrained_tokens` counts what no sample has of them.
"""

from contextvars import ContextVar

__all__ = ["watch", "note", "version_runs", "untrained_tokens"]

NO_VERSION = -1

_turns = ContextVar("turns", default=None)


def watch(turns):
    """From now on, in this task and in those that it starts, answers are noted in the list `turns`."""
    _turns.set(turns)


def note(answer, request=None):
    """What a server answered to `request`. Anything that is not an answer of an engine is passed over."""
    turns = _turns.get()
    if turns is None:
        return
    asked = request.get("input_ids") if isinstance(request, dict) else None
    is_list = isinstance(answer, list)
    for i, each in enumerate(answer if is_list else (answer,)):
        if not isinstance(each, dict):
            return
        ids, meta = each.get("output_ids"), each.get("meta_info")
        if not isinstance(ids, list) or not ids or not isinstance(meta, dict):
            continue
        try:
            runs = meta.get("weight_version_runs") or [[meta["weight_version"], len(ids)]]
            runs = [[int(version), count] for version, count in runs]
        except (KeyError, TypeError, ValueError):
            continue
        prompt = each.get("prompt_ids", asked)
        if hasattr(prompt, "is_prefix_of"):  # as it is: it may share its tokens with others
            turns.append((ids, runs, prompt))
            continue
        if is_list and "prompt_ids" not in each:
            prompt = asked[i] if isinstance(asked, list) and len(asked) == len(answer) else None
        turns.append((ids, runs, list(prompt) if isinstance(prompt, list) else None))


def _find(response, ids, start, loss_mask):
    last = len(response) - len(ids)
    while True:
        try:
            start = response.index(ids[0], start, last + 1)
        except ValueError:
            return None
        end = start + len(ids)
        if response[start:end] == ids and (loss_mask is None or any(loss_mask[start:end])):
            return start
        start += 1


def _append(runs, version, count):
    if count and runs and runs[-1][0] == version:
        runs[-1][1] += count
    elif count:
        runs.append([version, count])


def version_runs(response, turns, start=0, *, prompt=(), loss_mask=None, is_alone=True):
    """[[version, tokens], ...] over the tokens of a response, -1 where no turn made them and for the first `start`; None
    where no turn is to be found in it.

    A turn whose prompt the response goes on from, `prompt` being what stands before the response, is where its prompt
    ends. Others are looked for in their order, with a `loss_mask` not where nothing is trained; of an execution with
    several samples (not `is_alone`) only while none of them has a known place, since one agent's turn is what another
    one heard."""
    whole = [*prompt, *response]
    places = [_place_behind(whole, len(prompt), ids, asked) for ids, _, asked in turns]
    is_searched = is_alone or all(place is None for place in places)
    runs, at = [], start
    _append(runs, NO_VERSION, start)
    has_turn = False
    for (ids, made, _), place in zip(turns, places):
        if place is None and is_searched:
            place = _find(response, ids, at, loss_mask)
        if place is None or place < at:
            continue
        has_turn = True
        _append(runs, NO_VERSION, place - at)
        for version, count in made:
            _append(runs, version, count)
        at = place + len(ids)
    _append(runs, NO_VERSION, len(response) - at)
    return runs if has_turn else None


def _place_behind(whole, begin, ids, asked):
    """Where in the response a turn is that drew `ids` behind the tokens `asked`; None when it is not there."""
    if asked is None or len(asked) < begin or whole[len(asked) : len(asked) + len(ids)] != ids:
        return None
    if isinstance(asked, list):
        return len(asked) - begin if whole[: len(asked)] == asked else None
    return len(asked) - begin if asked.is_prefix_of(whole) else None


def untrained_tokens(samples, turns):
    """How many of the tokens that engines sampled are trained in none of `samples`: [(tokens, length of the prompt, loss mask
    of the rest or None)]. A turn is trained where its tokens are behind its own prompt, and once; one whose prompt is not
    known is looked for."""
    count, taken = 0, set()
    for ids, _, asked in turns:
        best = (0, None)
        for i, (whole, begin, mask) in enumerate(samples):
            if asked is None:
                at = _find(whole[begin:], ids, 0, mask)
            else:
                at = _place_behind(whole, begin, ids, asked)
            if at is None or (i, at) in taken:
                continue
            trained = len(ids) if mask is None else sum(map(bool, mask[at : at + len(ids)]))
            best = max(best, (trained, (i, at)), key=lambda each: each[0])
        count += len(ids) - best[0]
        taken.add(best[1])
    return count
