"""A file of faults, JSON or YAML, for the admin port and the proxy. shell"""

import json
from pathlib import Path
from typing import Any

import yaml

from ottla import files
from ottla.testkit.faults.fault import FaultError, parse_fault


class PlanError(ValueError):
    """A file is not a plan of faults. The message has the place and the reason."""


def read_plan(path: Path) -> list[dict[str, Any]]:
    """Return the faults of a file, which has one fault or a list. Raises PlanError or OSError."""
    try:
        text = files.read_argument(str(path)).decode()
        # Most of JSON is YAML too, but the JSON reader has better error texts.
        given = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PlanError(f"{path}: {' '.join(str(error).split())}") from None
    faults = given if isinstance(given, list) else [given]
    for number, fault in enumerate(faults, 1):
        try:
            parse_fault(fault)
        except FaultError as error:
            raise PlanError(f"{path}: fault {number}: {error}") from None
    return faults
