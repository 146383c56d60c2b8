"""`ottla serve` on a copy of `ottla pull`: a warning, or a frozen broker."""

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.checkpoints import META_PROPERTIES, PULLED

pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.mark.parametrize(
    ("options", "is_copy", "told"),
    [
        ([], True, "WARN"),
        (["--as-pulled"], True, "INFO Frozen: no transaction ends"),
        ([], False, ""),
    ],
    ids=["warned", "frozen", "no copy"],
)
def test_serving_a_copy_is_logged_with_its_effects(options, is_copy, told, tmp_path, monkeypatch):
    (tmp_path / META_PROPERTIES).touch()
    if is_copy:
        (tmp_path / PULLED).touch()
    started = []
    monkeypatch.setattr("ottla.broker.server.run", lambda config, frozen, **_: started.append(frozen) or 0)
    result = CliRunner().invoke(main, ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), *options])
    assert (result.exit_code, started) == (0, [bool(options)])
    assert told in result.stderr
    assert ("--as-pulled serves it as it is" in result.stderr) == (is_copy and not options)
    assert bool(result.stderr) == is_copy
