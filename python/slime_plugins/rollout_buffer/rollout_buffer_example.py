"""`--rollout-function-path slime_plugins.rollout_buffer.rollout_buffer_example.generate_rollout`."""

from slime.rollout.buffer_rollout import generate_rollout

__all__ = ["generate_rollout"]
