"""Logging in to a server that asks for it, with the SDK's own authorization server on loopback."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    ProviderTokenVerifier,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from stranger import server

from builders import PATIENCE
from holdfast.agents.mcp.connection import connected, listed, told
from holdfast.agents.mcp.transports import come_back, provider
from holdfast.config.tools import McpServer
from holdfast.gateway import listen


class Issuer:
    """Grants whatever is asked for, to whoever opens its page. Refresh tokens are good once."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: Any, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._grant(authorization_code.client_id, authorization_code.resource)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: Any, refresh_token: RefreshToken, scopes: list[str], *more: Any
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._grant(refresh_token.client_id, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)

    def _grant(self, client: str, resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.access[access] = AccessToken(token=access, client_id=client, scopes=[], resource=resource)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client, scopes=[], resource=resource)
        return OAuthToken(access_token=access, token_type="Bearer", expires_in=3600, refresh_token=refresh)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A server whose tools are for those who are logged in."""
    script = folder / "script.json"
    script.write_text('{"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}')
    sock, issuer = listen("127.0.0.1", 0), Issuer()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    auth = AuthSettings.model_validate(
        {
            "issuer_url": url,
            "resource_server_url": f"{url}/mcp",
            "validate_token_resource": False,
            "client_registration_options": ClientRegistrationOptions(enabled=True),
        }
    )
    app = server(script).streamable_http_app(
        auth=auth, auth_server_provider=issuer, token_verifier=ProviderTokenVerifier(issuer)
    )
    running = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield f"{url}/mcp"
    finally:
        running.should_exit = True
        thread.join(PATIENCE)


async def tools_of(settings: McpServer, folder: Path) -> list[str]:
    async with connected("tracker", settings, folder / "mcp", lambda: None) as client:
        return [one.name for one in await listed(client, "tracker")]


async def log_in(settings: McpServer, credentials: Path) -> None:
    """As `holdfast mcp login`, with a browser that opens what it is shown."""
    opened: list[asyncio.Task[Any]] = []

    async def show(url: str) -> None:
        async def browse() -> None:
            async with httpx.AsyncClient(follow_redirects=True, timeout=PATIENCE) as browser:
                answer = await browser.get(url)
                assert "logged in" in answer.text

        opened.append(asyncio.create_task(_soon(browse)))

    auth = provider("tracker", settings, credentials, show, come_back)
    async with (
        create_mcp_http_client(auth=auth) as http,
        Client(streamable_http_client(str(settings.url), http_client=http)) as client,
    ):
        await client.list_tools()
    await asyncio.gather(*opened)


async def _soon(browse: Any) -> None:
    """Once somebody listens for the answer."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await browse()
            except httpx.ConnectError:
                await asyncio.sleep(0.02)


def test_who_logged_in_once_uses_the_tools_and_who_did_not_is_told_how(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    with serving(tmp_path) as url:
        settings = McpServer.model_validate({"url": url, "auth": "oauth"})
        with pytest.raises(BaseException) as refused:
            asyncio.run(tools_of(settings, tmp_path))
        assert "nobody is logged in" in told(refused.value)
        asyncio.run(log_in(settings, credentials))
        assert asyncio.run(tools_of(settings, tmp_path)) == ["mcp_tracker_echo"]
        kept = credentials / "mcp_tracker.json"
        assert kept.stat().st_mode & 0o077 == 0
