"""A file of faults, JSON or YAML, as what the admin port and the proxy take. shell"""

import json
from pathlib import Path
from typing import Any

import yaml

from ottla import files
from ottla.testkit.faults.fault import FaultError, parse_fault


class PlanError(ValueError):
    """A file that is no plan of faults: the message says where and why."""


def read_plan(path: Path) -> list[dict[str, Any]]:
    """The faults of a file: one, or a list of them. PlanError, OSError."""
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
