"""Spans on samples; slime.observability.trace_utils has them."""

from slime.observability.trace_utils import *  # noqa: F401,F403
from slime.observability.trace_utils import __all__  # noqa: F401
