"""The parts of the checker: operations, logs, fates, reads, exactly-once, cycles."""
