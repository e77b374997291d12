"""The older name of slime.observability.timer."""

from slime.observability.timer import *  # noqa: F401,F403
from slime.observability.timer import __all__  # noqa: F401
