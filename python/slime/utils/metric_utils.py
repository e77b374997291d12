"""The older name of slime.observability.metric_utils."""

from slime.observability.metric_utils import *  # noqa: F401,F403
from slime.observability.metric_utils import __all__  # noqa: F401
