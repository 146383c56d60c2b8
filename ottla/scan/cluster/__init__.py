"""The partitions of a cluster, whose records brokers send."""
