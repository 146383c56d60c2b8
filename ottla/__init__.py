"""Ottla: the exactly-once half of Kafka in one Python process, on Kafka's own files."""

__version__ = "0.1.0"
