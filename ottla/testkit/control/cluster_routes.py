"""Admin port routes that change the brokers of a process and their leaders. free"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.admin.fields import NUMBER, TEXT, an_object
from ottla.admin.routes import AdminError, AdminHandler, AdminRequest, AdminResponse, Route
from ottla.testkit.control.cluster import ClusterControl
from ottla.testkit.faults.fault import Fault
from ottla.testkit.faults.plan import Plan

_PLACE: Final = an_object({"topic": TEXT, "partition": NUMBER}, required=["topic", "partition"])
_COORDINATED: Final = an_object({"transactional_id": TEXT, "group": TEXT})
_OTHER: Final = an_object({"from": NUMBER}, required=["from"])


def cluster_routes(cluster: ClusterControl, plan: Plan) -> Sequence[Route]:
    """Return the routes. Those that clients can meet answer with the fault that counts these clients."""
    api = _ClusterHandlers(cluster, plan)
    at = "/v1/brokers/{id}"

    def change(name: str, work: Callable[[int], Any], summary: str) -> Route:
        return Route("POST", f"{at}/{name}", api.change(work), summary)

    return (
        Route("GET", "/v1/brokers", api.list_brokers, "List the brokers of the process"),
        Route("POST", "/v1/brokers/reset", api.change_all(cluster.reset), "Undo all changes to brokers and leaders"),
        Route("POST", "/v1/brokers/reconnect", api.change_all(cluster.reconnect), "Restore all links between brokers"),
        Route("POST", f"{at}/lead", api.lead, "Move the leader of a partition to this broker", _PLACE),
        Route(
            "POST",
            f"{at}/coordinate",
            api.coordinate,
            "Move the coordinator of a transactional id or a group to this broker",
            _COORDINATED,
        ),
        Route("POST", f"{at}/disconnect", api.disconnect, "Cut the link between this broker and another one", _OTHER),
        change("stop", cluster.stop_broker, "Close the ports and connections of a broker; others lead its partitions"),
        change("start", cluster.start_broker, "Start a stopped broker"),
        change("pause", cluster.pause_broker, "Let a broker accept requests and answer nothing"),
        change("resume", cluster.resume_broker, "Let a paused broker answer"),
        change("freeze-metadata", cluster.freeze_metadata, "Keep the answers to Metadata and FindCoordinator"),
        change("unfreeze-metadata", cluster.unfreeze_metadata, "Answer Metadata and FindCoordinator as it is"),
    )


class _ClusterHandlers:
    def __init__(self, cluster: ClusterControl, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan

    async def list_brokers(self, request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=list(self._cluster.describe()))

    async def lead(self, request: AdminRequest) -> AdminResponse:
        body = request.body
        return self._show(await self._cluster.move_leader(self._id(request), body["topic"], int(body["partition"])))

    async def coordinate(self, request: AdminRequest) -> AdminResponse:
        if len(request.body) != 1:
            raise AdminError(422, "Either transactional_id or group is needed")
        ((kind, name),) = request.body.items()
        return self._show(await self._cluster.move_coordinator(self._id(request), kind, name))

    async def disconnect(self, request: AdminRequest) -> AdminResponse:
        return self._show(await self._cluster.disconnect(self._id(request), int(request.body["from"])))

    def change(self, work: Callable[[int], Any]) -> AdminHandler:
        """Return a handler that changes a broker, and answers with its fault or its row."""

        async def handle(request: AdminRequest) -> AdminResponse:
            node_id = self._id(request)
            change: Fault | None = await work(node_id)
            if change is not None:
                return self._show(change)
            return AdminResponse(body=next(row for row in self._cluster.describe() if row["broker"] == node_id))

        return handle

    def change_all(self, work: Callable[[], Any]) -> AdminHandler:
        """Return a handler that changes all brokers, and lists them."""

        async def handle(request: AdminRequest) -> AdminResponse:
            await work()
            return await self.list_brokers(request)

        return handle

    def _show(self, change: Fault) -> AdminResponse:
        return AdminResponse(body=self._plan.show(change))

    def _id(self, request: AdminRequest) -> int:
        given, ids = request.parameters["id"], self._cluster.ids
        if given not in map(str, ids):
            raise AdminError(404, f"There is no broker {given:.50}: the brokers are {', '.join(map(str, ids))}")
        return int(given)
