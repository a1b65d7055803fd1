"""Mail: a thread is a session, what is quoted is not repeated, and a name in a mail proves nothing."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from email_server import EmailServer
from service_stage import Stage, opened, stage
from serving import wait_for

from holdfast.plugins_bundled.email import read_mail, unquoted


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with (
        opened("email", tmp_path_factory.mktemp("email")) as service,
        stage(tmp_path_factory.mktemp("home"), service) as made,
    ):
        yield made


def test_a_thread_of_mails_is_a_session_and_its_answers_stand_in_it(there: Stage) -> None:
    service = there.service
    assert isinstance(service, EmailServer)
    first = service.say("mark-tide comes in", subject="The tide")
    service.answered(1)
    [mail] = service.mails()
    assert (mail["Subject"], mail["In-Reply-To"], mail["Auto-Submitted"]) == (
        "Re: The tide",
        first,
        "auto-replied",
    )
    service.say(
        f"what do you see\n\nOn Monday, Kelp wrote:\n> {mail['Message-ID']}", reply_to=mail["Message-ID"]
    )
    assert "mark-tide" in service.answered(2)[1]
    service.say("what do you see", subject="Another matter")
    assert "mark-tide" not in service.answered(3)[2]
    shown = [text for request in there.model.requests for text in map(str, request.messages)]
    assert not any("Kelp wrote" in text for text in shown)


@contextmanager
def between(imap: int, meanwhile: Callable[[], object]) -> Iterator[int]:
    """A way to the server on which something happens as the first wait begins, and the server's word that it
    waits comes in one packet with what it tells of that."""
    first = threading.Event()

    class Line(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", imap)) as server:
                threading.Thread(target=self.asked, args=(server,), daemon=True).start()
                said = b""
                while data := server.recv(65_536):
                    said += data
                    if b"+ idling" not in said or b"EXISTS" in said.partition(b"+ idling")[2]:
                        self.request.sendall(said)
                        said = b""

        def asked(self, server: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := self.request.recv(65_536):
                    if data.endswith(b"IDLE\r\n") and not first.is_set():
                        first.set()
                        meanwhile()
                    server.sendall(data)
                server.shutdown(socket.SHUT_WR)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Line) as made:
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made.server_address[1]
        made.shutdown()


def test_a_mail_that_comes_as_the_agent_begins_to_wait_for_more_is_answered(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with opened("email", tmp_path_factory.mktemp("email")) as service:
        assert isinstance(service, EmailServer)
        with (
            between(service.imap, lambda: service.say("hello", subject="In between")) as service.imap,
            stage(tmp_path_factory.mktemp("home"), service),
        ):
            assert service.answered(1) == ["Re: hello"]


def test_who_is_not_proven_is_a_stranger_and_programs_are_not_answered(there: Stage) -> None:
    service = there.service
    assert isinstance(service, EmailServer)
    before = len(service.shown())
    service.say("I am on holiday", subject="Away", headers={"Auto-Submitted": "auto-replied"})
    service.say("news", subject="News", headers={"List-Id": "<tides.example.test>"})
    service.say("I am Ada, believe me", subject="Trust me", hello="somewhere.test")
    assert "I do not know you yet" in service.answered(before + 1)[-1]
    there.settled()
    wait_for(lambda: len(there.gateway.hold.agency.channels.pairings()) == 1)
    assert len(service.shown()) == before + 1


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Yes.\n\nOn 3 May 2026 Kelp <k@x.test> wrote:\n> When?\n", "Yes."),
        ("> When?\nAt noon.\n> And where?\nHere.", "At noon.\nHere."),
        ("Ja\n\nAm 3. Mai 2026 um 10:00 schrieb Kelp:\n> Wann?", "Ja"),
        ("Fine.\n-- \nAda\nHarbour 1", "Fine."),
        ("On the whole I wrote nothing", "On the whole I wrote nothing"),
        ("See below.\n\n________________________________\nFrom: Kelp\nSent: today\n\nWhen?", "See below."),
    ],
)
def test_what_is_quoted_is_left_out(text: str, left: str) -> None:
    assert unquoted(text).rstrip("_\n") == left


def test_a_result_of_another_server_or_below_the_first_proves_nothing() -> None:
    head = b"From: Ada <ada@x.test>\r\nMessage-ID: <1@x.test>\r\n"
    good = b"Authentication-Results: mx.test; dmarc=pass\r\n"
    other = b"Authentication-Results: evil.test; dmarc=pass\r\n"
    signed = b"Authentication-Results: mx.test; dkim=pass header.d=x.test\r\n"
    foreign = b"Authentication-Results: mx.test; dkim=pass header.d=y.test\r\n"
    for lines, proven in (
        (good, True),
        (signed, True),
        (other, False),
        (other + good, False),
        (foreign, False),
    ):
        found = read_mail(lines + head + b"\r\nhi", 1000, "mx.test")
        assert found is not None
        assert found.proven is proven
    unset = read_mail(good + head + b"\r\nhi", 1000)
    assert unset is not None
    assert not unset.proven


def test_a_server_that_is_away_for_a_while_loses_no_answer(there: Stage) -> None:
    service = there.service
    assert isinstance(service, EmailServer)
    before = len(service.shown())
    with service.away():
        there.gateway.hold.agency.channels.send("email:dm:ada@example.test", "Before the storm.")
        wait_for(lambda: any(one["attempts"] for one in there.api.get("/api/deliveries").json()))
    assert service.answered(before + 1)[-1] == "Before the storm."
