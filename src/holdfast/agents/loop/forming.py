"""Answers of a given form: what the model is told, whether an answer has it, and one chance to mend it.

Where the provider enforces the form this only looks on; where it does not, words and a look have to do.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.agents.loop.asks import Form, Terms
from holdfast.agents.models.types import ModelReply
from holdfast.context import Message, Text, Trust, UserMessage, fence
from holdfast.errors import InvalidInput, Unavailable

_FRAMED: Final = re.compile(r"\s*```[a-zA-Z0-9]*\n(.*)\n```\s*", re.DOTALL)
_MOST_FAULTS: Final = 5
_MOST_SHOWN: Final = 16_000


@dataclass(frozen=True, slots=True)
class Fit:
    """An answer held against its form: the JSON text alone, or why it is none."""

    text: str = ""
    faults: tuple[str, ...] = ()


def demanded(terms: Terms) -> tuple[Text, ...]:
    """The form in words, for models that nobody can make keep it."""
    if terms.form is None:
        return ()
    what = "one JSON object"
    if terms.form.schema is not None:
        schema = json.dumps(terms.form.schema, ensure_ascii=False)
        what = f"JSON that fits this JSON Schema:\n{schema}"
    text = f"Your reply to the user must be nothing but {what}"
    return (Text("form", text, Trust.USER, "request/response_format"),)


def require_schema(form: Form) -> None:
    """`InvalidInput` for what is no JSON Schema, or looks for parts of it elsewhere."""
    try:
        _validator(form)
    except ValueError as error:
        raise InvalidInput(
            f"response_format: not a JSON Schema that can be used: {str(error).splitlines()[0][:300]}",
            hint="Send a whole JSON Schema; references to other places are not followed.",
        ) from error


def fit(text: str, form: Form) -> Fit:
    """Pure. A frame of code around the JSON, or words before and after an object, are taken off."""
    found: Any = None
    said = ""
    for said in _candidates(text):
        try:
            found = json.loads(said, parse_constant=_no_number)
            break
        except (ValueError, RecursionError):
            continue
    else:
        return Fit(faults=("it is not JSON",))
    if form.schema is None:
        return Fit(said) if isinstance(found, dict) else Fit(faults=("it is not a JSON object",))
    faults = []
    for fault in _validator(form).iter_errors(found):
        faults.append(f"{'/'.join(map(str, fault.instance_path)) or 'the whole'}: {fault.message[:300]}")
        if len(faults) == _MOST_FAULTS:
            break
    return Fit(faults=tuple(faults)) if faults else Fit(said)


@dataclass(slots=True)
class Shape:
    """What one attempt's answer must be; a second answer that is not fails the turn."""

    terms: Terms
    _mended: bool = field(default=False)

    def mend(self, reply: ModelReply) -> Message | None:
        """What to tell the model when its last words are not what was asked for; None if they are."""
        why = self._unmet(reply)
        if why is None:
            return None
        if self._mended:
            raise Unavailable(
                f"the model did not answer in the form that was asked for: {why}",
                code="form_unmet",
                hint="Ask again, ask for less, or use a model whose provider enforces it.",
            )
        self._mended = True
        shown = fence(reply.text[:_MOST_SHOWN], Trust.MODEL, "answer")
        return UserMessage(text=f"{shown}\n\n[{why} Answer again.]", trust=Trust.OPERATOR, source="holdfast")

    def kept(self, reply: ModelReply) -> ModelReply:
        """The reply as it is given to who asked: the JSON alone."""
        if self.terms.form is None or reply.calls:
            return reply
        found = fit(reply.text, self.terms.form)
        return replace(reply, text=found.text) if found.text else reply

    def _unmet(self, reply: ModelReply) -> str | None:
        if self.terms.must_call:
            return f"You must call {' or '.join(self.terms.must_call)} now, and write nothing else."
        if self.terms.form is None:
            return None
        faults = fit(reply.text, self.terms.form).faults
        return f"That does not have the form that was asked for: {'; '.join(faults)}." if faults else None


def _candidates(text: str) -> list[str]:
    framed = _FRAMED.fullmatch(text)
    start, end = text.find("{"), text.rfind("}")
    inner = [text[start : end + 1]] if 0 <= start < end else []
    return [text.strip(), *([framed[1].strip()] if framed else []), *inner]


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _validator(form: Form) -> Any:
    """References are not followed: a schema is a stranger's, and must not make us call anywhere."""
    import jsonschema_rs

    return jsonschema_rs.validator_for(dict(form.schema or {}), retriever=_nowhere)


def _nowhere(uri: str) -> Any:
    raise ValueError(f"{uri[:200]} is not followed")
