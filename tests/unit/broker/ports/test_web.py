"""Fetching a URL returns its content, within limits, or a reason for the failure."""

import http.server
import socket
import threading
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from ottla.broker.ports.web import Web, fetch
from tests.irregular_files import KINDS, WORDS

TIMEOUT_S = 30.0


@contextmanager
def serving(answer):
    """Start a server that answers every request in this way, and yield its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answer(self)

        def log_message(self, *about):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/keys"
        finally:
            server.shutdown()
            thread.join()


def content(handler, body=b"keys"):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_a_page_is_had():
    with serving(content) as url:
        assert fetch(url, 4, TIMEOUT_S) == b"keys"


def test_a_file_is_had(tmp_path):
    file = tmp_path / "with blank"
    file.write_bytes(b"keys")
    assert fetch(file.as_uri(), 4, TIMEOUT_S) == b"keys"
    with pytest.raises(OSError, match="at most 3"):
        fetch(file.as_uri(), 3, TIMEOUT_S)
    with pytest.raises(FileNotFoundError):
        fetch((tmp_path / "none").as_uri(), 3, TIMEOUT_S)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unfit_file_is_refused_with_its_path_in_the_error(tmp_path, kind):
    place = tmp_path / "keys.json"
    KINDS[kind](place)
    with pytest.raises(OSError, match=WORDS[kind]) as raised:
        fetch(place.as_uri(), 1 << 20, TIMEOUT_S)
    assert str(place) in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def without_end(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"x" * 65_536)
    except OSError:
        pass


def redirect(handler):
    handler.send_response(302)
    handler.send_header("Location", "file:///etc/passwd")
    handler.end_headers()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (without_end, "more than 1000 bytes"),
        (redirect, "the server answers 302"),
        (lambda handler: handler.send_error(404), "the server answers 404"),
        (lambda handler: handler.wfile.write(b"what?\r\n\r\n"), "cannot be read|BadStatusLine"),
        (lambda handler: None, "."),
    ],
    ids=["without end", "moved", "not there", "no HTTP", "nothing"],
)
def test_a_bad_http_response_raises_an_error_with_the_reason(answer, why):
    with serving(answer) as url, pytest.raises(OSError, match=why):
        fetch(url, 1_000, TIMEOUT_S)


def test_fetching_from_a_closed_port_raises_oserror():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(OSError):
        fetch(f"http://127.0.0.1:{port}/", 1_000, TIMEOUT_S)


def test_a_call_runs_in_a_thread_of_its_own():
    told = SimpleQueue()
    web = Web(lambda callback: callback())
    web.start(threading.current_thread, lambda answer, failure: told.put((answer, failure)))
    thread, failure = told.get(timeout=TIMEOUT_S)
    assert thread is not threading.current_thread() and failure is None
    web.start(lambda: 1 // 0, lambda answer, failure: told.put((answer, type(failure))))
    assert told.get(timeout=TIMEOUT_S) == (None, ZeroDivisionError)
