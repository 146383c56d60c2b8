"""CRC32C without the rest of its package, which imports an argument parser and the metadata of packages. pure"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

from ottla.deferred import defer_package

defer_package("crc32c")

crc32c: Final[Callable[..., int]] = import_module("crc32c._crc32c").crc32c
"""Returns the CRC32C of bytes, or with a second argument that of bytes after others with this one."""
