"""Parts of your own, outside the package: a file named by `--plugin`, or an installed package's entry point.

A plugin is Python that registers something when it is imported: a mechanism, a network, a task, a similarity.

    # mine.py                                       # pyproject.toml of an installed package
    regard.register_mechanism(MyShape)              [project.entry-points."regard.plugins"]
                                                    mine = "mine"

Files that were named are named to processes begun from here as well, by the environment variable REGARD_PLUGINS.
"""

import os
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from regard.errors import FileError, RegardError

GROUP = "regard.plugins"
VARIABLE = "REGARD_PLUGINS"


def load_plugin(path: str | Path) -> None:
    """Run this Python file, once, so that what it registers is known here and in processes begun from here."""
    file = Path(path).expanduser().resolve()
    name = f"regard_plugin_{file.stem}_{abs(hash(str(file)))}"
    if name in sys.modules:
        return
    if not file.is_file() or file.suffix != ".py":
        raise FileError(f"{path} is not a Python file", "give the .py file that registers your parts")
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except RegardError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:  # whatever a file of somebody's raises
        del sys.modules[name]
        raise FileError(f"{path} does not run: {type(error).__name__}: {error}", "correct it") from error
    named = [one for one in os.environ.get(VARIABLE, "").split(os.pathsep) if one]
    if str(file) not in named:
        os.environ[VARIABLE] = os.pathsep.join([*named, str(file)])


@cache
def load_plugins() -> None:
    """Whatever was named to the process this one was begun from, and every installed entry point; once."""
    for path in os.environ.get(VARIABLE, "").split(os.pathsep):
        if path:
            load_plugin(path)
    for found in entry_points(group=GROUP):
        try:
            found.load()
        except RegardError:
            raise
        except Exception as error:
            raise FileError(
                f"plugin {found.name!r} ({found.value}) does not load: {type(error).__name__}: {error}",
                "correct it, or uninstall its package",
            ) from error
