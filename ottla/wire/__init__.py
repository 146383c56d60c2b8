"""Requests to brokers in Kafka's protocol, over connections of our own; no broker, no files of a log."""
