"""`ottla dump`: segment files and the files next to them, as lines of kafka-dump-log."""
