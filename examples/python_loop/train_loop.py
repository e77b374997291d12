#!/usr/bin/env python3
"""The loop of a run, to copy and edit. It takes the flags of `slime train`:

    python3 train_loop.py --hf-checkpoint MODEL --prompt-data FILE.jsonl --rm-type math ...
    python3 train_loop.py --train-async ...     # the engines generate while the trainer trains

Run again after a crash, it goes on behind the last checkpoint.
"""

import asyncio
import sys

import slime


def is_due(step: int, interval: int, num_steps: int) -> bool:
    return step + 1 == num_steps or (interval and (step + 1) % interval == 0)


async def synchronous(run: slime.Run) -> None:
    """Generate, train, publish, one after the other."""
    for step in run.steps:
        rollout = await run.generate(step)
        await run.train(rollout)
        await run.update_weights()
        await after_step(run, step)


async def asynchronous(run: slime.Run) -> None:
    """The same with one await moved: a step is sampled while the one before it is trained."""
    steps = run.steps
    ahead = run.generate() if steps else None
    for step in steps:
        rollout = await ahead
        if step + 1 in steps:
            ahead = run.generate(step + 1)
        await run.train(rollout)
        if (step + 1) % run.config.update_weights_interval == 0:
            await run.update_weights()
        await after_step(run, step)


async def after_step(run: slime.Run, step: int) -> None:
    if is_due(step, run.config.save_interval or 0, run.num_steps):
        await run.save(step)
    if run.config.eval_interval and is_due(step, run.config.eval_interval, run.num_steps):
        await run.evaluate(step)


async def main() -> None:
    async with await slime.astart(sys.argv[1:]) as run:
        if run.config.eval_interval and run.first_step == 0 and not run.config.skip_eval_before_train:
            await run.evaluate()
        await (asynchronous(run) if run.is_async else synchronous(run))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except slime.Error as error:
        sys.exit(f"train_loop.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
