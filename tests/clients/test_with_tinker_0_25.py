"""The tests of test_with_tinker.py with the oldest version of the client that sends Protocol Buffers."""

from test_with_tinker import *  # noqa: F403
