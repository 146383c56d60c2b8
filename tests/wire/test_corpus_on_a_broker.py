"""The cases of the corpus on our broker: it says of each partition what case.json says, and so does a consumer."""

import asyncio
import threading

import pytest

from ottla.broker.config import Config, Listener
from ottla.broker.server import Server
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from tests.corpus import consumed, expected_of, expected_records, told_by, write_files
from tests.patience import PATIENCE_S


class Served:
    """A broker on a data directory, in a thread of this process."""

    def __init__(self, directory):
        listener = Listener("PLAINTEXT", "127.0.0.1", 0)
        self._config = Config(log_dirs=str(directory), listeners=(listener,))
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))
        self._failure = None

    async def _live(self):
        try:
            server = Server(self._config)
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            (address,) = await server.start()
            self.bootstrap = f"{address.host}:{address.port}"
        except Exception as error:
            self._failure = error
            return
        finally:
            self._started.set()
        await self._stopping.wait()
        await server.stop()

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(PATIENCE_S)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_broker_and_consumer_say_what_the_case_says(case, tmp_path):
    files = files_of(case)
    expected = expected_of(files)
    with Served(write_files(files, tmp_path) / "data") as served:
        said, written = told_by(served.bootstrap, expected)
        assert said == written
        for isolation in ("read_committed", "read_uncommitted"):
            assert consumed(served.bootstrap, expected, isolation) == expected_records(expected, isolation)
