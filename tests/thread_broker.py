"""A broker on a data directory, in a thread of this process, whose clock can begin in the past."""

import asyncio
import threading
import time
from unittest import mock

import uvloop

from ottla.broker import server
from ottla.broker.config import Config, Listener
from ottla.broker.ports.clock import LoopClock
from tests.timeout import EVENT_TIMEOUT_S


class ThreadBroker:
    """A context manager. `now_ms` is the time at which the broker's clock begins; None is the wall clock."""

    def __init__(self, directory, now_ms=None, **options):
        self._now_ms = now_ms
        self._config = Config(log_dirs=str(directory), listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),), **options)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure = None

    def _run(self):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._live())

    async def _live(self):
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            with mock.patch.object(server, "LoopClock", clock_from(self._now_ms)):
                self.server = server.Server(self._config)
                (address,) = await self.server.start()
            self.bootstrap = f"{address.host}:{address.port}"
        except Exception as error:
            self._failure = error
            return
        finally:
            self._started.set()
        await self._stopping.wait()
        await self.server.stop()

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(EVENT_TIMEOUT_S)
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(EVENT_TIMEOUT_S)
        assert not self._thread.is_alive()


def clock_from(now_ms):
    """Return a class of clocks whose time of day is `now_ms` at this call."""
    if now_ms is None:
        return LoopClock
    shift_ms = now_ms - time.time_ns() // 1_000_000

    class ShiftedClock(LoopClock):
        def now_ms(self):
            return super().now_ms() + shift_ms

    return ShiftedClock
