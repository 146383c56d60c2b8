"""Client that makes TLS handshakes: one after another, many at once, or on connections that then stay idle. free

    python benchmarks/parts/tls/hands.py HOST PORT CAFILE

It is a separate program, so that its CPU time is not the broker's. It reads a line, `one 100`, `burst 500` or
`idle 1000`, makes so many handshakes, and prints a line with the seconds that they took. Connections of `idle` stay
open until the next line.
"""

import selectors
import socket
import ssl
import sys
import time

EVENT_TIMEOUT_S = 120


class Client:
    """Non-blocking connection during its TLS handshake."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection((host, port), timeout=EVENT_TIMEOUT_S)
        self.socket = context.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False)
        self.socket.setblocking(False)

    def step(self) -> int:
        """Continue the handshake; return the selector event that it waits for, 0 when it is complete."""
        try:
            self.socket.do_handshake()
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        return 0


def burst(host: str, port: int, context: ssl.SSLContext, count: int) -> list[Client]:
    """Make handshakes at once: all connections are open before the first handshake begins."""
    clients = [Client(host, port, context) for _ in range(count)]
    selector = selectors.DefaultSelector()
    for client in clients:
        if waits_for := client.step():
            selector.register(client.socket, waits_for, client)
    while selector.get_map():
        ready = selector.select(EVENT_TIMEOUT_S)
        if not ready:
            raise SystemExit("the broker does not go on with a handshake")
        for key, _ in ready:
            waits_for = key.data.step()
            if waits_for:
                selector.modify(key.fileobj, waits_for, key.data)
            else:
                selector.unregister(key.fileobj)
    return clients


def main() -> None:
    host, port, cafile = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    context = ssl.create_default_context(cafile=cafile)
    kept: list[Client] = []
    print("ready", flush=True)
    for line in sys.stdin:
        what, count = line.split()
        for client in kept:
            client.socket.close()
        kept = []
        began = time.perf_counter()
        if what == "one":
            for _ in range(int(count)):
                (client,) = burst(host, port, context, 1)
                client.socket.close()
        else:
            kept = burst(host, port, context, int(count))
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
