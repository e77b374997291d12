"""The older name of slime.data.data_source."""

from slime.data.data_source import *  # noqa: F401,F403
from slime.data.data_source import __all__  # noqa: F401
