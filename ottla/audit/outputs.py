"""Outputs for tables, exports and reports: local disks, or any URI that `pyarrow.fs` takes. shell

A folder contains UNFINISHED while a run writes to it, and SUCCESS after the run. A file appears when it is complete: a
file has another name until then where files can be renamed; an object of a store appears only when it is closed.
"""

import errno
import json
import os
import platform
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.scan import storage
from ottla.scan.listing import storage_path

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

T = TypeVar("T")

PARQUET, JSON, DELTA = "parquet", "json", "delta"
SUCCESS, UNFINISHED = "_SUCCESS", "_UNFINISHED"
# Arrow's names of the stores where a rename is a copy, and an object exists only after it is closed.
_OBJECT_STORES = ("s3", "gcs", "abfs")


class OutputFailed(OSError):
    """An output cannot be written; the text is one line."""


class Folder(NamedTuple):
    """A folder that a run writes to. The token in UNFINISHED distinguishes it from one on another machine."""

    path: str
    token: str

    def below(self, *names: str) -> str:
        """Return the path of an entry of the folder."""
        path = self.path
        for name in names:
            path = storage.join(path, name)
        return path


class Tables(NamedTuple):
    """The folder of tables, and their format. Small, because tasks receive it."""

    folder: Folder
    form: str

    @property
    def file_form(self) -> str:
        """Format of the files: a Delta table has Parquet files."""
        return PARQUET if self.form == DELTA else self.form

    def file(self, table: str, name: str) -> "TableFile":
        return TableFile(self.folder.below(table, f"{name}.{self.file_form}"), self.file_form)


def absolute(given: str) -> str:
    """Return an absolute path, which is the same for every process of this machine; return a URI unchanged."""
    path = storage_path(given)
    return path if storage.is_remote(path) else str(Path(path).absolute())


@contextmanager
def writing(
    given: str, what: str, is_ours: Callable[[str], bool], *, overwrite: bool, alone: bool = True
) -> Iterator[Folder]:
    """Open the folder of a run, which is complete when the block ends; if the block fails, delete its entries.

    `what` names the folder in error texts. `is_ours`: whether a run writes an entry of this name; `alone`: whether the
    folder must have no other entries. Entries of an earlier run are deleted only with `overwrite`. Raises OutputFailed.
    """
    folder = Folder(absolute(given), uuid.uuid4().hex)
    label = f"{what}{storage.hide_secrets(folder.path)}"
    with _report_errors(label):
        _empty(folder.path, label, is_ours, overwrite=overwrite, alone=alone)
        write(folder.below(UNFINISHED), f"{folder.token}\n".encode())
    try:
        yield folder
        write(folder.below(SUCCESS), b"")
    except BaseException:
        with suppress(OSError):
            for entry in _entries(folder.path):
                if is_ours(entry.name):
                    _delete(storage.join(folder.path, entry.name), is_directory=entry.is_directory)
            _delete(folder.below(UNFINISHED), is_directory=False)
        raise
    with suppress(OSError):
        _delete(folder.below(UNFINISHED), is_directory=False)


def check_outside(given: str, what: str, log_directories: Iterable[str]) -> None:
    """Refuse an output in a log directory: Kafka would take it for a partition and not start. Raises OutputFailed."""
    path = absolute(given)
    for directory in map(absolute, log_directories):
        if storage.is_remote(path) or storage.is_remote(directory):
            continue
        if Path(path).resolve().is_relative_to(Path(directory).resolve()):
            raise OutputFailed(f"{what}{path} is in the log directory {directory} of a broker: name another")


def check_here(folder: Folder) -> None:
    """Check, in a task, that a local path is not another folder on another machine. Raises OutputFailed."""
    if storage.is_remote(folder.path):
        return
    with suppress(OSError):
        if storage.read(folder.below(UNFINISHED)).decode(errors="replace").strip() == folder.token:
            return
    raise OutputFailed(
        f"{folder.path} on {platform.node()} is not the folder that the driver created: "
        "name one on a disk that all machines share, or a URI such as s3://BUCKET/FOLDER"
    )


def clear(path: str) -> None:
    """Delete a folder in the output, if it exists. Raises OutputFailed."""
    with _report_errors(storage.hide_secrets(path)):
        filesystem, place = storage.locate(path)
        storage.translate_errors(path, lambda: filesystem.delete_dir_contents(place, missing_dir_ok=True))


def holds_files(path: str) -> bool:
    """Return whether the folder has any entry. Raises OSError."""
    return bool(_entries(path))


@contextmanager
def new_file(path: str) -> Iterator[Any]:
    """Open an Arrow stream to write to. The file exists after the block has ended, and not if the block fails.

    Arrow cannot abandon an object that was begun: a failed object is closed and deleted at once. Raises OutputFailed.
    """
    with _report_errors(storage.hide_secrets(path)):
        filesystem, place = storage.locate(path)
        folder, _, name = place.rpartition("/")
        appears = filesystem.type_name in _OBJECT_STORES
        # Spark reads no file that begins with an underscore.
        written = place if appears else f"{folder}/_{name}"
        if not appears:
            storage.translate_errors(path, lambda: filesystem.create_dir(folder or "/", recursive=True))
        stream = storage.translate_errors(path, lambda: filesystem.open_output_stream(written))
    try:
        yield stream
        with _report_errors(storage.hide_secrets(path)):
            storage.translate_errors(path, stream.close)
            if not appears:
                storage.translate_errors(path, lambda: filesystem.move(written, place))
    except BaseException:
        for undo in (stream.close, lambda: filesystem.delete_file(written)):
            with suppress(OSError):
                undo()
        raise


