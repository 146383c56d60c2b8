"""The receive buffer behind a BufferedProtocol, on asyncio's loop and on uvloop."""

import asyncio
import random
import struct

import pytest
import uvloop

from ottla.protocol.requests.frames import INITIAL_BYTES, ReceiveBuffer


class Collector(asyncio.BufferedProtocol):
    """Takes frames as a broker does, and keeps every third one out until three more have come."""

    def __init__(self, done, expected):
        self.inbox = ReceiveBuffer()
        self.done = done
        self.expected = expected
        self.got = []
        self.held = []

    def get_buffer(self, sizehint):
        return self.inbox.get_buffer(sizehint)

    def buffer_updated(self, nbytes):
        self.inbox.commit(nbytes)
        while (frame := self.inbox.next_frame()) is not None:
            self.held.append((len(self.got), frame))
            self.got.append(None)
            while self.held and (self.held[0][0] % 3 or len(self.held) > 3):
                self.finish()
        if len(self.got) == self.expected and not self.done.done():
            while self.held:
                self.finish()
            self.done.set_result(None)

    def finish(self):
        at, frame = self.held.pop(0)
        self.got[at] = bytes(frame)
        self.inbox.release()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_frames_of_all_sizes_arrive_intact_while_others_are_held(new_loop):
    rng = random.Random(11)
    sizes = [rng.choice((1, 20, 300, 16_500, 70_000, 1_000_100)) for _ in range(60)] + [6_000_000] + [50] * 40
    payloads = [rng.randbytes(size) for size in sizes]

    async def scenario():
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        collector = Collector(done, len(payloads))
        server = await loop.create_server(lambda: collector, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        for payload in payloads:
            writer.write(struct.pack(">i", len(payload)) + payload)
            await writer.drain()
        async with asyncio.timeout(30):
            await done
        writer.close()
        server.close()
        return collector

    with asyncio.Runner(loop_factory=new_loop) as runner:
        collector = runner.run(scenario())
    assert collector.got == payloads
    collector.inbox.trim()
    assert collector.inbox.capacity_bytes == INITIAL_BYTES
