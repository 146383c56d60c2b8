"""Folders that are no log directories, and what a reader of log directories says of each."""

import shutil
from pathlib import Path
from typing import NamedTuple

from ottla.testkit.corpus.case import write_case
from ottla.testkit.corpus.catalogue import CASES

PHOTO = b"\xff\xd8\xff\xe0 a photo"
TOPIC = "one-committed-transaction"


class WrongFolder(NamedTuple):
    """A folder, why it is refused, and the log directories below it as an error names them; empty without one."""

    path: Path
    why: str
    below: str


def write_log_directory(target):
    """Write a log directory with one topic, TOPIC, and return its path."""
    write_case(next(case for case in CASES if case.name == TOPIC), target)
    return next(target.rglob("meta.properties")).parent


def parent(place, log):
    shutil.copytree(log, place / "kafka-logs")
    return place, "kafka-logs"


def strimzi(place, log):
    shutil.copytree(log, place / "kafka" / "data-0" / "kafka-log0")
    return place / "kafka", "data-0/kafka-log0"


def several_brokers(place, log):
    for number in (1, 2):
        shutil.copytree(log, place / f"broker-{number}")
    return place, f"broker-1, {place}/broker-2"


def empty(place, _log):
    return place, None


def photos(place, _log):
    for number in range(3):
        (place / f"IMG-{number}.jpg").write_bytes(PHOTO)
    (place / "holiday-2").mkdir()
    (place / "holiday-2" / "IMG-4.jpg").write_bytes(PHOTO)
    return place, None


def file(place, _log):
    (place / "photo.jpg").write_bytes(PHOTO)
    return place / "photo.jpg", None


def typo(place, _log):
    return place / "kafka-lgos", None


WITHOUT_LOGS = "not a log directory: it has no meta.properties and no <topic>-<partition> with a segment"
# Makers of folders, with the reason for which each is refused.
FOLDERS = {
    parent: WITHOUT_LOGS,
    strimzi: WITHOUT_LOGS,
    several_brokers: WITHOUT_LOGS,
    empty: "not a log directory: it is empty",
    photos: WITHOUT_LOGS,
    file: "Not a directory",
    typo: "No such file or directory",
}


def make_wrong_folder(make, place, log):
    """Make one of FOLDERS in the new folder `place`; `log` is a log directory to copy."""
    place.mkdir()
    path, below = make(place, log)
    return WrongFolder(path, FOLDERS[make], f"{path}/{below}" if below else "")
