"""Serve like `ottla serve` with the package of any directory, on any interpreter with Ottla's dependencies. free

python benchmarks/parts/speed/serve.py DIR serve ...     the arguments of `ottla` follow
python benchmarks/parts/speed/serve.py DIR about         the interpreter, then the line of `ottla --version`
"""

import importlib
import sys
from pathlib import Path


def main() -> None:
    _, directory, *arguments = sys.argv
    # Replaces the folder of this file, which has nothing that the broker imports.
    sys.path[0] = directory
    command = importlib.import_module("ottla.cli.main")
    if arguments == ["about"]:
        importlib.import_module("ottla.broker.server")  # fails where a dependency is missing
        sys.path.insert(1, str(Path(__file__).resolve().parents[2]))
        print(importlib.import_module("parts.interpreter").describe())
        arguments = ["--version"]
    sys.argv = ["ottla", *arguments]
    command.main()


if __name__ == "__main__":
    main()
