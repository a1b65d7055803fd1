"""Real mail on this machine: Debian's Exim takes it, its Dovecot keeps it. Who says hello as `trusted.test`
has their domain proven, as a server does that checks signatures."""

from __future__ import annotations

import pwd
import shutil
import smtplib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import make_msgid
from pathlib import Path
from typing import Any

import pytest
from service_stage import ServiceOnTrial

EXIM, DOVECOT = (
    shutil.which("exim4", path="/usr/sbin:/usr/bin"),
    shutil.which("dovecot", path="/usr/sbin:/usr/bin"),
)
AGENT, ADA, BEN = "agent@example.test", "ada@example.test", "ben@example.test"

DOVECOT_CONF = """
protocols = imap
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/dovecot.log
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
first_valid_uid = 1
mail_location = maildir:{folder}/mail/%n
auth_mechanisms = plain login
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/home
}}
"""
EXIM_CONF = """
primary_hostname = mx.example.test
spool_directory = {folder}/spool
log_file_path = {folder}/spool/exim-%slog
pid_file_path = {folder}/spool/exim.pid
keep_environment =
daemon_smtp_ports = {smtp}
local_interfaces = 127.0.0.1
acl_smtp_rcpt = acl_rcpt
acl_smtp_data = acl_data
host_lookup =
rfc1413_hosts =
smtp_accept_max = 100
smtp_accept_queue_per_connection = 1000
message_size_limit = 50M
tls_advertise_hosts =
begin acl
acl_rcpt:
  deny message = no such user
       !local_parts = ada : ben : agent
  accept
acl_data:
  warn condition = ${{if eq{{$sender_helo_name}}{{trusted.test}}}}
       add_header = :at_start:Authentication-Results: mx.example.test; dmarc=pass
  accept
begin routers
people:
  driver = accept
  domains = example.test
  local_parts = ada : ben : agent
  transport = box
begin transports
box:
  driver = appendfile
  directory = {folder}/mail/$local_part_data
  maildir_format
  create_directory
  user = {user}
"""


class EmailServer(ServiceOnTrial):
    name = "email"
    owner = ADA
    group = "none"
    groups = edits = deletes = reacts = types = grows = faults = False
    most_chars = 100_000

    def __init__(self, folder: Path, smtp: int, imap: int) -> None:
        self._folder = folder
        self.smtp, self.imap = smtp, imap
        self._exim = _exim(folder)

    def channel(self) -> dict[str, Any]:
        options = {
            "address": AGENT,
            "username": "agent",
            "password": "secret",
            "imapHost": "127.0.0.1",
            "imapPort": self.imap,
            "imapTls": False,
            "smtpHost": "127.0.0.1",
            "smtpPort": self.smtp,
            "smtpTls": False,
            "takeAll": True,
            "trustedServer": "mx.example.test",
        }
        return {"options": options}

    def say(
        self,
        text: str,
        *,
        sender: str | None = None,
        file: tuple[str, str, bytes] | None = None,
        reply_to: str | None = None,
        hello: str = "trusted.test",
        subject: str = "",
        headers: dict[str, str] | None = None,
    ) -> str:
        who = BEN if sender == "8" else (sender or ADA)
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = who, AGENT, subject
        mail["Message-ID"] = made = make_msgid(domain="example.test")
        if not subject:  # without a subject of its own it goes on with the person's one thread
            mail["In-Reply-To"] = mail["References"] = reply_to or f"<thread-{who}>"
        for name, value in (headers or {}).items():
            mail[name] = value
        mail.set_content(text)
        if file is not None:
            name, mime, data = file
            main, _, kind = mime.partition("/")
            mail.add_attachment(data, maintype=main, subtype=kind, filename=name)
        with smtplib.SMTP("127.0.0.1", self.smtp, local_hostname=hello, timeout=60) as smtp:
            smtp.send_message(mail)
        return made

    @contextmanager
    def away(self) -> Iterator[None]:
        """The server for outgoing mail is down."""
        self._exim.terminate()
        self._exim.wait(30)
        try:
            yield
        finally:
            self._exim = _exim(self._folder)
            _wait_for(self.smtp, self._folder)

    def stop(self) -> None:
        self._exim.terminate()
        self._exim.wait(30)

    def mails(self, sender: str | None = None) -> list[EmailMessage]:
        """What came for a person, in the order in which it was taken. A mail that is sent again has the same
        id, by which programs for mail show it once."""
        who = BEN if sender == "8" else (sender or ADA)
        box = self._folder / "mail" / who.partition("@")[0]
        found = [path for part in ("new", "cur") for path in (box / part).glob("*")]
        found.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
        mails = [message_from_bytes(path.read_bytes(), policy=policy.default) for path in found]
        return list({str(mail["Message-ID"]): mail for mail in reversed(mails)}.values())[::-1]

    def shown(self, *, sender: str | None = None) -> list[str]:
        return [_shown(mail) for mail in self.mails(sender)]

    def last_id(self) -> str:
        return str(self.mails()[-1]["Message-ID"])


def _shown(mail: EmailMessage) -> str:
    body = mail.get_body(preferencelist=("plain",))
    names = [f"<file {part.get_filename()}>" for part in mail.iter_attachments()]
    return "\n".join([str(body.get_content()).strip() if body is not None else "", *names])


@contextmanager
def email(_: Path) -> Iterator[EmailServer]:
    """In a folder with a short name, which others may enter: the servers run as users of their own."""
    with tempfile.TemporaryDirectory(prefix="hf-mail-") as folder, _served(Path(folder)) as made:
        yield made


@contextmanager
def _served(folder: Path) -> Iterator[EmailServer]:
    if EXIM is None or DOVECOT is None:
        pytest.skip("exim4-daemon-light and dovecot-imapd are not installed")
    person = pwd.getpwnam("Debian-exim")
    smtp, imap = _free(), _free()
    given = {"folder": folder, "smtp": smtp, "imap": imap, "uid": person.pw_uid, "gid": person.pw_gid}
    folder.chmod(0o755)
    for name in ("spool", "mail", "home"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
    (folder / "dovecot.conf").write_text(DOVECOT_CONF.format(**given))
    (folder / "exim.conf").write_text(EXIM_CONF.format(**given, user=person.pw_name))
    dovecot = _started(DOVECOT, "-F", "-c", str(folder / "dovecot.conf"))
    made = EmailServer(folder, smtp, imap)
    try:
        for port in (smtp, imap):
            _wait_for(port, folder)
        yield made
    finally:
        made.stop()
        dovecot.terminate()
        dovecot.wait(30)


def _exim(folder: Path) -> subprocess.Popen[bytes]:
    assert EXIM is not None
    return _started(EXIM, "-bdf", "-odi", "-C", str(folder / "exim.conf"))


def _started(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(port: int, folder: Path) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError:
            told = "\n".join(path.read_text("utf-8", "replace") for path in folder.rglob("*mainlog"))
            assert time.monotonic() < end, told[-2000:]
            time.sleep(0.05)
        else:
            return
