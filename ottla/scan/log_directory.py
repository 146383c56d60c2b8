"""Names in a log directory, and the check whether a folder is a log directory. pure

A folder is a log directory if it has `meta.properties`, or a `<topic>-<partition>` with a segment in it. The name of a
folder alone is no proof: `data-0` may be a volume that holds a log directory. Source of the names:
`org.apache.kafka.storage.internals.log.LogFileUtils`, `UnifiedLog.parseTopicPartitionName`.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from ottla.printable import first_names
from ottla.protocol.checkpoints import META_PROPERTIES, parse_directory_name

SEGMENT: Final = re.compile(r"([0-9]{20})\.log\Z")

DEEPEST: Final = 3
MOST_FOLDERS: Final = 500
MOST_NAMED: Final = 3

Children = Callable[[str], Mapping[str, str | None]]
"""Names in a folder -> their paths, or None for files. Raises OSError."""


def is_log_directory(names: Mapping[str, str | None], children: Children) -> bool:
    """Return whether the folder with these names is a log directory.

    A partition that cannot be read counts as one with segments: a read of the folder raises that error.
    """
    if META_PROPERTIES in names:
        return True
    partitions = (path for name, path in names.items() if path is not None and parse_directory_name(name))
    return any(_holds_segments(path, children) for path in partitions)


def _holds_segments(folder: str, children: Children) -> bool:
    try:
        return any(SEGMENT.match(name) for name in children(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def find_below(folder: str, children: Children) -> list[str]:
    """Search for log directories below a folder, breadth first, without entering those that are found.

    The search stops DEEPEST folders down, and after MOST_FOLDERS.
    """
    found: list[str] = []
    waiting = deque([(folder, 0)])
    for _ in range(MOST_FOLDERS):
        if not waiting:
            break
        path, depth = waiting.popleft()
        try:
            names = children(path)
        except OSError:
            continue
        if depth > 0 and is_log_directory(names, children):
            found.append(path)
        elif depth < DEEPEST:
            waiting.extend((names[name] or "", depth + 1) for name in sorted(names) if names[name] is not None)
    return found


def describe_refusal(
    folder: str, names: Mapping[str, str | None], children: Children, show: Callable[[str], str] = str
) -> str:
    """Return the reason why a folder is no log directory, and the log directories below it, as `show` prints paths."""
    if not names:
        return "not a log directory: it is empty"
    if any(SEGMENT.match(name) for name in names):
        return "not a log directory but the folder of one partition; name the folder above it"
    why = f"not a log directory: it has no {META_PROPERTIES} and no <topic>-<partition> with a segment"
    hint = describe_below(folder, children, show)
    return f"{why}; {hint}" if hint else why


def describe_below(folder: str, children: Children, show: Callable[[str], str] = str) -> str:
    """Return a text that lists the log directories below a folder; empty if the search finds none."""
    found = find_below(folder, children)
    if not found:
        return ""
    shown = first_names([show(path) for path in found], MOST_NAMED)
    return f"below it there {'is' if len(found) == 1 else 'are'} {shown}"
