"""A small model of one transactional id, explored completely on the broker's own pure code. free

`python -m lab.model` explores it; docs/model.md describes the model, its limits and the results.
"""
