"""Steps of an administrator: listings with every filter, feature levels, the way to a coordinator."""

import time

from differential.asking import GIVE_UP_S, Asker, code, own_error

from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

FIND_COORDINATOR, API_VERSIONS, UPDATE_FEATURES, LIST_TRANSACTIONS = 10, 18, 57, 66
FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2


class AdminSteps(Asker):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._first_level = self._level_now()

    def _list_matching(self, step):
        """Return [transactional id, state] of those of the script's own ids that match the filters."""
        fields = {"state_filters": step["states"], "producer_id_filters": []}
        if step["whos"] is not None:
            fields["producer_id_filters"] = [self._handles[who].producer_id for who in step["whos"]]
        if step["version"] >= 1:
            fields["duration_filter"] = step["duration"]
        if step["version"] >= 2:
            pattern = step["pattern"]
            fields["transactional_id_pattern"] = pattern and pattern.replace("{}", self._prefix)
        reply = self._ask(LIST_TRANSACTIONS, step["version"], own_error, **fields)
        own = f"{self._prefix}-"
        rows = [
            [row.transactional_id.removeprefix(own), self._answers.producer(row.producer_id), row.transaction_state]
            for row in reply.transaction_states
            if row.transactional_id.startswith(own)
        ]
        return [code(reply), sorted(reply.unknown_state_filters), sorted(rows)]

    def _level(self, step):
        return self._set_level(self._first_level if step["to"] is None else step["to"])

    def _restore_level(self):
        """Scripts leave the broker as it was."""
        if self._level_now() != self._first_level:
            self._set_level(self._first_level)

    def _set_level(self, level):
        now = self._level_now()
        request = codec.request_class(UPDATE_FEATURES)
        kind = UPGRADE if level >= now else SAFE_DOWNGRADE
        update = request.FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=kind)
        reply = self._connection.send(request(timeout_ms=10_000, feature_updates=[update], validate_only=False), 1)
        deadline = time.monotonic() + GIVE_UP_S
        while not reply.error_code and self._level_now() != level and time.monotonic() < deadline:
            time.sleep(0.01)
        return ErrorCode(reply.error_code).name

    def _level_now(self):
        features = {row.name: row.max_version_level for row in self._api_versions().finalized_features}
        return features.get(FEATURE, 0)

    def _api_versions(self):
        request = codec.request_class(API_VERSIONS)(client_software_name="ottla", client_software_version="1")
        return self._connection.send(request, 3)

    def _listed_versions(self, step):
        rows = self._api_versions().api_keys
        return [[row.min_version, row.max_version] for row in rows if row.api_key == step["api_key"]]

    def _find_coordinator(self, step):
        """Error codes by key: who the coordinator is does not matter."""
        names, version = [self._name(id) for id in step["ids"]], step["version"]
        asked = {"coordinator_keys": names} if version >= 4 else {"key": names[0]}
        request = codec.request_class(FIND_COORDINATOR)(key_type=step["kind"], **asked)
        reply = self._connection.send(request, version)
        if version < 4:
            return [code(reply), reply.node_id >= 0]
        rows = zip(reply.coordinators, names, strict=True)
        return [[code(row), row.node_id >= 0, row.key == name] for row, name in rows]
