"""Every option is read in the code of the broker or its admin port: users would rely on one without an effect."""

import ast
from pathlib import Path

import pytest

import ottla.admin
import ottla.broker
from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS

FOLDERS = [Path(package.__file__).parent for package in (ottla.broker, ottla.admin)]
INHERITED = {option.broker for option in TOPIC_OPTIONS if option.acted_on}
CHECKED = {"process.roles"}
"""Options that only a check reads: one value has an effect, and others are refused."""


@pytest.fixture(scope="module")
def read():
    """Return the names of all attributes in the code of the broker and the admin port."""
    trees = (ast.parse(path.read_text()) for folder in FOLDERS for path in folder.rglob("*.py"))
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.slow
@pytest.mark.parametrize("option", BROKER_OPTIONS, ids=lambda option: option.key)
def test_option_of_the_broker_is_read_or_inherited_by_topics(option, read):
    assert option.attribute in read or option.key in INHERITED | CHECKED


@pytest.mark.parametrize("option", [one for one in TOPIC_OPTIONS if one.acted_on], ids=lambda option: option.key)
def test_every_topic_config_that_is_acted_on_is_read(option, read):
    assert option.attribute in read
