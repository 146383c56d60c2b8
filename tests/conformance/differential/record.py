"""Asks Apache Kafka anew and keeps its answers: python tests/conformance/differential/record.py (needs Java, Maven)."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from differential.library import RECORDING, record, recording, scripts
from differential.stage import OVERRIDES, KafkaAtLevel1, play_all


def main():
    known = recording() if RECORDING.exists() else {}
    with tempfile.TemporaryDirectory() as directory:
        kafka = KafkaAtLevel1(Path(directory) / "kafka", OVERRIDES).start()
        try:
            answers = play_all(kafka, scripts())
        finally:
            kafka.stop()
    changed = [s.name for s in scripts() if s.name in known and known[s.name] != (s.digest, answers[s.name])]
    record(answers)
    print(f"{len(answers)} scripts recorded, {len(changed)} of them are not as they were: {changed}")


if __name__ == "__main__":
    main()
