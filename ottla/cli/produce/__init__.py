"""`ottla produce`: lines of stdin as records of a topic of any Kafka, in transactions if asked."""
