"""Requests and seconds of audits and reads of a log directory on an S3 server that answers late. free

    python benchmarks/remote.py [--size-mib 256] [--delay-ms 30] [--rounds 3] [--only WORDS] [--format json]

The log is that of `make_log.py`. A moto server (extra `conformance`) in a separate process gets a copy, delays each
answer as a distant store does, and counts the requests. Seconds are the best of the rounds. They include moto's own
time for the bytes, so compare only lines of one run.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parts.log import make_log
from parts.options import check_chosen, parse_count

from lab.usage import command_line

REQUESTS = ("LIST", "HEAD", "GET")
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


def serve(delay_ms, log):
    """Print the port and serve until the process is stopped."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    store = DomainDispatcherApplication(create_backend_app)

    def late(environ, start_response):
        method = environ["REQUEST_METHOD"]
        if method in ("GET", "HEAD"):
            time.sleep(delay_ms / 1000)
            log.write("LIST\n" if "list-type" in environ.get("QUERY_STRING", "") else f"{method}\n")
        return store(environ, start_response)

    server = make_server("127.0.0.1", 0, late, threaded=True, request_handler=MotoRequestHandler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


@contextlib.contextmanager
def late_store(directory, delay_ms):
    """Yield (URI of a copy of `directory`, function that returns the requests since its last call)."""
    from pyarrow import fs

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "requests"
        command = [sys.executable, __file__, "--delay-ms", str(delay_ms), "--serve", str(log)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = server.stdout.readline().strip()
            if not port:
                raise SystemExit("the S3 server has not started: is the extra `conformance` installed?")
            query = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
            store, _ = fs.FileSystem.from_uri(f"s3://bucket/{query}&allow_bucket_creation=true")
            store.create_dir("bucket")
            fs.copy_files(str(directory), "bucket/logs", fs.LocalFileSystem(), store)
            seen = 0

            def requests():
                nonlocal seen
                lines = log.read_text().split()
                new, seen = lines[seen:], len(lines)
                return collections.Counter(new)

            yield f"s3://bucket/logs{query}", requests
        finally:
            server.terminate()
            server.wait()


def audit(place, *arguments):
    from ottla.spark_jobs.audit import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main([str(place), *arguments]) in (0, 1)


def read(place, view, columns, **options):
    from tests.spark.views import reader_of

    reader = reader_of(place, view, columns, **options)
    return sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))


def works(place):
    offset_key_value = ["offset", "key", "value"]
    yield "audit", lambda: audit(place)
    yield "audit --checks hanging", lambda: audit(place, "--checks", "hanging")
    yield "records, committed", lambda: read(place, "records", offset_key_value)
    yield "records, uncommitted", lambda: read(place, "records", offset_key_value, isolation_level="read_uncommitted")
    yield "batches", lambda: read(place, "batches", ["baseOffset"])
    yield "segments", lambda: read(place, "segments", ["path", "indexEntries", "abortedTransactions"])


def measure(work, requests, rounds):
    """Return the least seconds of the rounds, and the requests of the last."""
    seconds = []
    for _ in range(rounds):
        requests()
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
        asked = requests()
    return {"seconds": min(seconds), **{kind: asked[kind] for kind in REQUESTS}}


def main():
    parser = command_line(__doc__)
    parser.add_argument("--size-mib", type=parse_count, default=256)
    parser.add_argument("--delay-ms", type=float, default=30)
    parser.add_argument("--rounds", type=parse_count, default=3)
    parser.add_argument("--only", default="", help="what has this in its name")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        with arguments.serve.open("w", buffering=1) as log:
            serve(arguments.delay_ms, log)
    os.environ.update(KEYS)
    with tempfile.TemporaryDirectory(prefix="ottla-remote-") as scratch:
        root = Path(scratch) / "log"
        make_log(root, arguments.size_mib * 2**20)
        chosen = [name for name, _ in works(root) if arguments.only in name]
        check_chosen(chosen, arguments.only)
        for name, work in works(root):
            if name in chosen:
                work()  # compiles
        if arguments.format == "text":
            print(f"{'':24} {'seconds':>8} " + " ".join(f"{kind:>5}" for kind in REQUESTS))
        with late_store(root, arguments.delay_ms) as (uri, requests):
            for name, work in works(uri):
                if name not in chosen:
                    continue
                found = measure(work, requests, arguments.rounds)
                counts = " ".join(f"{found[kind]:5}" for kind in REQUESTS)
                line = f"{name:24} {found['seconds']:8.2f} {counts}"
                print(json.dumps({"what": name, **found}) if arguments.format == "json" else line, flush=True)


if __name__ == "__main__":
    main()
