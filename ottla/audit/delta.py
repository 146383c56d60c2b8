"""Make a Delta table of the Parquet files that tasks have written, by one commit of the driver. shell

This module writes only the log of the table, with delta-rs (the extra `delta`): it needs no jars, and executors need
no further packages.
"""

import importlib.util
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from ottla.audit.outputs import OutputFailed
from ottla.scan import storage

if TYPE_CHECKING:
    import pyarrow as pa

# Arrow's options of an S3 URI, as delta-rs calls them.
_NAMES = {"region": "AWS_REGION", "endpoint_override": "AWS_ENDPOINT_URL"}


def check(path: str) -> None:
    """Check that the folder can become a table, before its files are written. Raises OutputFailed."""
    if importlib.util.find_spec("deltalake") is None:
        raise OutputFailed("the format delta needs deltalake: pip install 'ottla[delta]'")
    if storage.is_remote(path):
        if urlsplit(path).scheme != "s3":
            raise OutputFailed(
                f"{storage.hide_secrets(path)}: the format delta is for local folders and s3://; use parquet"
            )
        _options(path)


def commit(path: str, schema: "pa.Schema", folders: Sequence[str] = (), *, has_files: bool = True) -> None:
    """Make the Parquet files below `path` a table. `folders`: the columns that folders name. Raises OutputFailed."""
    # delta-rs warns that binary columns get no statistics. No user needs the warning.
    os.environ.setdefault("RUST_LOG", "error")
    from deltalake import DeltaTable, convert_to_deltalake
    from deltalake import Schema as DeltaSchema
    from deltalake.exceptions import DeltaError

    fields = DeltaSchema.from_arrow(schema).fields
    options = _options(path)
    uri = path.partition("?")[0] if storage.is_remote(path) else path
    try:
        if has_files:
            partitions = DeltaSchema([one for one in fields if one.name in folders]) if folders else None
            strategy = "hive" if folders else None
            convert_to_deltalake(uri, partition_by=partitions, partition_strategy=strategy, storage_options=options)
        else:
            DeltaTable.create(uri, schema, partition_by=list(folders) or None, storage_options=options)
    except (DeltaError, OSError) as error:
        raise OutputFailed(f"{storage.hide_secrets(path)}: no Delta table: {_line(error)}") from error


def _options(path: str) -> dict[str, str]:
    """Return the query of an S3 URI as options of delta-rs, which takes credentials from the environment too."""
    if not storage.is_remote(path):
        return {}
    given = dict(parse_qsl(urlsplit(path).query))
    scheme = given.pop("scheme", "https")
    if unknown := sorted(set(given) - set(_NAMES)):
        raise OutputFailed(f"{storage.hide_secrets(path)}: the format delta has no URI option {', '.join(unknown)}")
    options = {_NAMES[name]: value for name, value in given.items()}
    if "endpoint_override" in given:
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{given['endpoint_override']}"
    return options | ({"AWS_ALLOW_HTTP": "true"} if scheme == "http" else {})


def _line(error: Any) -> str:
    """Return the last cause of an error of delta-rs, whose text has one line for each cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rpartition("↳\x1b[0m ")[2] if lines else type(error).__name__
