"""The gateway: HTTP and live streams over the rooms."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.gateway.app import create_app
    from holdfast.gateway.server import listen, serve

__all__ = ["create_app", "listen", "serve"]


def __getattr__(name: str) -> Any:
    """Only who serves pays for all the routes; a command that lists tokens does not."""
    if name == "create_app":
        from holdfast.gateway import app as holder
    elif name in __all__:
        from holdfast.gateway import server as holder  # type: ignore[no-redef]
    else:
        raise AttributeError(name)
    return getattr(holder, name)
