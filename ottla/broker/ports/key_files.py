"""Files with keys and certificates: the operator's, which are read, and those that OpenSSL is handed. shell"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from ottla import files


def read(name: str) -> bytes:
    """The content of a file; OSError."""
    return files.read(name)


def stamp(name: str) -> tuple[int, int]:
    """When a file was changed last, in ns, and its size; zeros if there is none to be seen."""
    try:
        status = Path(name).stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@contextmanager
def as_file(pem: str) -> Iterator[str]:
    """A file that only this user can read, for as long as OpenSSL reads it: it takes keys from files alone."""
    with NamedTemporaryFile("w", prefix="ottla-", suffix=".pem") as file:  # mode 0600
        file.write(pem)
        file.flush()
        yield file.name
