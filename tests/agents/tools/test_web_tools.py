"""`web_fetch` and `web_search`: nothing nearer than the open internet, whatever names and redirects try."""

from __future__ import annotations

import gzip
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_world import World, world

from holdfast.agents.tools import Toolbox
from holdfast.agents.tools.fetching import Fetcher, address_refusal
from holdfast.agents.tools.readable import readable
from holdfast.agents.tools.web_tools import WebSearch
from holdfast.context import Trust

Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def serving(
    answer: Callable[[BaseHTTPRequestHandler], Answer],
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def names() -> dict[str, list[str]]:
    return {}


@pytest.fixture
def web(tmp_path: Path, sqlite_template: Path, names: dict[str, list[str]]) -> Iterator[World]:
    """Names are looked up in a table; 127.0.0.2 passes for a machine of the open internet."""

    async def resolve(host: str, _port: int) -> list[str]:
        return names.get(host, [])

    fetcher = Fetcher(resolve, lambda ip: None if ip == "127.0.0.2" else address_refusal(ip))
    with world(tmp_path, sqlite_template, fetcher) as made:
        yield made


@pytest.mark.parametrize(
    "address",
    """127.0.0.1 127.8.9.10 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 192.168.1.1 169.254.1.1
    169.254.169.254 100.64.0.1 224.0.0.1 240.0.0.1 255.255.255.255 192.0.2.1 198.18.0.1 :: ::1
    fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1
    ::ffff:169.254.169.254 64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1:: 2001::1 ::127.0.0.1
    2001:db8::1 fec0::1 3fff::1 168.63.129.16 192.0.0.192 192.88.99.1 ::ffff:0:7f00:1 5f00::1
    not-an-address""".split(),  # noqa: SIM905
)
def test_an_address_that_is_not_of_the_open_internet_is_refused(address: str) -> None:
    assert address_refusal(address) is not None


@given(st.integers(0, 2**32 - 1))
def test_whatever_is_not_global_is_refused_in_every_spelling(number: int) -> None:
    address = ip_address(number)
    mapped = f"::ffff:{address}"
    assert (address_refusal(str(address)) is None) == (address_refusal(mapped) is None)
    if not address.is_global:
        assert address_refusal(str(address)) is not None
    assert address_refusal(str(ip_address((0x64FF9B << 96) | number))) is not None
    assert address_refusal(str(ip_address((0x2002 << 112) | (number << 80)))) is not None


def test_private_addresses_may_be_opened_but_never_a_metadata_service() -> None:
    assert address_refusal("8.8.8.8") is None
    assert address_refusal("2606:4700::1111") is None
    assert address_refusal("192.168.1.1", allow_private=True) is None
    assert address_refusal("169.254.169.254", allow_private=True) is not None
    assert address_refusal("::1", allow_private=True) is None
    for spelling in ("::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "::a9fe:a9fe"):
        assert address_refusal(spelling, allow_private=True) is not None
    for service in ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"):
        assert address_refusal(service, allow_private=True) is not None


def test_a_page_is_fetched_from_the_address_that_was_checked_under_its_own_name(
    web: World, names: dict[str, list[str]]
) -> None:
    page = b"<title>Herons</title><h1>Herons</h1><p>They <a href='/stand'>stand</a>.</p><script>x()</script>"
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        asked.append(request.headers["Host"] + request.path)
        return (
            200,
            {"Content-Type": "text/html; charset=utf-8", "Content-Encoding": "gzip"},
            gzip.compress(page),
        )

    with serving(answer, "127.0.0.2") as port:
        names["birds.example"] = ["127.0.0.2"]
        result = web.call("web_fetch", {"url": f"http://birds.example:{port}/a?b=c#d"})
    assert asked == [f"birds.example:{port}/a?b=c"]
    assert result.trust is Trust.OUTSIDE
    assert not result.is_error
    assert "Title: Herons" in result.text
    assert f"# Herons\n\nThey [stand](http://birds.example:{port}/stand)." in result.text
    assert "x()" not in result.text


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_over_tls_the_certificate_is_checked_against_the_name_and_not_the_address(
    tmp_path: Path, sqlite_template: Path
) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=birds"
    )
    alt = ["-addext", "subjectAltName=DNS:birds.example", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make.split(), *alt], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    named: list[str] = []
    server.sni_callback = lambda _socket, name, _context: named.append(name)

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.2"]

    fetcher = Fetcher(resolve, lambda _: None, lambda: ssl.create_default_context(cafile=str(cert)))
    answer = (200, {"Content-Type": "text/plain"}, b"sealed")
    with (
        world(tmp_path, sqlite_template, fetcher) as made,
        serving(lambda _: answer, "127.0.0.2", server) as port,
    ):
        assert "sealed" in made.ok("web_fetch", {"url": f"https://birds.example:{port}/"})
        said = made.refused("web_fetch", {"url": f"https://other.example:{port}/"})
    assert "not valid for 'other.example'" in said
    assert named == ["birds.example", "other.example"]


def test_names_numbers_and_redirects_that_lead_inside_are_refused_unasked(
    web: World, names: dict[str, list[str]]
) -> None:
    asked: list[str] = []
    targets: dict[str, str] = {}

    def inner(request: BaseHTTPRequestHandler) -> Answer:
        asked.append(request.path)
        return 200, {"Content-Type": "text/plain"}, b"the inner secret"

    def outer(request: BaseHTTPRequestHandler) -> Answer:
        return 302, {"Location": targets[request.path]}, b""

    with serving(inner) as inside, serving(outer, "127.0.0.2") as port:
        names |= {
            "open.example": ["127.0.0.2"],
            "rebound.example": ["127.0.0.1"],
            "half.example": ["127.0.0.2", "10.0.0.1"],
            "0x7f.1": ["127.0.0.1"],
            "2130706433": ["127.0.0.1"],
        }
        targets |= {
            "/1": f"http://127.0.0.1:{inside}/",
            "/2": f"http://rebound.example:{inside}/",
            "/3": f"http://[::ffff:127.0.0.1]:{inside}/",
            "/4": "file:///etc/passwd",
            "/5": "http://user:pass@open.example/",
            "/6": f"//rebound.example:{inside}/x",
            "/7": "/7",
        }
        urls = [
            f"http://127.0.0.1:{inside}/",
            f"http://[::1]:{inside}/",
            f"http://rebound.example:{inside}/",
            f"http://half.example:{port}/",
            f"http://0x7f.1:{inside}/",
            f"http://2130706433:{inside}/",
            "http://169.254.169.254/latest/meta-data/",
            "http://nowhere.example/",
            "file:///etc/passwd",
            "ftp://open.example/",
            f"http://ann:secret@open.example:{port}/",
            "not a url",
            "http://",
            *(f"http://open.example:{port}{path}" for path in targets),
        ]
        for url in urls:
            assert "the inner secret" not in web.refused("web_fetch", {"url": url})
        said = web.refused("web_fetch", {"url": f"http://half.example:{port}/1"})
        assert "it is in a private network (10.0.0.1)" in said
    assert asked == []


def test_what_a_page_may_cost_is_bounded(web: World, names: dict[str, list[str]]) -> None:
    names["big.example"] = ["127.0.0.2"]
    bodies: dict[str, Answer] = {
        "/bomb": (
            200,
            {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
            gzip.compress(b"a" * 10**7),
        ),
        "/long": (200, {"Content-Type": "text/plain"}, b"word " * 100_000),
        "/deep": (200, {"Content-Type": "text/html"}, b"<div>" * 30_000 + b"<b>deep</b>"),
        "/zip": (200, {"Content-Type": "application/zip"}, b"PK"),
        "/gone": (404, {"Content-Type": "text/plain"}, b"no such page"),
        "/json": (200, {"Content-Type": "application/json"}, json.dumps({"a": [1]}).encode()),
        "/broken": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, b"not gzip"),
    }
    web.configure(tools={"web": {"fetch": {"maxBytes": 200_000, "maxChars": 1_000}}})
    with serving(lambda request: bodies[request.path], "127.0.0.2") as port:

        def get(path: str) -> str:
            return web.call("web_fetch", {"url": f"http://big.example:{port}{path}"}).text

        for path in ("/bomb", "/long"):
            assert len(get(path)) < 1_200
            assert "[cut: " in get(path)
        assert get("/deep").strip().endswith("deep")
        assert "application/zip, not text" in get("/zip")
        assert "Status: 404\n\nno such page" in get("/gone")
        assert '"a": [\n' in get("/json")
        assert "broke off" in get("/broken")
    web.configure(tools={"web": {"fetch": {"enabled": False}}})
    assert "web_fetch" not in {spec.name for spec in web.toolbox.offered(web.caller())}


def test_a_page_that_never_ends_is_given_up(web: World, names: dict[str, list[str]]) -> None:
    names["slow.example"] = ["127.0.0.2"]
    over = threading.Event()

    def answer(_: BaseHTTPRequestHandler) -> Answer:
        over.wait(20)
        return 200, {}, b""

    web.configure(tools={"web": {"fetch": {"timeoutSeconds": 1}}})
    with serving(answer, "127.0.0.2") as port:
        said = web.refused("web_fetch", {"url": f"http://slow.example:{port}/"})
        over.set()
    assert "no answer within 1 s" in said


def test_the_local_network_is_reached_where_the_operator_allows_it(here: World) -> None:
    here.configure(tools={"web": {"fetch": {"allowPrivateNetwork": True}}})
    with serving(lambda _: (200, {"Content-Type": "text/plain"}, b"from the shelf")) as port:
        assert "from the shelf" in here.ok("web_fetch", {"url": f"http://127.0.0.1:{port}/"})
        assert "from the shelf" in here.ok("web_fetch", {"url": f"http://localhost:{port}/"})


def test_what_a_reader_would_not_see_is_not_in_the_text() -> None:
    page = """<html><body><nav>menu</nav><h2>List</h2><ul><li>one<li>two<ol><li>in</ol></ul>
    <p hidden>ghost</p><p style="display:none">ghost</p><div aria-hidden="true">ghost</div><!-- ghost -->
    <pre>a  b
 c</pre><table><tr><th>A<th>B<tr><td>1<td>2</table><a href="javascript:x()">click</a></body></html>"""
    text = readable(page, "https://e.org/").text
    assert "ghost" not in text
    assert "menu" not in text
    assert "javascript" not in text
    assert "## List\n\n- one\n- two\n  1. in\n\n```\na  b\n c\n```\n\nA | B\n1 | 2\n" in text


@given(st.text(alphabet="<>/abdivpre \"'=!-\n", max_size=300))
def test_no_page_is_too_broken_to_be_read(html: str) -> None:
    assert isinstance(readable(html, "https://e.org/").text, str)


def test_the_web_is_searched_through_the_service_that_was_chosen(here: World) -> None:
    results = [{"title": f"T{n}", "url": f"https://e.org/{n}", "content": "some words"} for n in range(9)]
    asked: list[str] = []
    keys: list[str | None] = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        if "flood" in request.path:
            return 200, {"Content-Type": "application/json"}, b" " * (3 * 1024**2)
        asked.append(request.path)
        keys.append(request.headers["X-Subscription-Token"])
        found = {"web": {"results": results}} if request.path.startswith("/brave") else {"results": results}
        return 200, {"Content-Type": "application/json"}, json.dumps(found).encode()

    assert "not available" in here.refused("web_search", {"query": "herons"})
    with serving(answer) as port:
        search = {"enabled": True, "provider": f"http://127.0.0.1:{port}/", "maxResults": 3}
        here.configure(tools={"web": {"search": search}})
        result = here.call("web_search", {"query": "grey herons"})
        assert "more than" in here.refused("web_search", {"query": "flood"})
        brave = {"enabled": True, "provider": "brave", "apiKey": "brave-key-1"}
        here.configure(tools={"web": {"search": brave}})
        here.toolbox = Toolbox(here.parts.threads, here.parts.store, here.parts.outputs())
        here.toolbox.register(WebSearch(f"http://127.0.0.1:{port}/brave").tool())
        results[:] = []
        assert here.ok("web_search", {"query": "x", "count": 2}) == "Nothing was found."
    assert asked == ["/search?q=grey+herons&format=json", "/brave?q=x&count=2"]
    assert keys == [None, "brave-key-1"]
    assert result.trust is Trust.OUTSIDE
    assert result.text.splitlines()[:3] == ["1. T0", "   https://e.org/0", "   some words"]
    assert "T3" not in result.text
