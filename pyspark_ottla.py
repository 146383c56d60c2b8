"""Lets Spark find `format("ottla")` without registration: it imports every top-level module named `pyspark_*`. free"""

from ottla.spark_jobs.source import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
