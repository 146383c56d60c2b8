"""Prints the tables of docs/in-the-log.md, as measured here. Needs confluent-kafka, and Java and Maven for Kafka:

python run.py lost [--trials N] [--brokers NAMES]           what becomes of the transaction after a lost reply
python run.py retries [--transactions N] [--clients NAMES]  whether honest retries are refused
"""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from clients import lacks
from in_the_log import lost, retries
from in_the_log.wire import ENDS_OF_THE_BROKER, Loss
from targets import TARGETS

LOSSES = [Loss.SWALLOW, Loss.CUT, Loss.KILL, Loss.RESTART]


def tell(row):
    print("| " + " | ".join(map(str, row)) + " |", flush=True)


def head(kind):
    tell(kind._fields)
    print("|---" * len(kind._fields) + "|")


def names(text):
    return text.split(",")


def trials_of(trials, loss, counts):
    """Fewer where a broker must start again, and where many batches are on their way."""
    fewer = (4 if loss in ENDS_OF_THE_BROKER else 1) * (2 if "pipelined" in counts else 1)
    return max(1, trials // fewer)


def lost_on(target, trials):
    """Every fault with every count."""
    with tempfile.TemporaryDirectory() as directory:
        broker = TARGETS[target](Path(directory) / target).start()
        try:
            for loss in LOSSES:
                for counts in lost.COUNTS:
                    tell(lost.play(broker, loss, counts, trials_of(trials, loss, counts)))
        finally:
            broker.stop()


def retried_on(target, name, transactions, seed):
    """The row of one client, on a broker of its own."""
    if reason := lacks(name):
        return print(f"{name}: {reason}")
    with tempfile.TemporaryDirectory() as directory:
        broker = TARGETS[target](Path(directory) / target).start()
        try:
            tell(retries.play(broker, name, transactions, Path(directory), seed))
        finally:
            broker.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("lost", "retries"))
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--brokers", type=names, default=["ottla", "ottla-v1", "apache", "apache-v1"])
    parser.add_argument("--clients", type=names, default=retries.CLIENTS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.table == "lost":
        head(lost.Row)
        with ThreadPoolExecutor(len(given.brokers)) as pool:  # they mostly wait
            list(pool.map(lambda target: lost_on(target, given.trials), given.brokers))
        return
    head(retries.Row)
    ours = [target for target in given.brokers if not target.startswith("apache")]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda both: retried_on(*both, given.transactions, given.seed), product(ours, given.clients)))


if __name__ == "__main__":
    main()