def write(path: str, content: bytes) -> None:
    """Write a whole file in place of an earlier one; write to devices such as /dev/stdout. Raises OutputFailed."""
    if not storage.is_remote(path) and Path(path).exists() and not Path(path).is_file():
        with _report_errors(storage.hide_secrets(path)):
            Path(path).write_bytes(content)
        return
    with new_file(path) as stream:
        _write(path, lambda: stream.write(content))


def check_file(path: str, label: str) -> None:
    """Check that a file can be written, before the work for its content begins. Raises OutputFailed.

    A missing folder is probably misspelt: it is not created.
    """
    if not storage.is_remote(path) and not Path(path).parent.exists():
        raise OutputFailed(f"{label}: there is no folder {Path(path).parent}")
    if storage.is_remote(path) or not Path(path).exists():
        # Do not open the file itself: an earlier report stays if this run fails.
        probe = storage.join(storage.parent(path), f"_{storage.name_of(path)}.unfinished")
        with _report_errors(label):
            write(probe, b"")
        with suppress(OSError):
            _delete(probe, is_directory=False)
    elif Path(path).is_dir() or not os.access(path, os.W_OK):
        raise OutputFailed(f"{label}: {'Is a directory' if Path(path).is_dir() else 'Permission denied'}")


class TableFile:
    """A file of a table, Parquet or JSON lines, which is created with the first rows: without rows no file is created.

    Use it in a `with`; an error inside leaves no file. `options` are those of Arrow's ParquetWriter.
    """

    def __init__(self, path: str, form: str, options: Mapping[str, Any] | None = None) -> None:
        self._path = path
        self._form = form
        self._options = options or {}
        self._file: Any = None
        self._stream: Any = None
        self._writer: Any = None

    def __enter__(self) -> "TableFile":
        return self

    def add(self, rows: "pa.Table | pa.RecordBatch") -> None:
        """Write rows, which have the schema of the first rows, as a separate row group. Raises OutputFailed."""
        import pyarrow as pa

        if self._file is None:
            self._file = new_file(self._path)
            self._stream = self._file.__enter__()
        if self._form == JSON:
            lines = "".join(json.dumps(row, default=_text) + "\n" for row in rows.to_pylist())
            _write(self._path, lambda: self._stream.write(lines.encode()))
            return
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        _write(self._path, lambda: self._parquet(table.schema).write_table(table, row_group_size=max(1, len(table))))

    def _parquet(self, schema: "pa.Schema") -> Any:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, schema, **self._options)
        return self._writer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        if self._file is None:
            return
        try:
            if self._writer is not None:
                # Close it also if the file is abandoned: an open writer would close itself later, and fail.
                _write(self._path, self._writer.close)
        except OutputFailed as failed:
            if error is None:
                self._file.__exit__(type(failed), failed, failed.__traceback__)
                raise
        self._file.__exit__(kind, error, trace)


def _text(value: Any) -> str:
    """Return the text of a value that JSON has no type for: a time."""
    return str(value.isoformat())


def _empty(path: str, label: str, is_ours: Callable[[str], bool], *, overwrite: bool, alone: bool) -> None:
    entries = _entries(path)
    kept = [one for one in entries if one.name not in (SUCCESS, UNFINISHED)]
    found = [one for one in entries if one not in kept or is_ours(one.name)]
    others = [one for one in kept if not is_ours(one.name)]
    if others and alone:
        raise OutputFailed(f"{label} is not empty, and {others[0].name} is not of ottla: name another folder")
    if not found:
        return
    if not overwrite:
        ended = any(one.name == SUCCESS for one in found)
        why = "is not empty" if ended else "has the output of a run that did not finish, or still runs"
        raise OutputFailed(f"{label} {why}: --overwrite replaces it")
    # SUCCESS, which marks the output as complete, is deleted first.
    for entry in sorted(found, key=lambda one: one.name != SUCCESS):
        _delete(storage.join(path, entry.name), is_directory=entry.is_directory)


def _entries(path: str) -> list[storage.Entry]:
    try:
        return storage.entries(path)
    except FileNotFoundError:
        return []


def _delete(path: str, *, is_directory: bool) -> None:
    filesystem, place = storage.locate(path)
    storage.translate_errors(path, lambda: (filesystem.delete_dir if is_directory else filesystem.delete_file)(place))


def _write(path: str, do: Callable[[], object]) -> None:
    with _report_errors(storage.hide_secrets(path)):
        storage.translate_errors(path, do)


@contextmanager
def _report_errors(label: str) -> Iterator[None]:
    """Raise errors with a text of one line that begins with `label`, also if a file in the folder failed."""
    try:
        yield
    except OSError as error:
        cause = error.__cause__ if isinstance(error, OutputFailed) else error
        if not isinstance(cause, OSError):
            raise
        # A file has the path of the folder.
        why = os.strerror(errno.ENOTDIR) if cause.errno == errno.EEXIST else cause.strerror
        raise OutputFailed(f"{label}: cannot be written: {why}") from cause
