"""`ottla` with an intentional bug: a change of a ZooKeeper node does not compare its version."""

from ottla.broker.ports.zookeeper import KazooZooKeeper
from ottla.cli.main import main

ANY_VERSION = -1
change = KazooZooKeeper.change


def change_any_version(zookeeper, path, data, version, on_answer):
    change(zookeeper, path, data, ANY_VERSION, on_answer)


KazooZooKeeper.change = change_any_version
if __name__ == "__main__":
    main()
