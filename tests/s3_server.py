"""An S3 server in this process, and log directories in it. Needs the extra `conformance`."""

import os
from contextlib import contextmanager

import pytest


@contextmanager
def s3_server():
    """Yields (upload, query): `upload(directory, name)` returns the URI of a copy in a bucket of its own.

    Credentials are in the environment, as Arrow takes them, for as long as it runs.
    """
    pytest.importorskip("moto.server", reason="the conformance extra (moto) is not installed")
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    given = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    query = f"?endpoint_override={host}:{port}&scheme=http&region=us-east-1"

    def upload(directory, name):
        filesystem, _ = fs.FileSystem.from_uri(f"s3://{name}/{query}&allow_bucket_creation=true")
        filesystem.create_dir(name)
        fs.copy_files(str(directory), f"{name}/kafka/logs", fs.LocalFileSystem(), filesystem)
        return f"s3://{name}/kafka/logs{query}"

    try:
        yield upload, query
    finally:
        server.stop()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
