"""Adding a channel: what its service needs is asked for and tried before anything is written."""

from __future__ import annotations

import asyncio
import importlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.errors import InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from holdfast.channels import ChannelContext, Received
    from holdfast.plugins import Found

CHECK_SECONDS: Final = 60.0


def services() -> dict[str, Found]:
    """The services that a channel can be added for, by name: those that come with Holdfast."""
    from holdfast.plugins import bundled_plugins

    return {one.id: one for one in bundled_plugins() if "channels" in _capabilities(one)}


def _capabilities(found: Found) -> Sequence[str]:
    return () if found.manifest is None else found.manifest.capabilities


def asked_options(found: Found, given: Mapping[str, str]) -> dict[str, str]:
    """What the service needs: as given, else as somebody answers who is asked."""
    assert found.manifest is not None
    told = dict(given)
    for option in found.manifest.options:
        if option.name not in told:
            said = click.prompt(
                option.ask, default=option.default, hide_input=option.secret, show_default=False
            )
            told[option.name] = str(said)
    return {name: value for name, value in told.items() if value}


def read_options(pairs: tuple[str, ...]) -> dict[str, str]:
    """`name=value` as it was typed."""
    wrong = next((pair for pair in pairs if "=" not in pair), None)
    if wrong is not None:
        raise InvalidInput(f"not an option: {wrong[:80]!r}", hint="Write it as name=value.")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


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
        importlib.import_module(found.manifest.module or "").register(api)
        make = api.registered.channels[found.id]
        try:
            return asyncio.run(_checked(make, _context(name, options, Path(folder))))
        except (SendFailed, TimeoutError) as error:
            said = getattr(error, "message", "") or "it did not answer in time"
            raise Unavailable(
                f"{found.manifest.title} could not be reached with these: {said}",
                code="channel_refused",
                hint="Nothing was written. --no-check writes it all the same.",
            ) from error


async def _checked(make: Any, context: ChannelContext) -> str:
    channel = make(context)
    return str(await asyncio.wait_for(channel.check(), CHECK_SECONDS))


def _context(name: str, options: Mapping[str, Any], folder: Path) -> ChannelContext:
    from holdfast.channels import ChannelContext
    from holdfast.config.channels import ChannelConfig
    from holdfast.config.secret import reveal_all

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
