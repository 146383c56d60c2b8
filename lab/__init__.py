"""The laboratory: simulation, crash states, bugs on purpose, and the pages that are made from code. free

It tests Ottla and is no part of its package: only tests and benchmarks import it.
"""
