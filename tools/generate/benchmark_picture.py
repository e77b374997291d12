#!/usr/bin/env python3
"""Draws the figures of a benchmark file against their limits and their best peers, and writes them as a table.

    python3 tools/generate/benchmark_picture.py docs/benchmarks/h200.json      # writes h200.svg and h200.md beside it

A peer's figure says in "peer_of" what the peer was, what it ran and when. Rows named kernel-... go to a picture of their own, h200_kernels.svg, and a second table.
"""

import json
import sys
from html import escape
from pathlib import Path
from textwrap import fill

NOTE_WIDTH = 120  # characters of a line
WIDTH, LEFT, RIGHT, TOP, ROW = 760, 210, 120, 58, 24
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #5c6675; } .title { font-size: 14px; font-weight: 600; fill: #1b1f27; }
  .grid { stroke: #e3e6eb; } .ours { fill: #2563eb; } .peer { fill: #d97706; } .value { fill: #1b1f27; }
  @media (prefers-color-scheme: dark) {
    text { fill: #a0a9b8; } .title, .value { fill: #e6e9ee; } .grid { stroke: #2a303a; } .ours { fill: #6ea8fe; } .peer { fill: #f2a541; }
  }
"""
# Figures of which less is better, by the first word of their unit.
TIMES = {"ms", "s", "seconds", "times", "%", "bytes"}


def share_of_limit(row: dict, value: float | None) -> float | None:
    """How much of what the machine could do at best is reached, in [0, 1]."""
    limit = row.get("limit")
    if not limit or not value:
        return None
    return min(1.0, limit / value if row["unit"].split()[0] in TIMES else value / limit)


def picture(title: str, rows: list[dict]) -> str:
    drawn = [row for row in rows if share_of_limit(row, row["value"]) is not None]
    height = TOP + ROW * len(drawn) + 34

    def x(share: float) -> float:
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(title)}</title>']
    parts.append(f'<style>{STYLE}</style><text class="title" x="16" y="22">{escape(title)}</text>')
    parts.append(f'<rect class="ours" x="{LEFT}" y="34" width="22" height="8"/><text x="{LEFT + 28}" y="42">slime</text>')
    parts.append(f'<rect class="peer" x="{LEFT + 80}" y="31" width="3" height="14"/><text x="{LEFT + 90}" y="42">best peer on the same card</text>')
    for quarter in range(5):
        at = x(quarter / 4)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 4}" y2="{height - 28}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - 12}" text-anchor="middle">{25 * quarter} %</text>')
    for i, row in enumerate(drawn):
        top = TOP + ROW * i
        parts.append(f'<text x="{LEFT - 10}" y="{top + 14}" text-anchor="end">{escape(row["name"].removeprefix("kernel-"))}</text>')
        end = x(share_of_limit(row, row["value"]))
        parts.append(f'<rect class="ours" x="{LEFT}" y="{top + 4}" width="{end - LEFT:.1f}" height="12" rx="2"/>')
        peer = share_of_limit(row, row.get("peer"))
        if peer is not None:
            parts.append(f'<rect class="peer" x="{x(peer) - 1.5:.1f}" y="{top + 1}" width="3" height="18"/>')
        parts.append(f'<text class="value" x="{WIDTH - RIGHT + 12}" y="{top + 14}">{row["value"]:,g} {escape(row["unit"].removeprefix("output ").split()[0])}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def table(heading: str, svg: str, rows: list[dict]) -> str:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,g}"

    lines = [heading, "", f"![share of the machine's limit that each figure reaches]({svg})", ""]
    lines += ["| figure | value | unit | limit | share | best peer | what it ran, and when | command | date |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        share = share_of_limit(row, row["value"])
        cells = [row["name"], number(row["value"]), row["unit"], number(row.get("limit")), "-" if share is None else f"{100 * share:.0f} %",
                 number(row.get("peer")), row.get("peer_of", "-"), f"`{row['command']}`", row["date"]]
        lines.append("| " + " | ".join(cells) + " |")
    notes = [fill(f"- {row['name']}: {row['note']}", NOTE_WIDTH, subsequent_indent="  ", break_on_hyphens=False) for row in rows if row.get("note")]
    return "\n".join(lines + ([""] + notes if notes else [])) + "\n"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = Path(sys.argv[1])
    rows = json.loads(source.read_text(encoding="utf-8"))
    title = f"Share of the machine's limit, {source.stem.upper()}"
    kernels = [row for row in rows if row["name"].startswith("kernel-")]
    figures = [row for row in rows if row not in kernels]
    page = "Made from the JSON file beside it by `tools/generate/benchmark_picture.py`. The limit is what the card's measured rates allow."
    page = f"# {title}\n\n{page}\n"
    for part, heading, suffix in ((figures, "## Figures", ""), (kernels, "## Kernels alone", "_kernels")):
        if not part:
            continue
        svg = source.with_name(f"{source.stem}{suffix}.svg")
        svg.write_text(picture(title, part), encoding="utf-8")
        page += "\n" + table(heading, svg.name, part)
    source.with_suffix(".md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
