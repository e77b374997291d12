"""Older names of what is elsewhere now; of the original's actors nothing is here (slime.absent)."""
