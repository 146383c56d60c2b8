"""`ottla dump`: segments, indexes and checkpoints as lines of kafka-dump-log."""
