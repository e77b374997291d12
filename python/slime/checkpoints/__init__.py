"""Files of other trainers: torch's pickles without torch, Megatron's torch_dist directories, rollout dumps."""
