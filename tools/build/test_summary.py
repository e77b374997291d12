#!/usr/bin/env python3
"""Counts what test programs reported: why tests were skipped, then "N passed, N failed, N skipped".

    python3 tools/build/test_summary.py STATUS REPORT.xml...

The reports are JUnit's XML, which GoogleTest and pytest both write. STATUS is 0 if all programs ended well; one that did not,
or a report that is missing (the program crashed), counts as a failure even where no test failed. Exits 1 unless some tests
passed and none failed.
"""

import sys
import xml.etree.ElementTree as xml
from collections import Counter
from pathlib import Path


def reason_of(skipped):
    """GoogleTest's message begins with the place of the macro."""
    lines = [line for line in skipped.get("message", "").splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].rpartition(":")[2].isdigit():
        del lines[0]
    return lines[0].strip() if lines else "no reason given"


def outcome(case):
    """"failed", "skipped" or "passed"; None for a test that a filter or DISABLED_ left out."""
    if case.get("status") == "notrun":
        return None
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def main() -> int:
    status, reports = int(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    counts, reasons = Counter(), Counter()
    for report in reports:
        if not report.exists():
            print(f"{report.name} is missing: the program that writes it ended before")
            counts["failed"] += 1
            continue
        for case in xml.parse(report).iter("testcase"):
            counts[outcome(case)] += 1
            if outcome(case) == "skipped":
                reasons[reason_of(case.find("skipped"))] += 1
    if status != 0 and counts["failed"] == 0:
        counts["failed"] = 1
    for reason, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0])):
        print(f"skipped {count}: {reason}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
