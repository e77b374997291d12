#!/usr/bin/env python3
"""Writes the spans that users' functions noted on samples (slime.observability.trace_utils) as a timeline.

    python3 tools/rollout_trace.py RUN_DIR > trace.json        # open it in https://ui.perfetto.dev or chrome://tracing

Reads RUN_DIR/rollouts/*.jsonl. A process of the timeline is a group, a thread one of its samples.
"""

import argparse
import json
import sys
from pathlib import Path

MICROSECONDS = 1e6


def traces(run_dir):
    """(sample's record, its trace) of all samples that have one."""
    files = sorted((Path(run_dir) / "rollouts").glob("*.jsonl"))
    if not files:
        sys.exit(f"{run_dir}/rollouts: no rollout files (a run's folder is wanted)")
    for file in files:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                sample = json.loads(line)
                trace = ((sample.get("user_fields") or {}).get("extra") or {}).get("trace")
                if isinstance(trace, dict) and trace.get("events"):
                    yield sample, trace


def timeline_of(sample, trace, begin):
    place = {"pid": sample.get("group_index") or 0, "tid": sample.get("index") or 0}
    open_spans, events = {}, []
    for event in trace["events"]:
        when = (event["ts"] - begin) * MICROSECONDS
        if event["type"] == "span_start":
            open_spans[event["span_id"]] = (event, when)
        elif event["type"] == "span_end" and event["span_id"] in open_spans:
            start, since = open_spans.pop(event["span_id"])
            attrs = {**start.get("attrs", {}), **event.get("attrs", {}), "attempt": event.get("attempt", 0)}
            events.append({"name": event["name"], "ph": "X", "ts": since, "dur": when - since, **place, "args": attrs})
        elif event["type"] == "event":
            events.append({"name": event["name"], "ph": "i", "s": "t", "ts": when, **place, "args": event.get("attrs", {})})
    for start, since in open_spans.values():
        events.append({"name": start["name"] + " (never ended)", "ph": "i", "s": "t", "ts": since, **place, "args": {}})
    return events


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", help="the folder of a run")
    found = list(traces(parser.parse_args().run_dir))
    if not found:
        sys.exit("no sample has spans: a function notes them with slime.observability.trace_utils.trace_span")
    begin = min(event["ts"] for _, trace in found for event in trace["events"])
    events = [event for sample, trace in found for event in timeline_of(sample, trace, begin)]
    json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, sys.stdout)


if __name__ == "__main__":
    main()
