"""`ottla dump`: segment files and what stands beside them, as lines of kafka-dump-log."""
