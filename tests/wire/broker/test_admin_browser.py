"""A real browser and the admin port: a page of another site cannot use the port in any way."""

import html
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from served import Served

from ottla.testkit.kit.admin import Admin

# Each attempt alone would freeze the broker's time or read the identity of the broker.
PAGE = """<!doctype html><title>trying</title>
<iframe name="hidden"></iframe>
<form id="form" method="post" target="hidden" action="ADMIN/v1/clock/freeze" enctype="text/plain"></form>
<script>
  const told = {};
  const attempt = async (name, ask) => {
    try { const answer = await ask(); told[name] = answer.status + " " + await answer.text(); }
    catch (error) { told[name] = "nothing"; }
  };
  addEventListener("load", async () => {
    document.getElementById("form").submit();
    const freeze = "ADMIN/v1/clock/freeze", json = {"Content-Type": "application/json"};
    await attempt("read", () => fetch("ADMIN/v1/broker"));
    await attempt("read blindly", () => fetch("ADMIN/v1/broker", {mode: "no-cors"}));
    await attempt("post", () => fetch(freeze, {method: "POST"}));
    await attempt("post blindly", () => fetch(freeze, {method: "POST", mode: "no-cors"}));
    await attempt("post JSON", () => fetch(freeze, {method: "POST", headers: json, body: "{}"}));
    await attempt("beacon", async () => { navigator.sendBeacon(freeze); return {status: 0, text: () => ""}; });
    for (const tag of ["img", "script"]) {
      const element = document.createElement(tag);
      element.src = "ADMIN/v1/broker";
      const seen = new Promise((resolve) => { element.onload = () => resolve("loaded"); element.onerror = resolve; });
      document.body.append(element);
      told[tag] = (await seen) === "loaded" ? "loaded" : "nothing";
    }
    document.title = JSON.stringify(told);
  });
</script>"""

LINKING = """<!doctype html><title>linking</title><a href="ADMIN/">the picture</a>"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("admin") / "data", "--admin-listen", "127.0.0.1:0", "--test-control")
    served.ready()
    served.admin = Admin(served.process.stdout.readline().removeprefix("admin ").strip())
    served.admin_port = int(served.admin.url.rpartition(":")[2])
    yield served
    served.end()
    served.process.communicate()


@pytest.fixture(scope="module")
def page_port(broker):
    """Serve the page on another port than the broker's, and return the port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            page = LINKING if self.path == "/link" else PAGE
            content = page.replace("ADMIN", broker.admin.url).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            """Ignore log lines."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


# Every name resolves to this machine, as a name of an attacker may (DNS rebinding).
BORROWED = "--host-resolver-rules=MAP evil.example 127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "evil.example"])
def test_a_page_of_another_site_can_neither_ask_nor_steer(browser, broker, page_port, host):
    drawn = browser(BORROWED, "--dump-dom", f"http://{host}:{page_port}/").stdout
    told = json.loads(html.unescape(drawn.partition("<title>")[2].partition("</title>")[0]))
    assert set(told) == {"read", "read blindly", "post", "post blindly", "post JSON", "beacon", "img", "script"}
    assert all(what in ("nothing", "0 ") for what in told.values()), told
    assert not broker.admin.get("/v1/clock")["frozen"]


def test_a_name_that_leads_here_is_no_way_in(browser, broker):
    drawn = browser(BORROWED, "--dump-dom", f"http://evil.example:{broker.admin_port}/v1/broker").stdout
    assert f"The Host header evil.example:{broker.admin_port} is not a name of this port" in drawn
    assert "cluster_id" not in drawn


def test_a_browser_that_opens_the_address_gets_a_reply(browser, broker):
    drawn = browser("--dump-dom", f"{broker.admin.url}/v1/broker").stdout
    assert '"cluster_id"' in drawn


def test_a_link_of_another_site_opens_the_page(tab, broker, page_port):
    tab.open(f"http://127.0.0.1:{page_port}/link")
    tab.value("document.querySelector('a').click()")
    tab.until(f"location.href.startsWith('{broker.admin.url}/') && document.title === 'Ottla'")
    tab.until("document.querySelector('#connection').dataset.state === 'live'")
