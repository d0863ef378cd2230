"""Freed memory is kept by the commands that train or measure, and by nothing else."""

import subprocess
import sys


def test_the_allocator_can_be_told_and_importing_does_not_tell_it():
    program = (
        "import ctypes, regard.api\n"
        "from regard.training import malloc\n"
        "told = []\n"
        "malloc.ctypes = type('Spy', (), {'CDLL': staticmethod(lambda name: type('C', (), {"
        "'mallopt': staticmethod(lambda *given: told.append(given) or 1)})), 'util': ctypes.util})\n"
        "before = list(told)\n"
        "assert malloc.keep_freed_memory() is True\n"
        "assert before == [] and sorted(name for name, _ in told) == [-3, -2, -1], told\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
