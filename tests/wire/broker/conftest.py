"""Brokers under bad input, each with an ordinary client next to the hostile one that must not be affected."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))
sys.path.insert(0, str(Path(__file__).parent))

from rig import Rig
from served import Served
from targets import TARGETS

# A cap above the default, so that the bombs are felt. The bystander is idle while tests of other files run.
OVERRIDES = {
    "auto.create.topics.enable": "false",
    "connections.max.idle.ms": "-1",
    "max.decompressed.message.bytes": "104857600",
}


@pytest.fixture(scope="session")
def rigs(tmp_path_factory):
    """Brokers by name, each started once."""
    started = {}

    def get(name):
        if name not in started:
            with pytest.MonkeyPatch.context() as patch:
                # At DEBUG a logger leaves nothing out, however many clients are sent away in a few seconds.
                patch.setenv("OTTLA_LOG_LEVEL", "INFO,ottla.broker.connection=DEBUG,ottla.broker.api=DEBUG")
                started[name] = Rig(TARGETS[name](tmp_path_factory.mktemp(name), OVERRIDES).start())
        return started[name]

    yield get
    for rig in started.values():
        rig.stop()


@pytest.fixture
def rig(request, rigs):
    """The broker of the case (`hostile.cases`), ours without one. Afterwards the bystander must be unharmed."""
    rig = rigs(getattr(request, "param", "ottla"))
    rig.begin()
    yield rig
    rig.end()


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(*more, **environment):
        started.append(Served(tmp_path / "data", *more, **environment))
        return started[-1]

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
        served.process.communicate()
