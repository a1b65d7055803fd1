"""Email, on IMAPClient and aiosmtplib. A thread of mails is a session; one who writes is answered alone.

Anybody can write any name into a mail. Who is the owner is believed only where the mail server that
`trustedServer` names says that it checked the sender's domain (`Authentication-Results`: DMARC, or aligned
DKIM).

A mail as a message: who wrote it, in which thread, what they wrote themselves, what is with it. Pure.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.message
import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.channels import Abilities, ChannelContext, File, Inbound, Message, SendFailed, Surface
from holdfast.plugins import PluginApi
from holdfast.plugins_bundled.service import BAD_TOKEN_MS, ServiceChannel

if TYPE_CHECKING:
    from imapclient import IMAPClient


MOST_TEXT: Final = 200_000
_WROTE: Final = re.compile(
    r"^(on\b.{0,300}\bwrote|am\b.{0,300}\bschrieb.{0,80}|le\b.{0,300}\ba écrit\s*"
    r"|-{2,}\s*original message\s*-{2,})\s*:?\s*$",
    re.IGNORECASE,
)
_FROM: Final = re.compile(r"^(from|von|de):\s.+", re.IGNORECASE)
_ID: Final = re.compile(r"<[^<>\s]{1,300}>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """`root` names its thread. `automatic`: no person wrote it. `proven`: the sender's domain was checked."""

    id: str
    root: str
    references: tuple[str, ...]
    sender: str
    name: str | None
    subject: str
    text: str
    automatic: bool
    proven: bool
    files: tuple[File, ...] = ()
    left_out: tuple[str, ...] = ()


def read_mail(data: bytes, most_file_bytes: int, trusted: Any = None) -> Mail | None:
    """None for what is no mail that could be answered."""
    mail = message_from_bytes(data, policy=policy.default)
    name, sender = parseaddr(_header(mail, "From"))
    found = _ID.search(_header(mail, "Message-ID"))
    if "@" not in sender or found is None:
        return None
    above = tuple(_ID.findall(f"{_header(mail, 'References')} {_header(mail, 'In-Reply-To')}"))
    references = tuple(dict.fromkeys(above))
    files, left_out = _files(mail, most_file_bytes)
    return Mail(
        id=found[0],
        root=references[0] if references else found[0],
        references=references,
        sender=sender.lower(),
        name=name or None,
        subject=" ".join(_header(mail, "Subject").split())[:200],
        text=unquoted(_body(mail))[:MOST_TEXT],
        automatic=_is_automatic(mail),
        proven=bool(trusted) and _is_proven(mail, str(trusted), sender.rpartition("@")[2].lower()),
        files=files,
        left_out=left_out,
    )


def unquoted(text: str) -> str:
    """What the writer wrote: without what they quote beneath or between, and without their signature."""
    kept: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if line == "-- " or _WROTE.match(line.strip()):
            break
        if _FROM.match(line) and kept and not kept[-1].strip("_- "):
            break
        if not line.startswith(">"):
            kept.append(line.rstrip())
    made = "\n".join(kept).strip()
    return re.sub(r"\n{3,}", "\n\n", made)


def _header(mail: EmailMessage, name: str) -> str:
    try:
        return str(mail.get(name) or "")
    except (ValueError, LookupError, AttributeError):  # headers of strangers break the parser now and then
        return ""


def _body(mail: EmailMessage) -> str:
    part = mail.get_body(preferencelist=("plain", "html"))
    if part is None:
        return ""
    try:
        text = str(part.get_content())
    except (LookupError, ValueError, AttributeError):
        raw = part.get_payload(decode=True)
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else ""
    return _words_of_html(text) if part.get_content_type() == "text/html" else text


def _words_of_html(text: str) -> str:
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(text)
    for node in tree.css("blockquote, style, script, head"):
        node.decompose()
    return tree.body.text(separator="\n", strip=True) if tree.body is not None else ""


