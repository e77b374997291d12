"""A rollout function that generates nothing: the run stays up, its engines can be asked."""

import time

__all__ = ["sleep"]


def sleep(args, rollout_id, data_source, evaluation=False):
    while True:
        time.sleep(3600)
