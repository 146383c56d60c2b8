"""Runs a Python process for Spark as `python -m MODULE ...` would, but connects to Spark before it imports anything.

A stream has processes of its own, and Spark gives each ten seconds to connect, whatever else the machine does
(`PythonWorkerFactory.createSimpleWorker`): PySpark's imports alone may take longer.
"""

import os
import runpy
import socket
import sys


def main(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    from pyspark import util

    connect = util.local_connect_and_auth

    def connect_early(conn_info, auth_secret):
        if conn_info != path:
            return connect(conn_info, auth_secret)
        return connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))), connection

    util.local_connect_and_auth = connect_early
    _, _, *sys.argv = sys.argv  # as behind `-m`
    sys.path[0] = ""
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if "PYTHON_WORKER_FACTORY_SOCK_PATH" in os.environ:
        main(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
    else:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def program(folder):
    """Write an executable in `folder` that replaces Python in `PYSPARK_PYTHON`."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    path.chmod(0o755)
    return str(path)
