"""What users' functions do wrong, and what the program is told of it."""

import time

import pytest
from host_driver import records
from slime.host import hooks
from slime.utils.types import Sample
from test_host import HERE, HostProcess, host, one_record


def failure(name, call=None, hook="reward"):
    record, columns = one_record(index=3)
    with host((hook, name)) as h:
        answer = h.call({"sample": record, **(call or {})}, columns)
        assert "value" not in answer
        return answer["error"]


def test_an_exception_has_the_users_frames_only():
    error = failure("raises")
    assert error["type"] == "KeyError" and error["message"] == "3"
    assert error["place"].startswith(str(HERE / "plugins.py:"))
    assert "in raises" in error["traceback"] and "in helper" in error["traceback"]
    assert "slime/host" not in error["traceback"] and "asyncio" not in error["traceback"]


@pytest.mark.parametrize(
    "name, message",
    [
        ("returns_nan", "nan; it is a finite number"),
        ("returns_text", "str; it is a number"),
        ("returns_object", "object cannot be told"),
    ],
)
def test_wrong_rewards(name, message):
    assert message in failure(name)["message"]


def test_a_wrong_reward_has_the_place_of_its_function():
    place = failure("returns_text")["place"]
    file, line = place.rsplit(":", 1)
    assert file == str(HERE / "plugins.py")
    assert "def returns_text" in (HERE / "plugins.py").read_text().splitlines()[int(line) - 1]


def test_wrong_number_of_rewards():
    group, columns = records([Sample(index=i) for i in range(3)])
    with host(("reward", "returns_few")) as h:
        assert h.call({"samples": group}, columns)["error"]["message"] == "1 rewards for 3 samples"


@pytest.mark.parametrize("name, message", [("generates_nothing", "a list of nothing"), ("generates_rubbish", "tokens")])
def test_wrong_samples(name, message):
    assert message in failure(name, {"sampling_params": {}}, hook="generate")["message"]


def test_one_wrong_answer_does_not_take_its_frame_along():
    record, columns = one_record(response="a", label="a")
    with host(("reward", "reward"), ("reward", "returns_object")) as h:
        answers = h.finish(h.begin([{"hook": hook, "sample": record} for hook in (0, 1, 0)], columns))
        assert ["value" in answer for answer in answers] == [True, False, True]


def test_a_late_call_is_cancelled_and_others_go_on():
    record, columns = one_record(response="a", label="a")
    with host(("reward", "sleeps"), ("reward", "reward")) as h:
        start = time.monotonic()
        late, good = h.finish(h.begin([{"sample": record, "seconds": 0.2}, {"hook": 1, "sample": record}], columns))
        assert late["error"]["type"] == "TimeoutError" and good["value"]["reward"] == 1
        assert time.monotonic() - start < 5


def test_cancel_by_id_and_all():
    record, columns = one_record()
    with host(("reward", "sleeps")) as h:
        first, second, third = h.begin([{"sample": record} for _ in range(3)], columns)
        h.cancel(ids=[second])
        assert h.finish([second])[0]["error"]["type"] == "CancelledError"
        h.cancel(ids="all")
        assert len(h.finish([first, third])) == 2


def test_an_abort_is_seen_by_generate_functions_which_answer_themselves():
    record, columns = one_record()
    with host(("generate", "until_aborted")) as h:
        ids = h.begin([{"sample": record, "sampling_params": {}}], columns)
        h.wait_until(lambda: len(h.beats) >= 1)
        h.cancel(aborted=True)
        assert h.finish(ids)[0]["value"]["sample"]["status"] == "aborted"


def test_an_abort_cancels_functions_that_want_it_and_their_samples_keep_what_they_have():
    record, columns = one_record()
    with host(("generate", "until_cancelled")) as h:
        ids = h.begin([{"sample": record, "sampling_params": {}} for _ in range(2)], columns)
        h.wait_until(lambda: len(h.beats) >= 1)
        h.cancel(ids=[ids[0]])
        assert h.finish([ids[0]])[0]["error"]["type"] == "CancelledError"
        h.cancel(aborted=True)
        sample = h.finish([ids[1]])[0]["value"]["sample"]
        assert sample["status"] == "aborted" and sample["response"].endswith("a")


def test_the_beat_stands_still_while_the_loop_is_blocked():
    record, columns = one_record()
    with host(("reward", "blocks")) as h:
        ids = h.begin([{"sample": record}], columns)
        h.finish(ids)
        h.wait_until(lambda: len(h.beats) >= 4)
        assert any(before == after for before, after in zip(h.beats, h.beats[1:]))


def test_exit_is_an_error_and_death_is_seen():
    assert failure("exits")["type"] == "SystemExit"
    record, columns = one_record()
    with host(("reward", "dies")) as h:
        with pytest.raises(EOFError):
            h.call({"sample": record}, columns)
        assert h.process.wait(5) == 9


def test_what_is_printed_goes_to_standard_output():
    record, columns = one_record()
    with host(("reward", "prints")) as h:
        h.call({"sample": record}, columns)
    assert "printed by a reward" in h.output and h.process.returncode == 0


def test_args_say_which_flag_is_missing(tmp_path):
    (tmp_path / "p.py").write_text("async def f(args, sample): return args.max_turns\n")
    record, columns = one_record()
    with HostProcess([("reward", "p.f")], tmp_path) as h:
        error = h.call({"sample": record}, columns)["error"]
        assert "no flag --max-turns" in error["message"]
        assert error["place"].endswith("p.py:1"), error["place"]
    with HostProcess([("reward", "p.f")], tmp_path, flags={"max_turns": 3}) as h:
        assert h.call({"sample": record}, columns)["value"] == {"reward": 3}


@pytest.mark.parametrize("head", ["response, label", "completions, label=None", "prompt, response"])
def test_a_form_for_another_caller_is_refused(tmp_path, head):
    """Called with (args, sample) it would compare the flags with a sample, and score 0."""
    path = tmp_path / "own.py"
    path.write_text(f"def reward({head}): return 1.0\n")
    with pytest.raises(hooks.HookError, match=r"its first parameter is named \w+, but it is called with \(args, sample\)"):
        hooks.resolve("reward", str(path))
