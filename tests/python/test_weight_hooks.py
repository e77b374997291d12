"""Hooks around an update of the weights: those that the rollout function's module has."""

import types

import pytest
from slime.host.calls import CALLS
from slime.host.hooks import resolve, resolve_all

HOST = types.SimpleNamespace(args=types.SimpleNamespace(name="args"))
PLAIN = """
seen = []

def rollout(args, rollout_id, data_source, evaluation=False):
    return []
"""


def call(path, moment):
    hook = resolve("weight_update", str(path))
    function, finish = CALLS["weight_update"](HOST, hook, {"moment": moment, "rollout_id": 3, "version": 4}, [])
    return hook, finish(function(), [])


def test_functions_of_the_module_get_what_they_name(tmp_path):
    path = tmp_path / "named.py"
    path.write_text(PLAIN + """
def before_weight_update(args):
    seen.append(args.name)

def after_weight_update(policy_version, **others):
    seen.append((policy_version, sorted(others)))
""")
    hook, answer = call(path, "before_weight_update")
    assert answer == {"is_there": True}
    _, answer = call(path, "after_weight_update")
    assert hook.function.__globals__["seen"][0] == "args"


def test_a_class_is_of_its_module_too(tmp_path):
    path = tmp_path / "of_a_class.py"
    path.write_text("""
seen = []

class rollout:
    def __call__(self, args, rollout_id, data_source, evaluation=False):
        return []

def after_weight_update():
    seen.append("after")
""")
    hook, answer = call(path, "after_weight_update")
    assert answer == {"is_there": True}
    assert hook.function.__call__.__globals__["seen"] == ["after"]


def test_a_module_without_them_is_as_it_was(tmp_path):
    path = tmp_path / "without.py"
    path.write_text(PLAIN)
    assert call(path, "before_weight_update")[1] == {"is_there": False}


def test_what_is_wrong_with_the_module_is_told_once(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import nothing_of_this_name")
    _, problems = resolve_all([{"hook": each, "path": str(path)} for each in ("rollout", "weight_update")])
    assert len(problems) == 1


def test_the_hook_behind_a_written_version_gets_its_folder(tmp_path):
    path = tmp_path / "written.py"
    path.write_text("""
def post_write(args, version_dir, rollout_engines):
    assert args.name == "args" and rollout_engines == []
    open(version_dir + "/seen", "w").close()
""")
    function, finish = CALLS["post_write"](HOST, resolve("post_write", str(path)), {"version_dir": str(tmp_path)}, [])
    assert finish(function(), []) == {}
    assert (tmp_path / "seen").exists()


@pytest.mark.parametrize("text", ["def post_write(args): pass", "post_write = 3"])
def test_a_hook_that_cannot_be_called_is_refused(tmp_path, text):
    path = tmp_path / "wrong.py"
    path.write_text(text)
    _, problems = resolve_all([{"hook": "post_write", "path": str(path)}])
    assert problems[0]["flag"] == "--custom-update-weight-post-write-path"
