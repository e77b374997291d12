"""The older name of what slime.utils.misc has."""

from slime.utils.misc import Box

__all__ = ["Box"]
