"""A mail as a message: who wrote it, in which thread, what they wrote themselves, what is with it. Pure."""

from __future__ import annotations

import email.message
import re
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parseaddr
from typing import Any, Final

from holdfast.channels import File

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