def _is_automatic(mail: EmailMessage) -> bool:
    submitted = _header(mail, "Auto-Submitted").strip().lower()
    listed = any(_header(mail, name) for name in ("List-Id", "List-Unsubscribe", "X-Auto-Response-Suppress"))
    bulk = _header(mail, "Precedence").strip().lower() in ("bulk", "junk", "list", "auto_reply")
    bounced = _header(mail, "Return-Path").strip() == "<>"
    return submitted not in ("", "no") or listed or bulk or bounced


def _is_proven(mail: EmailMessage, trusted: str, domain: str) -> bool:
    """The topmost result is the one that our own server wrote; those below it may be anybody's."""
    results = mail.get_all("Authentication-Results") or []
    said = " ".join(str(results[0]).lower().split()) if results else ""
    server, _, checks = said.partition(";")
    if server.split(" ")[0] != trusted.lower():
        return False
    aligned = re.search(r"\bdkim=pass\b[^;]*\bheader\.d=([\w.-]+)", checks)
    return re.search(r"\bdmarc=pass\b", checks) is not None or (aligned is not None and aligned[1] == domain)


def _files(mail: EmailMessage, most_bytes: int) -> tuple[tuple[File, ...], tuple[str, ...]]:
    files: list[File] = []
    left: list[str] = []
    for part in mail.iter_attachments():
        name = part.get_filename() or "attachment"
        data = _bytes(part)
        if data is None:
            continue
        if len(data) > most_bytes:
            left.append(f"{name}: it has {len(data):,} bytes, and {most_bytes:,} are the most")
        else:
            files.append(File(name, part.get_content_type(), data))
    return tuple(files), tuple(left)


def _bytes(part: email.message.Message) -> bytes | None:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else None


log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_CHARS: Final = 100_000
MOST_SENT_BYTES: Final = 20 * 1024**2
CALL_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 2.0
IDLE_ROUNDS: Final = 300  # ten minutes: servers end an IDLE of half an hour
POLL_SECONDS: Final = 30.0
MOST_MAIL_BYTES: Final = 40 * 1024**2
MOST_REFERENCES: Final = 20


@dataclass(frozen=True, slots=True)
class Thread:
    """What a mail that goes on with a thread must say."""

    subject: str
    last: str | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    host: str
    port: int
    tls: bool


