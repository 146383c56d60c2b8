"""A run of the demo: start a broker, play the stories, audit its files. shell"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python, at import

from kafka.errors import KafkaError  # noqa: E402

from ottla.demo.audit import audit, audit_damage  # noqa: E402
from ottla.demo.clients import (  # noqa: E402
    Broker,
    DemoClients,
    DemoFailed,
    own_broker,
    running_broker,
)
from ottla.demo.damage import DAMAGING_STORIES, UNVERIFIED  # noqa: E402
from ottla.demo.screen import Screen  # noqa: E402
from ottla.demo.stories import LEDGER, STORIES, TOPICS  # noqa: E402
from ottla.printable import shell_word  # noqa: E402

HELD, BROKEN, INTERRUPTED, PIPE_CLOSED = 0, 1, 130, 128 + signal.SIGPIPE
_NEXT: Final = """
Look at the same directory with the other commands:

  ottla audit {directory}
  ottla inspect {directory}
  ottla dump {directory}/{ledger}-1 --records
  ottla serve --data-dir {directory} --listen 127.0.0.1:9092

and, while the broker runs, in a second shell:

  ottla txn why
  ottla txn abort {ledger} 1 2"""


class Options(NamedTuple):
    """Options of a run. `bootstrap`: a running broker, with its data directory if this is known. `keep`: the new data
    directory of a broker that the demo starts, or None: a temporary one."""

    bootstrap: str | None = None
    data_dir: Path | None = None
    with_audit: bool = True
    keep: Path | None = None


def play(options: Options) -> int:
    """Run the demo. Return 0 if all claims held, else 1; 130 after Ctrl-C, 141 if the output is a closed pipe."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    screen = Screen()
    try:
        screen.title("Ottla: Kafka's transactions, to watch", "Every line with a tick was checked against the broker.")
        screen.line()
        _play_on_a_broker(options, screen)
    except (DemoFailed, KafkaError, subprocess.TimeoutExpired) as error:
        screen.line()
        screen.claim(False, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # unflushed output has no reader
        return PIPE_CLOSED
    except KeyboardInterrupt:
        removed = "" if options.keep else " and its data removed"
        screen.line("" if options.bootstrap else f"\nInterrupted; the broker was stopped{removed}.")
        return INTERRUPTED
    screen.summary()
    if options.keep is not None:
        screen.line(_NEXT.format(directory=shell_word(str(options.keep)), ledger=LEDGER))
    return BROKEN if screen.broken else HELD


def _play_on_a_broker(options: Options, screen: Screen) -> None:
    with contextlib.ExitStack() as stack:
        if options.bootstrap:
            broker = running_broker(options.bootstrap, options.data_dir)
        else:
            broker = stack.enter_context(own_broker(options.keep, UNVERIFIED if options.keep else ()))
        _show_facts(broker, screen)
        clients = stack.enter_context(contextlib.closing(DemoClients(broker, screen)))
        clients.create_topics(TOPICS)
        _play_stories(STORIES, clients)
        if options.with_audit and broker.data_dir is not None:
            audit(screen, broker.data_dir)
        if options.keep is not None:
            _play_stories(DAMAGING_STORIES, clients)
            if options.with_audit:
                audit_damage(screen, options.keep)
        clients.close()
        if broker.process is not None:
            screen.line()
            screen.claim(broker.stop(), "the broker stopped cleanly")


def _show_facts(broker: Broker, screen: Screen) -> None:
    facts = [("broker", broker.bootstrap)]
    if broker.process is not None:
        facts[0] = ("broker", f"{broker.bootstrap}, process {broker.process.pid}, ready in {broker.ready_s:.2f} s")
    if broker.data_dir is not None:
        facts.append(("data", f"{broker.data_dir} (segment files in Kafka's own format)"))
    facts.append(("clients", "kafka-python, unchanged"))
    screen.facts(facts)


def _play_stories(stories: Sequence[Callable[[DemoClients], None]], clients: DemoClients) -> None:
    """Run stories. An exception counts as a failed claim, and the next story follows."""
    for story in stories:
        try:
            story(clients)
        except BrokenPipeError:
            raise  # the output has no reader
        except Exception as error:
            clients.screen.claim(False, f"the story failed: {type(error).__name__}: {error}")
