"""Demo of Kafka's transactions in stories: `python -m ottla.demo`. free"""
