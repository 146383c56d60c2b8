"""Commands that run in the process of the tests."""

import logging

import pytest


@pytest.fixture
def logging_as_before():
    """Take back what `serve` sets for the logging of its process: other tests count the lines and the calls."""
    handlers, level, name = logging.root.handlers[:], logging.root.level, logging.getLevelName(logging.WARNING)
    yield
    logging.root.handlers[:], logging.root.level = handlers, level
    logging.addLevelName(logging.WARNING, name)
