"""Logs of partitions: segment files, indexes, recovery, producer state."""
