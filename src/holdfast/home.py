"""The home folder: where everything of one Holdfast lives, and the few things made at first start."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InvalidInput, Unavailable


def private_opener(path: str, flags: int) -> int:
    """For `open(…, opener=…)`: a file made by it is for its owner only; one that is there stays as it is."""
    return os.open(path, flags, 0o600)


def make_private(path: Path) -> None:
    """Make a file for its owner only, if it is not there, before a program that knows no modes makes it."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    @classmethod
    def locate(cls, given: str | os.PathLike[str] | None = None) -> Home:
        """`given`, else `$HOLDFAST_HOME`, else `~/.holdfast`."""
        raw = given or os.environ.get("HOLDFAST_HOME") or "~/.holdfast"
        return cls(Path(raw).expanduser().absolute())

    @property
    def config(self) -> Path:
        return self.path / "holdfast.json"

    @property
    def database(self) -> Path:
        return self.path / "holdfast.db"

    @property
    def index(self) -> Path:
        return self.path / "index"

    @property
    def credentials(self) -> Path:
        return self.path / "credentials"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def skills(self) -> Path:
        return self.path / "skills"

    @property
    def shared(self) -> Path:
        """Copies of what lies in the store for all gateways: the config, and skills."""
        return self.path / "shared"

    @property
    def plugins(self) -> Path:
        return self.path / "plugins"

    def was_used(self) -> bool:
        """Whether a gateway has worked here: there is an index of its log, or its own log."""
        try:
            indexed = self.index.is_dir() and any(self.index.iterdir())
            return indexed or (self.logs / "gateway.jsonl").stat().st_size > 0
        except OSError:
            return False

    def workspace(self, agent_id: str, *, default: bool) -> Path:
        return self.path / ("workspace" if default else f"workspace-{agent_id}")

    def team_workspace(self, team_id: str) -> Path:
        """The files of a team, which its agents use in its session and its members alone read."""
        return self.path / "teams" / team_id / "workspace"

    def agent_dir(self, agent_id: str) -> Path:
        return self.path / "agents" / agent_id / "agent"

    def prepare(self) -> None:
        """Make the folders that must be there; only their owner may look in."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.credentials, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"the home folder {self.path} cannot be used: {error.strerror}",
                code="home_unusable",
                hint="Choose another with --home, or mend its permissions.",
            ) from error

    def secret(self, name: str) -> str:
        """The secret of this name under `credentials/`, made at first use, readable by its owner only."""
        if not name.isidentifier():
            raise InvalidInput(f"not the name of a secret: {name!r}")
        path = self.credentials / name
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            return self._make_secret(path)
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror}", code="home_unusable") from error

    def keep_secret(self, name: str, text: str) -> None:
        """Keep a secret that somebody gave, in place of the one that was there."""
        self.prepare()
        path = self.credentials / name
        draft = path.with_name(f".{name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            draft.touch(mode=0o600)
            draft.write_text(text + "\n")
            draft.replace(path)
        except OSError as error:
            raise Unavailable(f"{path} cannot be written: {error.strerror}", code="home_unusable") from error

    def kept_secret(self, name: str) -> str | None:
        """A secret that was given; None if none was."""
        path = self.credentials / name
        try:
            return path.read_text().rstrip("\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror}", code="home_unusable") from error

    def _make_secret(self, path: Path) -> str:
        """Two processes that start at once agree on one: the file appears whole or not at all."""
        self.prepare()
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            draft.touch(mode=0o600)
            draft.write_text(secrets.token_urlsafe(32) + "\n")
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
            return path.read_text().strip()
        except OSError as error:
            raise Unavailable(f"{path} cannot be written: {error.strerror}", code="home_unusable") from error

    def admin_token(self) -> str:
        """The token that may do everything, made at first start."""
        return self.secret("token")
