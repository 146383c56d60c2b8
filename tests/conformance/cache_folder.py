"""The folder of what tests fetch or build once for this machine."""

import os
import shutil
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def fill_once(name, fill):
    """Return the folder of this name, which `fill(folder)` fills on first use.

    Others may fill it at the same time, so a folder that exists is complete, and one of a failure has another name.
    """
    folder, made = CACHE / name, CACHE / f"{name}.{os.getpid()}"
    if not folder.exists():
        made.mkdir(parents=True)
        try:
            fill(made)
            if not folder.exists():  # another process may have been faster
                made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder
