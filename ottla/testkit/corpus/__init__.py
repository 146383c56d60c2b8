"""A golden corpus: small log directories in Kafka's format, and what their readers must make of them. free"""
