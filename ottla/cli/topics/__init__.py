"""`ottla topics`: list, describe, create and delete the topics of any Kafka."""
