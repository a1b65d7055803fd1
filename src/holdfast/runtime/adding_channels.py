"""Adding a channel, from a terminal or a page: it is tried with what it needs before anything is written."""

from __future__ import annotations

import asyncio
import importlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Conflict, InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from holdfast.channels import ChannelContext, Received
    from holdfast.plugins import Found
    from holdfast.runtime import Holdfast

CHECK_SECONDS: Final = 60.0


def services() -> dict[str, Found]:
    """The services that a channel can be added for, by name: those that come with Holdfast."""
    from holdfast.plugins import bundled_plugins

    return {one.id: one for one in bundled_plugins() if "channels" in _capabilities(one)}


def _capabilities(found: Found) -> Sequence[str]:
    return () if found.manifest is None else found.manifest.capabilities


def service_of(name: str) -> Found:
    known = services()
    if name not in known:
        raise NotFound(
            f"no service {name[:64]!r}",
            code="unknown_service",
            hint=f"There are: {', '.join(sorted(known))}. Anything else can be a webhook channel.",
        )
    return known[name]


def tried(found: Found, name: str, options: Mapping[str, Any]) -> str:
    """Connect once with these options; gives who the agent is there."""
    from holdfast.channels import SendFailed
    from holdfast.plugins import PluginApi

    assert found.manifest is not None
    with tempfile.TemporaryDirectory() as folder:
        api = PluginApi(found.manifest, {}, found.folder, Path(folder))
        try:
            importlib.import_module(found.manifest.module or "").register(api)
        except ImportError as error:
            raise Unavailable(
                f"what {found.manifest.title} needs is not installed here: {error.name}",
                code="channel_not_installed",
                hint=f"pip install 'holdfast[{found.id}]', and start the gateway again.",
            ) from error
        make = api.registered.channels[found.id]
        try:
            return asyncio.run(_checked(make, _context(name, options, Path(folder))))
        except (SendFailed, TimeoutError) as error:
            said = getattr(error, "message", "") or "it did not answer in time"
            raise Unavailable(
                f"{found.manifest.title} could not be reached with these: {said}",
                code="channel_refused",
                hint="Nothing was written. It can be kept without a try, too.",
            ) from error


@dataclass(frozen=True, slots=True)
class Wanted:
    """A channel that somebody wants: of which service, called how, with what it needs."""

    service: str
    name: str | None = None
    account: str | None = None
    owners: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def called(self) -> str:
        return self.name or self.service


def added(hold: Holdfast, wanted: Wanted, *, check: bool = True) -> str | None:
    """Try it, and write it to the config; gives who the agent is there. It is connected at the next start."""
    found = service_of(wanted.service)
    options = {name: value for name, value in wanted.options.items() if value}
    _require_known(found, options)
    who = tried(found, wanted.called, options) if check else None
    own: dict[str, Any] = {"options": options} | ({"owners": list(wanted.owners)} if wanted.owners else {})
    part: dict[str, Any] = own if wanted.account is None else {"accounts": {wanted.account: own}}
    named = {} if wanted.called == wanted.service else {"adapter": wanted.service}
    hold.config.patch({"channels": {wanted.called: part | named}})
    return who


def refuse_known(hold: Holdfast, wanted: Wanted) -> None:
    """For who cannot see what they would write over."""
    known = hold.settings.channels.get(wanted.called)
    if known is not None and (wanted.account is None or wanted.account in known.accounts):
        raise Conflict(
            f"there is a channel {wanted.called[:64]!r} already",
            code="channel_exists",
            hint="Give it another name, or change it in the settings.",
        )


def _require_known(found: Found, options: Mapping[str, str]) -> None:
    assert found.manifest is not None
    missing = [one for one in found.manifest.options if one.default is None and one.name not in options]
    if missing:
        raise InvalidInput(
            f"{found.manifest.title} also needs: {', '.join(one.name for one in missing)}",
            code="option_missing",
            hint=missing[0].ask,
        )


async def _checked(make: Any, context: ChannelContext) -> str:
    channel = make(context)
    return str(await asyncio.wait_for(channel.check(), CHECK_SECONDS))


def _context(name: str, options: Mapping[str, Any], folder: Path) -> ChannelContext:
    from holdfast.channels import ChannelContext
    from holdfast.config.channels import ChannelConfig
    from holdfast.config.values import reveal_all

    settings = ChannelConfig.model_validate({"options": dict(options)})

    async def nobody_listens(message: object) -> Received:
        raise Unavailable("this is only a try", code="not_serving")

    async def nobody_follows(change: object) -> bool:
        return False

    return ChannelContext(
        name=name,
        settings=settings,
        receive=nobody_listens,
        changed=nobody_follows,
        options=reveal_all(settings.options, os.environ),
        folder=folder,
    )
