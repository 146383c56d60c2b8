"""Demo of Kafka's transactions in stories: `ottla demo`. free"""
