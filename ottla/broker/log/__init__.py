"""Segment files, their indexes, recovery and the producer state of a partition."""
