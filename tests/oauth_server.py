"""A small OAuth 2 server on loopback: codes with PKCE, device codes, refresh tokens good for one use."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

CLIENT = "holdfast-test"


class OAuthServer:
    """`granted` are the access tokens that are good now; `asked` are all requests for tokens, in order."""

    def __init__(self, *, lasts: int = 3600) -> None:
        self.lasts = lasts
        self.granted: set[str] = set()
        self.asked: list[dict[str, str]] = []
        self.revoked: list[str] = []
        self.pending = 0
        self.down = False
        self.tokens = 0
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: set[str] = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def config(self) -> dict[str, Any]:
        return {
            "authorizationUrl": f"{self.url}/authorize",
            "tokenUrl": f"{self.url}/token",
            "revocationUrl": f"{self.url}/revoke",
            "clientId": CLIENT,
            "scopes": ["models", "offline"],
        }

    def __enter__(self) -> OAuthServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def agree(self, address: str) -> str:
        """What the page does once the person agreed: the address that the browser is sent to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["client_id"] == CLIENT
        assert asked["scope"] == "models offline"
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(12)
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def forget_refresh(self) -> None:
        """Revoke every refresh token, as a person does in their account."""
        self._refresh.clear()

    def make(self) -> dict[str, Any]:
        self.tokens += 1
        access, again = (
            f"access-{self.tokens}-{secrets.token_hex(8)}",
            f"refresh-{self.tokens}-{secrets.token_hex(8)}",
        )
        self.granted = {access}
        self._refresh.add(again)
        return {
            "access_token": access,
            "refresh_token": again,
            "token_type": "Bearer",
            "expires_in": self.lasts,
        }

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.asked.append(form)
            if self.down:
                return 503, {}
            match form.get("grant_type"):
                case "authorization_code":
                    return self._by_code(form)
                case "refresh_token" if form.get("refresh_token") in self._refresh:
                    self._refresh.discard(form["refresh_token"])
                    return 200, self.make()
                case "urn:ietf:params:oauth:grant-type:device_code" if form.get("device_code") == "dev-1":
                    self.pending -= 1
                    return (
                        (400, {"error": "authorization_pending"}) if self.pending >= 0 else (200, self.make())
                    )
            return 400, {"error": "invalid_grant", "error_description": json.dumps(form)}

    def _by_code(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        good = asked is not None and asked["code_challenge"] == challenge
        if not good or asked is None or asked["redirect_uri"] != form.get("redirect_uri"):
            return 400, {"error": "invalid_grant"}
        return 200, self.make()

    def device(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        return 200, {
            "device_code": "dev-1",
            "user_code": "WDJB-MJHT",
            "verification_uri": f"{self.url}/device-page",
            "interval": 0,
            "expires_in": 60,
        }

    def revoke(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.revoked.append(form["token"])
        return 200, {}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        here = self
        ways: dict[str, Callable[[dict[str, str]], tuple[int, dict[str, Any]]]] = {
            "/token": self.token,
            "/device": self.device,
            "/revoke": self.revoke,
        }

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                status, said = ways[self.path](form)
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                """The page, for a person who agrees at once."""
                self.send_response(302)
                self.send_header("Location", here.agree(f"{here.url}{self.path}"))
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Nothing."""

        return Handler
