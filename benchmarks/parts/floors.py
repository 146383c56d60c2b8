"""Least cost of the bytes of produce and consume in Python: the loops that every broker needs. free"""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable

from crc32c import crc32c

BATCH_BYTES = 1_000_000


def send_zeros(port: int, size_bytes: int) -> None:
    block = bytes(BATCH_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as peer:
        for _ in range(size_bytes // BATCH_BYTES):
            peer.sendall(block)


def receive_all(port: int, _size_bytes: int) -> None:
    block = bytearray(BATCH_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as peer:
        while peer.recv_into(block):
            pass


def beside(peer: Callable[[int, int], None], size_bytes: int, work: Callable[[socket.socket], None]) -> float:
    """Return the CPU seconds of `work(socket)` in this process while another process runs `peer`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        other = multiprocessing.Process(target=peer, args=(listening.getsockname()[1], size_bytes))
        other.start()
        accepted, _ = listening.accept()
        with accepted:
            began = time.process_time()
            work(accepted)
            seconds = time.process_time() - began
        other.join()
    return seconds


def write(size_bytes: int, file: int) -> float:
    def work(peer: socket.socket) -> None:
        block = memoryview(bytearray(BATCH_BYTES))
        filled = at = 0
        while got := peer.recv_into(block[filled:]):
            filled += got
            if filled == BATCH_BYTES:
                crc32c(block)
                at += os.pwrite(file, block, at)
                filled = 0

    os.ftruncate(file, 0)
    return beside(send_zeros, size_bytes, work)


def read_and_send(size_bytes: int, file: int) -> float:
    def work(peer: socket.socket) -> None:
        for at in range(0, size_bytes, BATCH_BYTES):
            peer.sendall(os.pread(file, BATCH_BYTES, at))

    return beside(receive_all, size_bytes, work)


def send_file(size_bytes: int, file: int) -> float:
    def work(peer: socket.socket) -> None:
        at = 0
        while at < size_bytes:
            at += os.sendfile(peer.fileno(), file, at, min(BATCH_BYTES, size_bytes - at))

    return beside(receive_all, size_bytes, work)


CASES: dict[str, Callable[[int, int], float]] = {
    "recv + CRC + pwrite": write,
    "pread + send": read_and_send,
    "sendfile": send_file,
}
"""Functions that return the CPU seconds for a number of bytes and a file. The first fills the file, the others send it.
"""
