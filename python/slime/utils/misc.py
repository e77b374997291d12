"""Loading users' functions by their paths, and small things that user code imports."""

import importlib
import importlib.util
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from slime.utils.int_arrays import find_int32

__all__ = ["load_function", "SingletonMeta", "exec_command", "get_free_port", "should_run_periodic_action"]


def decode_int32_meta_array(meta_info, keys):
    """The array of an engine's meta_info as a torch tensor; None without one."""
    numbers = find_int32(meta_info, keys)
    if numbers is None:
        return None
    import torch

    return torch.tensor(numbers, dtype=torch.int32)


@lru_cache(maxsize=None)
def load_function(path):
    """`package.module.name` (split at the last dot) or `folder/file.py:name`. Each is imported once."""
    if path.endswith(".py") or ".py:" in path:
        file, _, name = path.rpartition(":") if ".py:" in path else (path, "", "")
        if not name:
            raise ValueError(f"{path}: name the function, as in {path}:my_function")
        module = load_file(file)
    else:
        module_path, _, name = path.rpartition(".")
        if not module_path:
            raise ValueError(f"{path!r} is neither package.module.name nor file.py:name")
        module = importlib.import_module(module_path)
    return getattr(module, name)


@lru_cache(maxsize=None)
def load_file(file):
    """The module that a file makes; its folder can be imported from, as when Python runs it."""
    resolved = Path(file).expanduser().resolve()
    if not resolved.is_file():
        raise FileNotFoundError(f"{file}: no such file (looked in {Path.cwd()})")
    if str(resolved.parent) not in sys.path:
        sys.path.append(str(resolved.parent))
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if origin and module.__name__ != "__main__" and os.path.realpath(origin) == str(resolved):
            return module
    name = resolved.stem if resolved.stem not in sys.modules else f"{resolved.stem}_{abs(hash(str(resolved))):x}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class SingletonMeta(type):
    """Classes with one object each: the first call makes it, later ones return it whatever their arguments."""

    _instances = {}

    def __call__(cls, *args, **kwargs):
        if cls not in cls._instances:
            cls._instances[cls] = super().__call__(*args, **kwargs)
        return cls._instances[cls]

    def clear_instances(cls):
        """Forgets the objects of all such classes."""
        SingletonMeta._instances.clear()


def exec_command(cmd, capture_output=False):
    """Runs a line of bash; its output when asked for. Throws CalledProcessError when it fails."""
    print(f"EXEC: {cmd}", flush=True)
    done = subprocess.run(["bash", "-c", cmd], check=True, capture_output=capture_output, text=True)
    return done.stdout if capture_output else None


def get_current_node_ip():
    from slime.utils.http_utils import get_host_info

    return get_host_info()[1]


def get_free_port(start_port=10000, consecutive=1):
    """The first port of `consecutive` free ones, from `start_port` on."""
    from slime.utils.http_utils import is_port_available

    port = start_port
    while port + consecutive <= 65536:
        if all(is_port_available(port + i) for i in range(consecutive)):
            return port
        port += 1
    raise OSError(f"no {consecutive} free ports in a row from {start_port} on")


def should_run_periodic_action(rollout_id, interval, num_rollout_per_epoch=None, num_rollout=None):
    """Whether what is due every `interval` steps, at an epoch's end and at the last step, is due behind this one."""
    if interval is None:
        return False
    step = rollout_id + 1
    return (
        step == num_rollout
        or step % interval == 0
        or (num_rollout_per_epoch is not None and step % num_rollout_per_epoch == 0)
    )


class Box:
    """A value that is handed around without being looked into."""

    def __init__(self, inner):
        self._inner = inner

    @property
    def inner(self):
        return self._inner


def group_by(iterable, key=None):
    """Lists of items by key, in the order of their first one."""
    groups = {}
    for item in iterable:
        groups.setdefault(item if key is None else key(item), []).append(item)
    return groups
