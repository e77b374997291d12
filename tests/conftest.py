"""Tests that take long and repeat at random instants what others check at fixed ones run with --nightly (./dev test nightly).
None begins after SLIME_TEST_END (seconds since 1970; ./dev sets it by SLIME_TEST_MINUTES)."""

import os
import signal
import time

import pytest


def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly too")


def pytest_configure(config):
    config.addinivalue_line("markers", "nightly: long; runs with --nightly alone")
    # A shell that starts this behind itself has it ignored, and so would each program that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    if config.getoption("--nightly"):
        return
    for item in items:
        if "nightly" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="a nightly test: ./dev test nightly"))


def pytest_runtest_setup(item):
    end = os.environ.get("SLIME_TEST_END")
    if end and time.time() > float(end):
        pytest.skip(f"the {os.environ.get('SLIME_TEST_MINUTES', '')} minutes of SLIME_TEST_MINUTES were over")


@pytest.fixture
def nightly(request):
    """Whether long forms of a test are wanted."""
    return request.config.getoption("--nightly")
