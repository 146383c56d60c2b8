"""kcat, from the path or from Debian's package: metadata, produce, consume, groups, transactions."""

import shutil
import subprocess

import pytest
from cache_folder import fill_once
from scenario import StepContext

PACKAGES = ("kcat", "librdkafka1", "libyajl2")

pytestmark = pytest.mark.conformance


def fetch_kcat():
    """Return the command of kcat. Without one, unpack Debian's package into the cache folder, or skip the test."""
    if program := shutil.which("kcat"):
        return [program]
    folder = fill_once("kcat", unpack_kcat)
    libraries = ":".join(str(each) for each in (folder / "usr" / "lib").iterdir())
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(folder / "usr" / "bin" / "kcat")]


def unpack_kcat(folder):
    """Unpack Debian's package into a folder, or skip the test."""
    if missing := [name for name in ("apt-get", "dpkg") if shutil.which(name) is None]:
        pytest.skip(f"no kcat on the path, and no {missing[0]} to fetch Debian's package")
    done = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no kcat on the path, and apt-get: {done.stderr.strip().splitlines()[-1]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)


@pytest.mark.parametrize("target", ["ottla", "apache"])
def test_kcat_lists_produces_and_consumes(ensemble, cell, target):
    cell(target, "kcat")
    kcat = fetch_kcat()
    client = ensemble.client(target, "confluent-kafka")
    context = StepContext(client, "kcat")
    topic = context.topics("orders", partitions=2)

    def run(*options, text=None):
        command = [*kcat, "-b", client.bootstrap, *options]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(isolation):
        options = ("-X", f"isolation.level={isolation}", "-f", "%p %o %k %s\n")
        return sorted(run("-C", "-q", "-e", "-t", topic, "-o", "beginning", *options).splitlines())

    listing = run("-L")
    assert " 1 brokers:" in listing and f'topic "{topic}" with 2 partitions:' in listing
    run("-P", "-t", topic, "-p", "0", "-K", ":", text="a:one\nb:two\n")
    run("-P", "-t", topic, "-p", "1", "-X", f"transactional.id={context.name('kcat')}", text="in a transaction\n")
    with context.producer("other") as producer:
        producer.begin()
        producer.send(topic, "aborted", partition=1)
        producer.abort()
        producer.begin()
        producer.send(topic, "open", partition=1)
        kept = ["0 0 a one", "0 1 b two", "1 0  in a transaction"]
        assert read("read_committed") == kept
        assert read("read_uncommitted") == [*kept, "1 2  aborted", "1 4  open"]
        producer.commit()
    kept.append("1 4  open")
    grouped = run("-q", "-c", "4", "-o", "beginning", "-f", "%p %o %k %s\n", "-G", context.name("group"), topic)
    assert sorted(grouped.splitlines()) == kept
