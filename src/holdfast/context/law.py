"""The law of the prompt: whatever stands in it may be read by everyone who will see the reply.

Everything that goes into a context has an audience, and everything that gathers it asks as the session's
reader. So this check never fires; where it does, something upstream is wrong, and an error is better than a
leak.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from holdfast.context.manifest import Section
from holdfast.errors import HoldfastError
from holdfast.log import Session

log = logging.getLogger(__name__)


class PromptLeak(HoldfastError):
    """A part of a prompt that not everyone who hears the reply may read; a fault of ours, never a user's."""

    code = "prompt_leak"


def check(session: Session, sections: Iterable[Section]) -> None:
    """Refuse a context in which anything stands that some hearer of the session may not read."""
    reader = session.reader
    if reader.audiences is None:
        return
    hidden = [one for one in sections if not reader.may_read(one.audience)]
    if hidden:
        named = ", ".join(f"{one.place}/{one.name} ({one.audience})" for one in hidden)
        log.error("the context of %s, heard by %s, held %s", session.key, session.audience, named)
        names = ", ".join(one.name for one in hidden)
        raise PromptLeak(
            f"the prompt held what not everyone in this chat may read: {names}",
            hint="Nothing was sent. Please report this: it is a fault in Holdfast.",
        )
