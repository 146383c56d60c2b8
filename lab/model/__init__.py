"""A small model of one transactional id, explored to exhaustion over the broker's own pure code. free

`python -m lab.model` explores it; docs/model.md says what is in it, what is not, and what was found.
"""
