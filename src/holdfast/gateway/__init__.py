"""The gateway: HTTP and live streams over the rooms."""

from holdfast.gateway.app import create_app
from holdfast.gateway.server import listen, serve

__all__ = ["create_app", "listen", "serve"]
