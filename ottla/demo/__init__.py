"""Kafka's transactions as stories to watch: `python -m ottla.demo`. free"""
