"""JSON-RPC 2.0 over a WebSocket: what `/ws` speaks."""

from holdfast.gateway.rpc.connection import Connection

__all__ = ["Connection"]
