"""CRC32C without the rest of its package, which imports an argument parser and the metadata of packages. pure"""

from collections.abc import Callable
from typing import Final

from ottla.deferred import defer_package

defer_package("crc32c")

import crc32c._crc32c as _crc32c  # noqa: E402 -- the package must be deferred before

crc32c: Final[Callable[..., int]] = _crc32c.crc32c
"""Returns the CRC32C of bytes, or with a second argument that of bytes after others with this one."""
