"""Asks Apache Kafka anew and keeps its answers: `python record.py [LEVEL...]` (needs Java, Maven)."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from differential.library import LEVELS, record, recording, recording_file, scripts
from differential.stage import OVERRIDES, kafka_at, play_all


def main(levels):
    for level in levels:
        known = recording(level) if recording_file(level).exists() else {}
        with tempfile.TemporaryDirectory() as directory:
            kafka = kafka_at(level)(Path(directory) / "kafka", OVERRIDES).start()
            try:
                answers = play_all(kafka, scripts(level))
            finally:
                kafka.stop()
        changed = [s.name for s in scripts(level) if s.name in known and known[s.name] != (s.digest, answers[s.name])]
        record(level, answers)
        print(f"level {level}: {len(answers)} scripts recorded, {len(changed)} are not as they were: {changed}")


if __name__ == "__main__":
    main([int(level) for level in sys.argv[1:]] or LEVELS)
