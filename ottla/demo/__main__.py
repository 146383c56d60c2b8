"""`python -m ottla.demo`: start a broker, run the stories, audit its files. shell"""

import argparse
import contextlib
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python, at import

from kafka.errors import KafkaError  # noqa: E402

from ottla.demo.audit import audit  # noqa: E402
from ottla.demo.clients import (  # noqa: E402
    Broker,
    DemoClients,
    DemoFailed,
    own_broker,
    running_broker,
)
from ottla.demo.screen import Screen  # noqa: E402
from ottla.demo.stories import STORIES, TOPICS  # noqa: E402


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ottla.demo", description="Show Kafka's transactions.")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="use a running broker instead of starting one")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="its data directory, to audit")
    parser.add_argument("--no-audit", action="store_true", help="leave out the audit")
    parser.add_argument("--keep", action="store_true", help="keep the data directory afterwards")
    return parser.parse_args()


def _play(broker: Broker, screen: Screen, with_audit: bool) -> None:
    facts = [("broker", broker.bootstrap)]
    if broker.process is not None:
        facts[0] = ("broker", f"{broker.bootstrap}, process {broker.process.pid}, ready in {broker.ready_s:.2f} s")
    if broker.data_dir is not None:
        facts.append(("data", f"{broker.data_dir} (segment files in Kafka's own format)"))
    facts.append(("clients", "kafka-python, unchanged"))
    screen.facts(facts)
    clients = DemoClients(broker, screen)
    try:
        clients.create_topics(TOPICS)
        for story in STORIES:
            _play_story(story, clients)
        if with_audit and broker.data_dir is not None:
            audit(screen, broker.data_dir)
    finally:
        clients.close()


def _play_story(story: Callable[[DemoClients], None], clients: DemoClients) -> None:
    """Run a story. An exception counts as a failed claim, and the next story follows."""
    try:
        story(clients)
    except BrokenPipeError:
        raise  # the output has no reader
    except Exception as error:
        clients.screen.claim(False, f"the story failed: {type(error).__name__}: {error}")


def main() -> int:
    """Run the demo. Return 0 if all claims held, else 1."""
    options = _arguments()
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    screen = Screen()
    broker = None
    try:
        screen.title("Ottla: Kafka's transactions, to watch", "Every line with a tick was checked against the broker.")
        screen.line()
        with contextlib.ExitStack() as stack:
            if options.bootstrap:
                broker = running_broker(options.bootstrap, options.data_dir)
            else:
                broker = stack.enter_context(own_broker(options.keep))
            _play(broker, screen, not options.no_audit)
            if broker.process is not None:
                screen.line()
                screen.claim(broker.stop(), "the broker stopped cleanly")
    except (DemoFailed, KafkaError, subprocess.TimeoutExpired) as error:
        screen.line()
        screen.claim(False, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # unflushed output has no reader
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        screen.line("\nInterrupted; the broker was stopped and its data removed." if not options.bootstrap else "")
        return 130
    screen.summary()
    if options.keep and broker is not None and broker.process is not None:
        screen.line(f"The data is kept: ottla audit {broker.data_dir}")
    return 1 if screen.broken else 0


if __name__ == "__main__":
    sys.exit(main())
