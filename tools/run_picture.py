#!/usr/bin/env python3
"""Draws the reward and the evaluations of runs as one SVG, for README and docs.

    python3 tools/run_picture.py OUT.svg RUN_DIR [RUN_DIR...]      # several runs: one line each, as for several seeds
"""

import json
import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 46, 16, 40, 34
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #5c6675; } .title { font-size: 14px; font-weight: 600; fill: #1b1f27; }
  .grid { stroke: #e3e6eb; } .reward { stroke: #2563eb; } .evaluation { stroke: #d97706; } .dot { fill: #d97706; }
  .key-reward { fill: #2563eb; } .key-evaluation { fill: #d97706; } path { fill: none; stroke-linejoin: round; }
  @media (prefers-color-scheme: dark) {
    text { fill: #a0a9b8; } .title { fill: #e6e9ee; } .grid { stroke: #2a303a; } .reward { stroke: #6ea8fe; }
    .evaluation { stroke: #f2a541; } .dot, .key-evaluation { fill: #f2a541; } .key-reward { fill: #6ea8fe; }
  }
"""


def read_run(run_dir: Path) -> tuple[list, list]:
    """(step, mean reward) of each step, and (steps done, score) of each evaluation's first set."""
    rewards, evaluations = [], []
    for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]:  # texts may have other line breaks
        row = json.loads(line)
        if row.get("rollout/raw_reward") is not None:
            rewards.append((row["step"], row["rollout/raw_reward"]))
        scores = [value for name, value in row.items() if name.startswith("eval/") and name.count("/") == 1 and "-" not in name]
        if scores:
            evaluations.append((row["step"], scores[0]))
    return rewards, evaluations


def picture(title: str, runs: list[tuple[list, list]]) -> str:
    last = max((step for rewards, evaluations in runs for step, _ in rewards + evaluations), default=1) or 1

    def x(step: float) -> float:
        return LEFT + step / last * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (1 - min(max(value, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)

    def path(points: list, kind: str, width: float) -> str:
        line = "L".join(f"{x(step):.1f} {y(value):.1f}" for step, value in points)
        return f'<path class="{kind}" stroke-width="{width}" d="M{line}"/>' if points else ""

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>']
    parts.append(f"<style>{STYLE}</style>")
    for tenth in (0, 25, 50, 75, 100):
        level = y(tenth / 100)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{tenth / 100:g}</text>')
    for fifth in range(6):
        step = round(last * fifth / 5)
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 12}" text-anchor="middle">{step}</text>')
    for rewards, evaluations in runs:
        parts.append(path(rewards, "reward", 1.6))
        parts.append(path(evaluations, "evaluation", 2))
        parts += [f'<circle class="dot" cx="{x(step):.1f}" cy="{y(value):.1f}" r="3"/>' for step, value in evaluations]
    parts.append(f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>')
    for right, kind, label in ((250, "reward", "mean reward"), (140, "evaluation", "held-out accuracy")):
        parts.append(f'<rect class="key-{kind}" x="{WIDTH - right}" y="13" width="10" height="10" rx="3"/>')
        parts.append(f'<text x="{WIDTH - right + 15}" y="22">{label}</text>')
    return "\n".join(part for part in parts if part) + "\n</svg>\n"


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    run_dirs = [Path(argument) for argument in sys.argv[2:]]
    title = f"{run_dirs[0].name}, reward and accuracy over steps" + (f" ({len(run_dirs)} runs)" if len(run_dirs) > 1 else "")
    Path(sys.argv[1]).write_text(picture(title, [read_run(run_dir) for run_dir in run_dirs]), encoding="utf-8")


if __name__ == "__main__":
    main()
