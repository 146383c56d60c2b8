"""Feature levels: the rows of Kafka 4.3.1's `FeatureControlManager`, and the levels after a restart."""

import pytest

from lab.metadata import run
from ottla.broker.api import update_features
from ottla.broker.api.request import Request
from ottla.broker.cluster.features import FeatureUpdate, update_problem
from ottla.broker.security.session import Session
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from tests.broker_stub import broker_of
from tests.replies import message_of

TV, MV = "transaction.version", "metadata.version"
UP, SAFE, UNSAFE = 1, 2, 3
NO_TYPE = "does not support the given upgrade type"
NOT_DOWN = "without setting the upgrade type to either safe or unsafe downgrade"
NOT_UP = "Can't downgrade to a newer version"

# (levels before, feature, level, upgrade type, the text of the refusal or None), each as Kafka 4.3.1 answered it.
ROWS = [
    ("the level it has, upgrade", {TV: 2}, TV, 2, UP, None),
    ("the level it has, safe downgrade", {TV: 2}, TV, 2, SAFE, None),
    ("the level it has, unsafe downgrade", {TV: 2}, TV, 2, UNSAFE, None),
    ("level 0 where none is finalized", {}, TV, 0, UP, None),
    ("up from none", {}, TV, 2, UP, None),
    ("up from 1", {TV: 1}, TV, 2, UP, None),
    ("down, safe", {TV: 2}, TV, 1, SAFE, None),
    ("down, unsafe", {TV: 2}, TV, 1, UNSAFE, None),
    ("down to nothing, safe", {TV: 2}, TV, 0, SAFE, None),
    ("down to nothing, unsafe", {TV: 2}, TV, 0, UNSAFE, None),
    ("down by an upgrade", {TV: 2}, TV, 1, UP, NOT_DOWN),
    ("down to nothing by an upgrade", {TV: 1}, TV, 0, UP, NOT_DOWN),
    ("up by a safe downgrade", {TV: 1}, TV, 2, SAFE, NOT_UP),
    ("up by an unsafe downgrade", {}, TV, 1, UNSAFE, NOT_UP),
    ("a level too high", {TV: 2}, TV, 3, UP, "Local controller 1 only supports versions 0-2"),
    ("a level below zero", {TV: 2}, TV, -1, UNSAFE, "A feature version cannot be less than 0"),
    ("upgrade type 0", {TV: 2}, TV, 2, 0, NO_TYPE),
    ("upgrade type 9", {TV: 2}, TV, 2, 9, NO_TYPE),
    ("a feature that is not there", {TV: 2}, "nope", 1, UP, "Local controller 1 does not support this feature"),
    ("a feature without a name", {TV: 2}, "", 1, UP, "Local controller 1 does not support this feature"),
    ("metadata as it is", {MV: 30}, MV, 30, UP, None),
    ("metadata down by an upgrade", {MV: 30}, MV, 29, UP, NOT_DOWN),
    ("metadata down, safe", {MV: 30}, MV, 29, SAFE, "Unsupported metadata.version downgrade from 30 to 29"),
    ("metadata down, unsafe", {MV: 30}, MV, 29, UNSAFE, "Unsupported metadata.version downgrade from 30 to 29"),
    ("metadata too high", {MV: 30}, MV, 31, UP, "Local controller 1 only supports versions 7-30"),
    ("metadata too low", {MV: 30}, MV, 6, UNSAFE, "Local controller 1 only supports versions 7-30"),
]


@pytest.mark.parametrize(
    ("levels", "feature", "level", "upgrade_type", "refusal"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_update(levels, feature, level, upgrade_type, refusal):
    problem = update_problem(levels, [FeatureUpdate(feature, level, upgrade_type)], 1)
    if refusal is None:
        assert problem is None
    else:
        assert problem.startswith("The update failed for all features since the following feature had an error: ")
        assert refusal in problem


def test_one_bad_update_refuses_all():
    assert "nope" in update_problem({TV: 2}, [FeatureUpdate(TV, 1, SAFE), FeatureUpdate("nope", 1, UP)], 1)


@pytest.fixture
def update(parts):
    """Send UpdateFeatures rows of (feature, level, upgrade type) through the codec. Return the response message."""

    def send(version, *rows, validate_only=False):
        key = codec.request_class(ApiKey.UPDATE_FEATURES).FeatureUpdateKey
        updates = [
            key(version=version, feature=name, max_version_level=level)
            if version == 0
            else key(version=version, feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in rows
        ]
        more = {"validate_only": validate_only} if version else {}
        sent = codec.request_class(ApiKey.UPDATE_FEATURES)(version=version, feature_updates=updates, **more)
        body = codec.decode_request(ApiKey.UPDATE_FEATURES, version, codec.encode_request(sent, version, 7, "")[15:])
        serving = broker_of(
            cluster=parts.cluster,
            turns=parts.turns,
        )
        handler = update_features.handle(serving, Request(ApiKey.UPDATE_FEATURES, version, 7, "", Session(), body))
        return message_of(run(parts.cluster, handler), ApiKey.UPDATE_FEATURES, version)

    return send


def test_a_new_directory_has_the_default_feature_levels(parts):
    assert parts.cluster.image.features == {MV: 30, TV: 2, "group.version": 1}


@pytest.mark.parametrize("version", range(3))
def test_a_feature_level_set_by_any_version_survives_a_restart(parts, update, version):
    for level, kind in ((1, SAFE), (0, UNSAFE), (2, UP)):
        answer = update(max(version, 1) if kind != UP else version, (TV, level, kind))
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert parts.cluster.feature(TV) == level
        parts.stop()
        parts.start()
        assert parts.cluster.feature(TV) == level
    assert [(row.feature, row.error_code, row.error_message) for row in answer.results or ()] == (
        [(TV, 0, "NONE")] if version <= 1 else []
    )