class Email(ServiceChannel):
    """One mailbox."""

    extra = "email"
    libraries = ("aiosmtplib", "imapclient")
    needs = ("address",)

    abilities = Abilities(most_chars=MOST_CHARS, threads=True, most_file_bytes=MOST_SENT_BYTES, blocks=False)

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        import aiosmtplib
        import imapclient

        self._smtp, self._imap = aiosmtplib, imapclient
        options = context.options
        self._address = self.needed("address").lower()
        if "@" not in self._address:
            raise SendFailed(f"channel {self.name} has no options.address")
        self._user = self.option("username", self._address)
        self._password = self.option("password")
        self._in = _server(options, "imap", 993)
        self._out = _server(options, "smtp", 465)
        self._folder = self.option("mailbox", "INBOX")

    async def check(self) -> str:
        """Whether both servers let us in."""
        client = await self._connected()
        await _in_thread(client.logout)
        async with self._sender():
            return self._address

    async def run(self) -> None:
        """Take in what is new, then wait for more; what came while nobody listened is new too."""
        client = await self._connected()
        try:
            selected = await _in_thread(client.select_folder, self._folder)
            validity = int(selected[b"UIDVALIDITY"])
            last = self._came_to(validity, int(selected[b"UIDNEXT"]) - 1)
            can_idle = await _in_thread(client.has_capability, "IDLE")
            rounds = 1
            while True:
                before, last = last, await self._take_new(client, validity, last)
                rounds = 1 if last > before else min(2 * rounds, IDLE_ROUNDS)
                await (self._idled(client, rounds) if can_idle else asyncio.sleep(POLL_SECONDS))
        finally:
            with contextlib.suppress(Exception):
                client.shutdown()

    async def send(self, message: Message) -> str | None:
        thread = self._thread(message.surface)
        mail = self._mail(message, thread)
        try:
            async with self._sender() as smtp:
                await smtp.send_message(mail)
        except self._smtp.SMTPException as error:
            raise self._failure(error) from error
        except OSError as error:
            raise SendFailed(f"the mail server cannot be reached: {error}"[:300]) from error
        told = str(mail["Message-ID"])
        if message.surface.thread is not None:
            references = (*thread.references, *((thread.last,) if thread.last else ()))[-MOST_REFERENCES:]
            self._keep(message.surface, Thread(thread.subject, told, references))
        return told

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        """A thread with a subject of its own; it begins with the first mail that is sent there."""
        id_ = _digest(key)[:16]
        self._keep(surface.in_thread(id_), Thread(" ".join(name.split())[:200]))
        return id_

    @contextlib.asynccontextmanager
    async def _sender(self) -> Any:
        out = self._out
        smtp = self._smtp.SMTP(
            hostname=out.host,
            port=out.port,
            use_tls=out.tls and out.port == 465,
            timeout=CALL_SECONDS,
            start_tls=False if not out.tls else None,
        )
        try:
            await smtp.connect()
            if self._password and smtp.supports_extension("auth"):
                await smtp.login(self._user, self._password)
        except self._smtp.SMTPException as error:
            raise self._failure(error) from error
        except OSError as error:
            raise SendFailed(f"the mail server cannot be reached: {error}"[:300]) from error
        try:
            yield smtp
            with contextlib.suppress(self._smtp.SMTPException):  # what was said is said
                await smtp.quit()
        finally:
            smtp.close()

    def _failure(self, error: Exception) -> SendFailed:
        code = getattr(error, "code", None)
        if isinstance(error, self._smtp.SMTPRecipientsRefused):
            code = max((one.code for one in error.recipients), default=None)
        said = f"the mail server: {error}"[:300]
        if isinstance(error, self._smtp.SMTPAuthenticationError):
            return SendFailed(said, wait_ms=BAD_TOKEN_MS)
        return SendFailed(said, final=code is not None and code >= 500)

    def _mail(self, message: Message, thread: Thread) -> EmailMessage:
        mail = EmailMessage()
        mail["From"] = self._address
        mail["To"] = message.surface.peer
        mail["Subject"] = thread.subject or " ".join(message.text.split())[:80] or "A message"
        mail["Date"] = formatdate(localtime=False)
        mail["Message-ID"] = f"<{_digest(message.key)[:32]}@{self._address.partition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-replied"
        if thread.last is not None:
            mail["In-Reply-To"] = thread.last
            mail["References"] = " ".join((*thread.references, thread.last))
        mail.set_content(message.text)
        for file in message.files:
            main, _, sub = file.mime.partition("/")
            mail.add_attachment(file.data, maintype=main, subtype=sub or "octet-stream", filename=file.name)
        return mail

    async def _connected(self) -> IMAPClient:
        def connect() -> IMAPClient:
            server = self._in
            made = self._imap.IMAPClient(
                server.host, server.port, ssl=server.tls, use_uid=True, timeout=CALL_SECONDS
            )
            made.login(self._user, self._password)
            return made

        try:
            return await _in_thread(connect)
        except Exception as error:
            raise SendFailed(f"the mailbox cannot be opened: {error}"[:300]) from error

    async def _idled(self, client: IMAPClient, rounds: int) -> None:
        """Until the server says that something came, or for so many rounds. What it says in one breath with
        its word that it will is not heard, so where something came it is soon asked again."""
        await _in_thread(client.idle)
        for _ in range(rounds):
            if await _in_thread(client.idle_check, IDLE_SECONDS):
                break
        await _in_thread(client.idle_done)

    async def _take_new(self, client: IMAPClient, validity: int, last: int) -> int:
        found = await _in_thread(client.search, ["UID", f"{last + 1}:*"])
        for uid in sorted(number for number in found if number > last):
            await self._take(client, uid)
            last = uid
            self.write_state("uids.json", {"validity": validity, "last": last})
        return last

    async def _take(self, client: IMAPClient, uid: int) -> None:
        sized = await _in_thread(client.fetch, [uid], ["RFC822.SIZE"])
        if uid not in sized or sized[uid][b"RFC822.SIZE"] > MOST_MAIL_BYTES:
            log.warning("channel %s: mail %d is gone or too large to be read", self.name, uid)
            return
        data = (await _in_thread(client.fetch, [uid], ["BODY.PEEK[]"]))[uid][b"BODY[]"]
        mail = read_mail(data, self._context.most_file_bytes, self._context.options.get("trustedServer"))
        if mail is None or mail.automatic or mail.sender == self._address:
            return  # what no person wrote is never answered: two programs would answer each other for ever
        await self._context.take(self._inbound(mail))
        await _in_thread(client.add_flags, [uid], [b"\\Seen"])

    def _inbound(self, mail: Mail) -> Inbound:
        """The mail as a message of its thread, whose subject and last mail are kept for the answer."""
        thread = _digest(mail.root)[:16]
        surface = self._context.surface("dm", mail.sender, thread)
        known = self._known_thread(mail, surface)
        subject = mail.subject if mail.subject.lower().startswith("re:") else f"Re: {mail.subject}"
        self._keep(known, Thread(subject, mail.id, mail.references[-MOST_REFERENCES:]))
        return Inbound(
            surface=known,
            message_id=mail.id,
            sender=mail.sender,
            sender_name=mail.name,
            text=mail.text if mail.references else f"{mail.subject}\n\n{mail.text}".strip(),
            mentioned=True,
            files=mail.files,
            left_out=mail.left_out,
            proven=mail.proven,
        )

    def _known_thread(self, mail: Mail, surface: Surface) -> Surface:
        """The thread that a mail goes on with: of one that we began, too."""
        for id_ in reversed(mail.references):
            found = self.read_state(f"mails/{_digest(id_)}.json")
            if found is not None and found.get("peer") == surface.peer:
                return surface.in_thread(str(found["thread"]))
        return surface

    def _thread(self, surface: Surface) -> Thread:
        found = None if surface.thread is None else self.read_state(self._place(surface))
        if found is None:
            return Thread("")
        return Thread(str(found["subject"]), found["last"], tuple(found["references"]))

    def _keep(self, surface: Surface, thread: Thread) -> None:
        """Written before a mail is handed in, so that its answer finds it; and by each mail's id, for who
        answers that one."""
        self.write_state(self._place(surface), asdict(thread))
        if thread.last is not None:
            told = {"thread": surface.thread, "peer": surface.peer}
            self.write_state(f"mails/{_digest(thread.last)}.json", told)

    @staticmethod
    def _place(surface: Surface) -> str:
        return f"threads/{_digest(f'{surface.peer} {surface.thread}')}.json"

    def _came_to(self, validity: int, newest: int) -> int:
        """The last mail that was taken in. Of a mailbox that is new to us what is there is left alone, but
        for one that is the agent's own (`takeAll`)."""
        kept = self.read_state("uids.json")
        if kept is not None and kept.get("validity") == validity:
            return int(kept["last"])
        if self._context.options.get("takeAll"):
            return 0
        self.write_state("uids.json", {"validity": validity, "last": newest})
        return newest


def _server(options: Mapping[str, Any], kind: str, port: int) -> Server:
    host = str(options.get(f"{kind}Host") or "")
    if not host:
        raise SendFailed(f"options.{kind}Host is not set")
    return Server(host, int(options.get(f"{kind}Port") or port), bool(options.get(f"{kind}Tls", True)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def _in_thread(work: Callable[..., T], *args: Any) -> T:
    """The IMAP library waits; the loop of the plugin does not."""
    return await asyncio.to_thread(work, *args)


def register(api: PluginApi) -> None:
    api.register_channel("email", Email)
