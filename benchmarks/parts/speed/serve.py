"""Serve like `ottla serve`, on any interpreter with Ottla's dependencies, with the compiled or the Python walk. free

    python benchmarks/parts/speed/serve.py compiled serve ...     the arguments of `ottla` follow
    python benchmarks/parts/speed/serve.py python serve ...
    python benchmarks/parts/speed/serve.py about                  the interpreter, and whether it has the compiled walk

The broker runs the code of this checkout, even if another version is installed. Only the compiled walk may come from
an installation, if this checkout has none and the installed one was compiled from the same source.
"""

import hashlib
import importlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Replaces the folder of this file, which has nothing that the broker imports.
sys.path[0] = str(ROOT)

WALK = "ottla.protocol.record_walk_compiled"


def find_compiled_walk() -> bool:
    """Import the compiled walk of this checkout or of an installation; return whether one was found."""
    package = importlib.import_module("ottla.protocol")
    package.__path__ += [str(folder) for entry in sys.path[1:] if (folder := Path(entry, "ottla/protocol")).is_dir()]
    try:
        found = importlib.import_module(WALK)
    except ImportError:
        return False
    source = (ROOT / "ottla" / "protocol" / "record_walk.py").read_text(encoding="utf-8")
    if hashlib.sha256(source.encode()).hexdigest()[:16] != found.SOURCE:
        raise SystemExit(f"{found.__file__} was compiled of another record_walk.py: install Ottla there again")
    return True


def about() -> dict[str, object]:
    sys.path.insert(1, str(ROOT / "benchmarks"))
    interpreter = importlib.import_module("parts.interpreter")
    return {"python": interpreter.describe(), "short": interpreter.short(), "compiled": find_compiled_walk()}


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "about":
        print(json.dumps(about()))
        return
    if what == "python":
        sys.modules[WALK] = None  # type: ignore[assignment]  # what imports it finds nothing
    elif not find_compiled_walk():
        raise SystemExit(f"{sys.executable} has no compiled walk: install Ottla there with OTTLA_COMPILE=1")
    command = importlib.import_module("ottla.cli.main")
    sys.argv = ["ottla", *arguments]
    command.main()


if __name__ == "__main__":
    main()
