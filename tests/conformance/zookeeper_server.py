"""A real ZooKeeper, and a proxy in front of it that cuts connections before the answer and makes changes collide."""

import contextlib
import random
import shutil
import socket
import threading
from pathlib import Path

from clients import fetch_jars
from targets import Broker, free_port

POM = Path(__file__).parent / "zookeeper" / "pom.xml"
DEBIANS = Path("/usr/share/zookeeper/bin/zkServer.sh")
NAME = "zookeeper-3.9.4"


def lacks():
    """Return why no ZooKeeper can run here, or an empty string."""
    if shutil.which("java") is None:
        return "no java on the path"
    return "" if DEBIANS.exists() or shutil.which("mvn") else "neither Debian's zookeeper nor mvn"


class ZooKeeper(Broker):
    """Server of one node, from the package of Debian or from the jars. `address` is `host:port`."""

    name = "ZooKeeper"
    start_timeout_s = 300.0

    def __init__(self, directory):
        super().__init__(directory)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.data_dir = directory / "data"
        self.config = directory / "zoo.cfg"
        settings = {
            "tickTime": 500,
            "dataDir": self.data_dir,
            "preAllocSize": 64,
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def command(self):
        if DEBIANS.exists():
            return [str(DEBIANS), "start-foreground", str(self.config)]
        flags = ["-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *flags, "-cp", f"{fetch_jars(POM, NAME)}/*", main, str(self.config)]

    def is_ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False


class CuttingProxy:
    """Forwards connections to a port, and ends the share `cuts` of the requests after it has forwarded them.

    Changes of the node with the last block of producer ids can be gathered, so that their brokers have read the same.
    """

    def __init__(self, port, seed=1):
        self._to = port
        self._random = random.Random(seed)
        self.cuts = 0.0
        self._gathering = None
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def gather(self, count):
        """Hold changes until so many of them wait, then forward all of these at once."""

        def end():
            self._gathering = None

        self._gathering = threading.Barrier(count, end)

    def close(self):
        self._server.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._to), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            threading.Thread(target=self._forward, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, False), daemon=True).start()

    def _forward(self, source, target, are_requests):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if are_requests and b"block_start" in data and (gathering := self._gathering):
                    gathering.wait()
                target.sendall(data)
                if are_requests and self._random.random() < self.cuts:
                    break
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
