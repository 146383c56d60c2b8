"""Asks three Apache Kafkas and stores their answers.

    python -m tests.conformance.several_brokers.record [--new] [NAME ...]

With --new only the scripts are played whose answers are not stored; with names those. Needs Java and Maven.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.conformance.several_brokers.kafkas import Kafkas
from tests.conformance.several_brokers.library import RECORDING, record, recording, scripts
from tests.conformance.several_brokers.player import make_coordinators, play


def main(*arguments):
    known = {**recording()} if RECORDING.exists() else {}
    known = {name: row for name, row in known.items() if name in scripts()}
    names, only_new = [each for each in arguments if each != "--new"], "--new" in arguments
    wanted = [
        script
        for name, script in scripts().items()
        if (name in names or not names) and not (only_new and known.get(name, ("",))[0] == script.digest)
    ]
    with tempfile.TemporaryDirectory() as directory, Kafkas(Path(directory)) as kafkas:
        make_coordinators(kafkas)
        for script in wanted:
            began, before = time.monotonic(), known.get(script.name)
            known[script.name] = (script.digest, play(kafkas, script))
            record({name: known[name] for name in scripts() if name in known})
            changed = before is not None and before != known[script.name]
            print(f"{time.monotonic() - began:5.1f} s {script.name}{': other answers now' * changed}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
