"""`ottla consume`: the records of a topic of any Kafka, each with the fate of its transaction."""
