"""Asks three Apache Kafkas, or one, and stores their answers.

    python -m tests.conformance.several_brokers.record [--one] [--new] [NAME ...]

With --one the scripts for one broker are played. With --new only those are played whose answers are not stored; with
names those. Needs Java and Maven.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.conformance.several_brokers.kafkas import Kafkas, OneKafka
from tests.conformance.several_brokers.library import RECORDINGS, record, recording, scripts
from tests.conformance.several_brokers.player import make_coordinators, play, play_alone


def main(*arguments):
    names, brokers = [each for each in arguments if not each.startswith("--")], 1 if "--one" in arguments else 3
    all_scripts = scripts(brokers)
    known = {**recording(brokers)} if RECORDINGS[brokers].exists() else {}
    known = {name: row for name, row in known.items() if name in all_scripts}
    wanted = [
        script
        for name, script in all_scripts.items()
        if (name in names or not names) and not ("--new" in arguments and known.get(name, ("",))[0] == script.digest)
    ]
    kind, ask = (OneKafka, play_alone) if brokers == 1 else (Kafkas, play)
    with tempfile.TemporaryDirectory() as directory, kind(Path(directory)) as kafkas:
        if brokers > 1:
            make_coordinators(kafkas)
        for script in wanted:
            began, before = time.monotonic(), known.get(script.name)
            known[script.name] = (script.digest, ask(kafkas, script))
            record({name: known[name] for name in all_scripts if name in known}, brokers)
            changed = before is not None and before != known[script.name]
            print(f"{time.monotonic() - began:5.1f} s {script.name}{': other answers now' * changed}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
