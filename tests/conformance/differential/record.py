"""Asks Apache Kafka and keeps its answers: `python record.py [--new] [SETTING...]` (needs Java, Maven).

With --new only the scripts are asked that are not recorded as they are now.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from differential.library import SETTINGS, record, recording, recording_file, scripts
from differential.play import OVERRIDES, kafka_at, play_all


def main(levels, *, only_new):
    for level in levels:
        known = recording(level) if recording_file(level).exists() else {}
        same = [script for script in scripts(level) if known.get(script.name, ("",))[0] == script.digest]
        asked = [script for script in scripts(level) if not only_new or script not in same]
        with tempfile.TemporaryDirectory() as directory:
            kafka = kafka_at(level)(Path(directory) / "kafka", OVERRIDES).start()
            try:
                answers = play_all(kafka, asked)
            finally:
                kafka.stop()
        changed = [script.name for script in same if script in asked and known[script.name][1] != answers[script.name]]
        record(level, {script.name: known[script.name][1] for script in same} | answers)
        print(f"{level}: {len(asked)} scripts asked; {len(same)} were known, answered otherwise now: {changed}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main([each for each in SETTINGS if str(each) in arguments] or SETTINGS, only_new="--new" in arguments)
