"""The proxy in a thread of its own, for tests that do not run on an event loop. shell"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Self

from ottla.testkit.control.journal import MOST_BYTES, Journal
from ottla.testkit.faults.fault import Fault, parse_fault
from ottla.testkit.faults.plan import Plan
from ottla.testkit.proxying.addresses import parse_address
from ottla.testkit.proxying.proxy import Proxy

DEFAULT_TIMEOUT_S: Final = 60.0


class ProxyServer:
    """A proxy that runs within a `with` block. Any thread may use its faults and its journal."""

    def __init__(
        self,
        upstream: str,
        listen: str = "127.0.0.1:0",
        advertised_host: str | None = None,
        journal_bytes: int = MOST_BYTES,
    ) -> None:
        self._proxy = Proxy(parse_address(upstream), parse_address(listen), advertised_host, journal_bytes)
        self._fired = threading.Condition()
        self._proxy.plan.watchers.add(self._notify_hit)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ottla-proxy", daemon=True)

    @property
    def bootstrap(self) -> str:
        """The value for the `bootstrap.servers` of clients."""
        return self._proxy.bootstrap

    @property
    def plan(self) -> Plan:
        """The planned faults."""
        return self._proxy.plan

    @property
    def journal(self) -> Journal:
        """Every request and its reply."""
        return self._proxy.journal

    @property
    def requests(self) -> Counter[str]:
        """Number of requests by Kafka's name of the API."""
        return self._proxy.requests

    @property
    def brokers(self) -> dict[str, int]:
        """The proxy's port for each broker address of the cluster."""
        return {f"{host}:{port}": ours for (host, port), ours in self._proxy.brokers.items()}

    def add(self, **fault: Any) -> Fault:
        """Plan a fault: `add(at="reply", api="EndTxn", do="drop")`. Raises FaultError if it is invalid."""
        return self.plan.add(parse_fault(fault))

    def await_hits(self, fault: Fault, hits: int = 1, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Wait until a fault has fired `hits` times. Raises TimeoutError."""
        with self._fired:
            if not self._fired.wait_for(lambda: fault.hits >= hits, timeout_s):
                raise TimeoutError(f"{fault.describe()}: fired {fault.hits} times, and matched {fault.seen}")

    def hang_up(self, for_s: float = 0.0) -> None:
        """Close every connection, and each new one at once until `for_s` seconds have passed."""
        self._call(lambda: self._proxy.hang_up(for_s))

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._proxy.start(), self._loop).result()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.close(), self._loop).result()
        self._stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, function: Callable[[], None]) -> None:
        """Run the function on the event loop, and wait for its end."""

        async def call() -> None:
            function()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def _notify_hit(self, fault: Fault) -> None:
        with self._fired:
            self._fired.notify_all()
