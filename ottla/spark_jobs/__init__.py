"""The Spark data source over segment files, and the audit jobs."""
