"""Markdown as agents write it in the few tags that Telegram shows. Pure."""

from __future__ import annotations

import re
from html import escape
from typing import Final

_FENCE: Final = re.compile(r"^```([^\n`]*)\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_BOLD: Final = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_HEADING: Final = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]\n]+)\]\((https?://[^\s)]+)\)")


def html(text: str) -> str:
    """Code blocks, code, bold, headings and links; all else as it stands. Never longer once it is shown."""
    made: list[str] = []
    end = 0
    for fence in _FENCE.finditer(text):
        made.append(_inline(text[end : fence.start()]))
        language = escape(fence[1].strip().split(" ")[0], quote=True)
        opening = f'<pre><code class="language-{language}">' if language else "<pre><code>"
        made.append(f"{opening}{escape(fence[2].rstrip(chr(10)), quote=False)}</code></pre>")
        end = fence.end()
    made.append(_inline(text[end:]))
    return "".join(made)


def _inline(text: str) -> str:
    made: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        made.append(_words(text[end : code.start()]))
        made.append(f"<code>{escape(code[1], quote=False)}</code>")
        end = code.end()
    made.append(_words(text[end:]))
    return "".join(made)


def _words(text: str) -> str:
    text = escape(text, quote=False)
    text = _HEADING.sub(r"<b>\1</b>", text)
    text = _BOLD.sub(r"<b>\1</b>", text)
    return _LINK.sub(lambda m: f'<a href="{m[2].replace(chr(34), "%22")}">{m[1]}</a>', text)
