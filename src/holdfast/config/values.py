"""Durations, sizes, times of day, zones and ids as they are written in the config file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, PlainSerializer, Strict
from pydantic_core import CoreSchema, core_schema

from holdfast.errors import ConfigError

MS_PER_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTES_PER_UNIT = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
LONGEST_MS = 100 * 365 * MS_PER_UNIT["d"]

_TERM = r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|w)"
_DURATION = re.compile(rf"(?:{_TERM}\s*)+", re.IGNORECASE)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(b|[kmg]i?b?)", re.IGNORECASE)
_TIME = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d|24:00")
DURATION_HINT = 'a duration such as "90s", "30m" or "1h 30m"'


class Duration(int):
    """A span of time in milliseconds, written as its shortest exact form ("90m", "1h", "250ms")."""

    __slots__ = ()

    def __str__(self) -> str:
        for unit in ("w", "d", "h", "m", "s"):
            if self and self % MS_PER_UNIT[unit] == 0:
                return f"{int(self) // MS_PER_UNIT[unit]}{unit}"
        return f"{int(self)}ms"

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Reads strings and whole milliseconds; the types below give bare numbers another unit."""
        return _duration_schema("ms")


def parse_duration(text: str) -> Duration:
    """Read "30m", "1h 30m" or "0.5s"; a sum of terms, each with its unit, in whole milliseconds."""
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError(f"expected {DURATION_HINT}")
    terms = re.findall(_TERM, text, re.IGNORECASE)
    total = sum(float(number) * MS_PER_UNIT[unit.lower()] for number, unit in terms)
    if total > LONGEST_MS:
        raise ValueError("expected a duration of at most 100 years")
    if total != int(total):
        raise ValueError("expected a duration of whole milliseconds")
    return Duration(total)


def parse_size(text: str) -> int:
    """Read "1MiB", "100 KB" or "512b" as bytes; every multiple is of 1024, `KB` as `KiB`."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError('expected a size such as 4096, "100KB" or "1MiB"')
    return int(float(match[1]) * BYTES_PER_UNIT[match[2][0].lower()])


def _to_duration(unit: str) -> Callable[[Any], Duration]:
    def read(value: Any) -> Duration:
        if isinstance(value, Duration):
            return value
        if isinstance(value, str):
            return parse_duration(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"expected {DURATION_HINT}")
        if not 0 <= value * MS_PER_UNIT[unit] <= LONGEST_MS:
            raise ValueError("expected a duration between 0 and 100 years")
        return Duration(value * MS_PER_UNIT[unit])

    return read


def _duration_schema(unit: str) -> CoreSchema:
    return core_schema.no_info_plain_validator_function(
        _to_duration(unit),
        json_schema_input_schema=core_schema.union_schema(
            [core_schema.str_schema(), core_schema.int_schema(ge=0)]
        ),
        serialization=core_schema.plain_serializer_function_ser_schema(
            str, return_schema=core_schema.str_schema()
        ),
    )


class _BareUnit:
    """Says which unit a bare number has in a key whose name does not tell."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _duration_schema(self.unit)


def _whole(unit: str) -> BeforeValidator:
    """A key that names its unit holds a plain int of it, and takes a duration string too."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        count, rest = divmod(parse_duration(value), MS_PER_UNIT[unit])
        if rest:
            raise ValueError(f"expected a whole number of the unit in the key's name ({unit})")
        return count

    return BeforeValidator(read, json_schema_input_type=int | str)


def _size(value: Any) -> Any:
    return parse_size(value) if isinstance(value, str) else value


def _zone(value: str) -> str:
    if value in ("user", "local"):
        return value
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError('expected "user", "local" or a zone such as "Europe/Rome"') from error
    return value


def _time_of_day(value: str) -> str:
    if not _TIME.fullmatch(value):
        raise ValueError('expected a time of day such as "09:00"')
    return value


Flag = Annotated[bool, Strict()]
Int = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=0)]
Positive = Annotated[int, Strict(), Field(ge=1)]
Num = Annotated[float, Strict()]
Ratio = Annotated[float, Strict(), Field(ge=0, le=1)]

DurationMs = Annotated[Duration, _BareUnit("ms")]
DurationMinutes = Annotated[Duration, _BareUnit("m")]

Ms = Annotated[int, Strict(), Field(ge=0, le=LONGEST_MS), _whole("ms")]
Seconds = Annotated[int, Strict(), Field(ge=0, le=LONGEST_MS // 1000), _whole("s")]
Minutes = Annotated[int, Strict(), Field(ge=0, le=LONGEST_MS // 60_000), _whole("m")]
Hours = Annotated[int, Strict(), Field(ge=0, le=LONGEST_MS // 3_600_000), _whole("h")]
Days = Annotated[int, Strict(), Field(ge=0, le=36_500), _whole("d")]
Bytes = Annotated[
    int, Strict(), Field(ge=0, le=1 << 50), BeforeValidator(_size, json_schema_input_type=int | str)
]

Zone = Annotated[str, AfterValidator(_zone)]
TimeOfDay = Annotated[str, AfterValidator(_time_of_day)]
Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
OutsideId = Annotated[str, Field(coerce_numbers_to_str=True, min_length=1, max_length=256)]
Names = tuple[str, ...]


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
