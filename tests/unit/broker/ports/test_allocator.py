"""The allocator returns freed memory to the system, whatever was freed before."""

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, sys
from ottla.broker.ports.machine import MAPPED_BYTES, return_freed_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
if not hasattr(libc, "mallinfo2"):
    sys.exit("no glibc")
libc.mallinfo2.restype = Info
if sys.argv[1] == "told":
    assert return_freed_memory()
for _ in range(3):
    bytes(20_000_000)  # a mapping that is freed: glibc takes all up to its size for small from here on
before = libc.mallinfo2().hblkhd
kept = bytes(2 * MAPPED_BYTES)
print(libc.mallinfo2().hblkhd > before)
"""


def has_mapping(told):
    """Return whether a large block has its own mapping after a larger one was freed."""
    found = subprocess.run([sys.executable, "-c", SCRIPT, told], capture_output=True, text=True)
    if found.stderr.strip() == "no glibc":
        pytest.skip("no glibc")
    assert found.returncode == 0, found.stderr
    return found.stdout.strip() == "True"


def test_a_large_block_has_its_own_mapping_after_a_larger_one_was_freed():
    assert has_mapping("told")
    assert not has_mapping("untold"), "glibc's own habit, without which there is nothing to tell it"
