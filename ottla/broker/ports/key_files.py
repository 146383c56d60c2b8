"""Files with keys and certificates: the operator's, which are read, and temporary ones for OpenSSL. shell"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from ottla import files


def read(name: str) -> bytes:
    """Return the content of a file. Raises OSError."""
    return files.read(name)


def stamp(name: str) -> tuple[int, int]:
    """Return (modification time in ns, size in bytes) of a file; zeros if it cannot be read."""
    try:
        status = Path(name).stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@contextmanager
def as_file(pem: str) -> Iterator[str]:
    """Write a temporary file that only this user can read: OpenSSL takes keys from files only."""
    with NamedTemporaryFile("w", prefix="ottla-", suffix=".pem") as file:  # mode 0600
        file.write(pem)
        file.flush()
        yield file.name
