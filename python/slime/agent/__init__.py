"""The agent kit: endpoints that agents speak to, trajectories of exact tokens, sandboxes, harnesses."""
