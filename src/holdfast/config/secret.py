"""Values that must never be shown: wrapped, resolved where used, masked in every dump."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, GetCoreSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema, core_schema

from holdfast.errors import ConfigError

MASK = "***"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_NAME = re.compile(
    r"(api_?key|token|secret|password|passwd|passphrase|credential|private_?key|authorization"
    r"|auth_?header|cookie|webhook_?url|signing)(s|_?value)?$",
    re.IGNORECASE,
)
_COUNTS = re.compile(r"(max|min|reserve|recent|threshold|cap|context|budget|chunk)\w*tokens$", re.I)
_URL_PASSWORD = re.compile(r"(\w[\w+.-]*://[^/\s:@]*):[^/\s]*@")


class Secret:
    """A secret, or `${NAME}` references to the environment; only `reveal` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self, env: Mapping[str, str]) -> str:
        """The text with every `${NAME}` taken from `env`; one that is not set is a ConfigError."""

        def look_up(match: re.Match[str]) -> str:
            value = env.get(match[1])
            if not value:
                raise ConfigError(
                    f"the config refers to ${{{match[1]}}}, which is not set",
                    hint=f"Set {match[1]} in the environment of the gateway.",
                )
            return value

        return _REFERENCE.sub(look_up, self._text)

    def is_text(self, text: str) -> bool:
        return self._text == text

    @property
    def in_clear(self) -> bool:
        """Whether the text itself tells the secret, rather than where it is found."""
        return bool(self._text) and self.public() != self._text and not _REFERENCE.search(self._text)

    def public(self) -> str:
        """What may be shown: a bare reference as it is written, anything else masked."""
        return self._text if _REFERENCE.fullmatch(self._text) else MASK

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.public()!r})"

    def __str__(self) -> str:
        return self.public()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    @classmethod
    def _read(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise ValueError("expected a string")
        return cls(value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._read,
            json_schema_input_schema=core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda secret: secret.public(), return_schema=core_schema.str_schema()
            ),
        )


class SecretUrl(Secret):
    """An address that may hold a password; all but the password may be shown."""

    __slots__ = ()

    def public(self) -> str:
        return without_password(self._text)


def without_password(text: str) -> str:
    """Mask the password of any address within a text."""
    return _URL_PASSWORD.sub(rf"\1:{MASK}@", text)


def is_secret_name(name: str) -> bool:
    """Whether a key's name says that its value is secret (`botToken`, `apiKey`; not `maxTokens`)."""
    return bool(_SECRET_NAME.search(name)) and not _COUNTS.search(name)


def wrap_secrets(value: Any, name: str = "") -> Any:
    """Free-form data with every string that is secret by its key's name, or an address, wrapped."""
    if isinstance(value, dict):
        return {inner: wrap_secrets(item, str(inner)) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [wrap_secrets(item, name) for item in value]
    if isinstance(value, str) and is_secret_name(name):
        return Secret(value)
    if isinstance(value, str) and without_password(value) != value:
        return SecretUrl(value)
    return value


def public_value(value: Any) -> Any:
    """Free-form data as it may be shown."""
    if isinstance(value, dict):
        return {name: public_value(item) for name, item in value.items()}
    if isinstance(value, list):
        return [public_value(item) for item in value]
    return value.public() if isinstance(value, Secret) else value


def reveal_all(value: Any, env: Mapping[str, str]) -> Any:
    """Free-form data as its owner (a plugin, a channel) needs it: every secret resolved."""
    if isinstance(value, dict):
        return {name: reveal_all(item, env) for name, item in value.items()}
    if isinstance(value, list):
        return [reveal_all(item, env) for item in value]
    return value.reveal(env) if isinstance(value, Secret) else value


FreeMap = Annotated[dict[str, Any], AfterValidator(wrap_secrets), PlainSerializer(public_value)]
FreeValue = Annotated[Any, AfterValidator(wrap_secrets), PlainSerializer(public_value)]
