"""What `./dev test` says at its end."""

import subprocess
import sys

from conftest import ROOT

GOOGLETEST = """<testsuites tests="4" failures="1"><testsuite name="A">
<testcase name="Passes" status="run" result="completed" classname="A" />
<testcase name="Fails" status="run" result="completed" classname="A"><failure message="x" type=""/></testcase>
<testcase name="NeedsAGpu" status="run" result="skipped" classname="A"><skipped message="src/a_test.cpp:12&#x0A;no NVIDIA GPU"/></testcase>
<testcase name="DISABLED_Never" status="notrun" result="suppressed" classname="A" />
</testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="test_a" name="test_passes" />
<testcase classname="test_a" name="test_gpu"><skipped type="pytest.skip" message="no NVIDIA GPU">test_a.py:3: no NVIDIA GPU</skipped></testcase>
<testcase classname="test_a" name="test_mount"><skipped type="pytest.skip" message="nothing can be mounted">test_a.py:9</skipped></testcase>
<testcase classname="test_a" name="test_setup"><error message="failed on setup">x</error></testcase>
</testsuite></testsuites>"""


def summary(tmp_path, status, *reports):
    for number, report in enumerate(reports):
        (tmp_path / f"{number}.xml").write_text(report)
    files = [tmp_path / f"{number}.xml" for number in range(max(1, len(reports)))]
    done = subprocess.run([sys.executable, ROOT / "tools" / "build" / "test_summary.py", str(status), *files], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def test_the_last_line_counts_all_and_those_before_say_why_tests_were_skipped(tmp_path):
    code, lines = summary(tmp_path, 1, GOOGLETEST, PYTEST)
    assert code == 1
    assert lines == ["skipped 2: no NVIDIA GPU", "skipped 1: nothing can be mounted", "2 passed, 2 failed, 3 skipped"]


def test_only_passed_tests_are_a_success(tmp_path):
    passing = '<testsuites><testsuite><testcase name="Passes" status="run"/></testsuite></testsuites>'
    assert summary(tmp_path, 0, passing) == (0, ["1 passed, 0 failed, 0 skipped"])
    assert summary(tmp_path, 0, "<testsuites></testsuites>") == (1, ["0 passed, 0 failed, 0 skipped"])


def test_a_program_that_crashed_counts_as_a_failure(tmp_path):
    passing = '<testsuites><testsuite><testcase name="Passes" status="run"/></testsuite></testsuites>'
    assert summary(tmp_path, 1, passing) == (1, ["1 passed, 1 failed, 0 skipped"])
    (tmp_path / "0.xml").unlink()
    code, lines = summary(tmp_path, 134)
    assert code == 1
    assert lines == ["0.xml is missing: the program that writes it ended before", "0 passed, 1 failed, 0 skipped"]
