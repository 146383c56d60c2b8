"""A golden corpus: small log directories in Kafka's format, and the expected results of reading them. free"""
