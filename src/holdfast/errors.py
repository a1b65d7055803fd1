"""The one exception tree of Holdfast.

    HoldfastError
    ├── InvalidInput        the caller sent something that cannot be used
    │   └── ConfigError     ... in the config file, with the path of the key
    ├── Unauthorized        no token, or one that does not hold
    ├── Forbidden           a good token that may not do this
    ├── NotFound            no such thing, or none that the caller may see
    ├── Conflict            the state of the thing does not allow this now
    ├── TooLarge            over a size limit
    ├── Busy                a bound was reached; try again later
    └── Unavailable         the store or a peer cannot be reached or written
        └── Transient       ... for a moment: the same may be tried again as it is

Each error has a stable `code` for programs and a `hint` that tells a person how to mend it. The HTTP
and the command-line forms are made from these fields in one place each.
"""

from __future__ import annotations

from typing import ClassVar


class HoldfastError(Exception):
    """Root of all errors that Holdfast raises on purpose."""

    code: str = "error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, code: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        """Between processes it goes with all that it says."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class InvalidInput(HoldfastError):
    code = "invalid_input"
    status = 422


class ConfigError(InvalidInput):
    code = "invalid_config"


class Unauthorized(HoldfastError):
    code = "unauthorized"
    status = 401


class Forbidden(HoldfastError):
    code = "forbidden"
    status = 403


class NotFound(HoldfastError):
    code = "not_found"
    status = 404


class Conflict(HoldfastError):
    code = "conflict"
    status = 409


class TooLarge(HoldfastError):
    code = "too_large"
    status = 413


class Busy(HoldfastError):
    code = "busy"
    status = 429


class Unavailable(HoldfastError):
    code = "unavailable"
    status = 503


class Transient(Unavailable):
    """A passing trouble of the store, and no failure of the work that met it.

    Nothing was written, unless `in_doubt`: then the commit was sent and its answer lost.
    """

    code = "store_unreachable"

    def __init__(
        self, message: str, *, code: str | None = None, hint: str = "", in_doubt: bool = False
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.in_doubt = in_doubt


def problem_error(status: int, problem: object) -> HoldfastError:
    """The error that a problem document tells of, so that a client says what its gateway said."""
    told = problem if isinstance(problem, dict) else {}
    kinds = {kind.status: kind for kind in reversed(HoldfastError.__subclasses__())}
    kind = kinds.get(status, InvalidInput if status < 500 else Unavailable)
    detail = str(told.get("detail") or f"the gateway answered {status}")
    return kind(detail, code=str(told.get("code") or kind.code), hint=str(told.get("hint") or ""))
