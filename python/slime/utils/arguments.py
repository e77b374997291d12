"""Flags in a script of one's own: `parse_args` reads and checks a command line as the program does.

Scripts for THUDM/slime begin with `args = parse_args(add_my_arguments)` and go on with `train(args)` of train.py. Both work;
the run itself is the program. Attributes that the script sets in between count, and functions of the user's see them in `args`.
"""

import argparse
import atexit
import contextlib
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from slime.host.arguments import Arguments, make_arguments
from slime.program import find_program, program_environment

__all__ = ["ParsedArguments", "get_slime_extra_args_provider", "parse_args", "run_program"]

_OF_THE_PROGRAM = ("slime_validate_args", "hf_validate_args", "sglang_validate_args", "validate_args", "parse_megatron_role_args")
_TYPES = {"integer": int, "number": float, "text": str}
_REFUSED = 2


def __getattr__(name):
    if name in _OF_THE_PROGRAM:
        raise ImportError(f"{name} of THUDM/slime is not here: the program checks the flags; parse_args() gives what it makes of them")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ParsedArguments(Arguments):
    """What `parse_args` returns: all flags of a run, and the script's own arguments."""

    __slots__ = ("_words", "_of_program", "_as_parsed")

    def _command_words(self):
        """The words of a command line that says what this namespace says now."""
        words, own = list(self._words), {}
        for name, value in vars(self).items():
            if name not in self._of_program:
                own[name] = value
            elif value != self._as_parsed.get(name):
                from slime.loop.flags import flag_words

                flag = "--" + name.replace("_", "-")
                words = [*_without(words, flag), *flag_words({name: value})]
        return _with_own(words, own) if own else words


def parse_args(add_custom_arguments=None, *, return_restore_plan=False):
    """The command line of this script as `args`. `add_custom_arguments(parser)` adds arguments of the script's own.

    What a run would refuse ends the script with status 2 and the program's sentences. Where a run would go on is the program's
    business: the restore plan is None.
    """
    words, own = sys.argv[1:], {}
    if add_custom_arguments is not None:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        found, words = (add_custom_arguments(parser) or parser).parse_known_args(words)
        own = vars(found)
    words = ["--from-launch-script", *words]
    said = subprocess.run(
        [find_program(), "train", *words, "--dry-run", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
        check=False,
    )
    try:
        found = json.loads(said.stdout)
    except ValueError:  # --help, or a file of flags that cannot be read: the program has said it
        print(said.stdout, end="")
        sys.exit(said.returncode)
    for title, sentences in (("note", found["notes"]), ("not on this machine", found["not_here"]), ("refused", found["refusals"])):
        for sentence in sentences:
            print(f"slime: {title}: {sentence}", file=sys.stderr)
    if not found["begins"]:
        sys.exit(_REFUSED)
    made = vars(make_arguments(found["args"]))
    args = ParsedArguments(**{**made, **own})
    args._words = words
    args._of_program = frozenset(made) - frozenset(own)
    args._as_parsed = copy.deepcopy(made)
    return (args, None) if return_restore_plan else args


def get_slime_extra_args_provider(add_custom_arguments=None):
    """A function that adds all flags of `slime train` to a parser of argparse and returns it."""

    def add(parser):
        if add_custom_arguments is not None:
            parser = add_custom_arguments(parser) or parser
        said = subprocess.run([find_program(), "train", "--help-json"], stdout=subprocess.PIPE, env=_environment(), check=True)
        for flag in json.loads(said.stdout):
            if flag["name"] not in parser._option_string_actions:
                parser.add_argument(flag["name"], **_options(flag))
        return parser

    return add


def run_program(args, command="train"):
    """`slime train` with these arguments, until it has ended. An end with an error ends the script with its status."""
    words = args._command_words() if isinstance(args, ParsedArguments) else None
    if words is None:
        from slime.loop.flags import flag_words

        words = flag_words(args)
    process = subprocess.Popen([find_program(), command, *words], env=_environment())
    with _passed_on(process):
        status = process.wait()
    if status != 0:
        sys.exit(status if status > 0 else 128 - status)


@contextlib.contextmanager
def _passed_on(process):
    """Signals that ask this script to end go to the run, which saves what was trained. Ctrl-C reaches it by itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number, _):
        if number != signal.SIGINT or not sys.stdin.isatty():
            process.send_signal(number)

    before = {each: signal.signal(each, pass_on) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _options(flag):
    options = {"help": flag["meaning"].replace("%", "%%")}
    if flag["type"] == "switch":
        return {**options, "action": "store_true"}
    options.update(type=_TYPES[flag["type"]], default=flag["default"])
    if flag["choices"]:
        options["choices"] = flag["choices"]
    if flag["takes_several"]:
        options["nargs"] = "*"
    return options


def _environment():
    """Functions of the user's run in processes of the program's: they find what lies beside the script, too."""
    environment = dict(program_environment() or os.environ)
    places = [str(Path(__file__).resolve().parents[2]), os.path.abspath(sys.path[0] or ".") if sys.path else ""]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*places, environment.get("PYTHONPATH")]))
    return environment


def _without(words, flag):
    kept, is_inside = [], False
    for word in words:
        if word.startswith("--"):
            is_inside = word == flag
            if is_inside or word.startswith(flag + "="):
                continue
        if not is_inside:
            kept.append(word)
    return kept


def _with_own(words, own):
    """The script's own values go in a file of --custom-config-path, which keeps their types."""
    flag = "--custom-config-path"
    given = [i for i, word in enumerate(words) if word == flag]
    if given:
        own = {**_read_settings(words[given[-1] + 1]), **own}
    try:
        text = json.dumps(own)
    except TypeError as error:
        sys.exit(f"slime: an argument of the script's own cannot reach functions of other processes: {error}; set texts, numbers, lists")
    folder = tempfile.mkdtemp(prefix="slime-arguments-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "own.json"
    path.write_text(text)
    return [*_without(words, flag), flag, str(path)]


def _read_settings(path):
    text = Path(path).read_text()
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        import yaml
    except ImportError:
        sys.exit(f"slime: --custom-config-path {path} and arguments of the script's own: put one into the other, or install PyYAML")
    return yaml.safe_load(text) or {}
