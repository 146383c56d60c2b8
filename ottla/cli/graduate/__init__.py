"""`ottla graduate`: turn a data directory into one that Apache Kafka starts on."""
