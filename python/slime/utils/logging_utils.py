"""The older name of slime.observability.logging_utils."""

from slime.observability.logging_utils import *  # noqa: F401,F403
from slime.observability.logging_utils import __all__  # noqa: F401
