"""slime.rollout.buffer_*, by the names that published scripts have for them."""
