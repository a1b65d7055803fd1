"""`holdfast mcp`: an MCP server on stdio; and the servers of others that agents may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from holdfast.agents.mcp.connection import Definition
    from holdfast.cli.mcp_stdio import HomeApi
    from holdfast.config.tools import McpServer


@click.group("mcp", cls=Group, invoke_without_command=True)
@pass_app
@click.pass_context
def mcp(ctx: click.Context, app: App) -> None:
    """Serve this home to other agents over MCP on stdin and stdout.

    It asks the running gateway, or opens the home itself while none runs. What HOLDFAST_TOKEN may read and
    write, its client may; without one it is the owner.

    \b
    Example:
      claude mcp add holdfast -- holdfast mcp
    """
    if ctx.invoked_subcommand is not None:
        return
    try:
        import anyio

        from holdfast.cli import mcp_stdio
    except ImportError as error:
        raise Unavailable(
            "MCP is not installed here", code="mcp_missing", hint="pip install 'holdfast[mcp]'"
        ) from error
    anyio.run(mcp_stdio.serve, _home_api(app))


def _home_api(app: App) -> HomeApi:
    from holdfast.cli.client import live_gateway
    from holdfast.cli.mcp_stdio import HomeApi

    home = app.home
    token = os.environ.get("HOLDFAST_TOKEN") or home.admin_token()
    return HomeApi(lambda: live_gateway(home), app.open, token)


@mcp.command("list")
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """The servers of others, with how each stands while a gateway runs.

    \b
    Example:
      holdfast mcp list
    """
    from holdfast.cli.client import running_gateway
    from holdfast.config import load_config

    client = running_gateway(app.home)
    if client is not None:
        rows: list[dict[str, Any]] = client.get("/api/mcp/servers")
    else:
        named = load_config(app.home.config).mcp.servers
        rows = [{"name": name, "state": "off", "tools": [], "held": [], "error": None} for name in named]
    if as_json:
        print_json(rows)
        return
    table = [(r["name"], r["state"], len(r["tools"]), len(r["held"]), r["error"]) for r in rows]
    print_table(["name", "state", "tools", "held", "error"], table, empty="No server is configured.")


@mcp.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="Address of a server that runs, instead of a program.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of the program.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Header sent to the address.")
@click.option("--oauth", is_flag=True, help="Log in with `holdfast mcp login` afterwards.")
@click.option("--yes", is_flag=True, help="Agree to its tools as they are now.")
@pass_app
def add(app: App, /, name: str, command: tuple[str, ...], url: str | None, yes: bool, **more: Any) -> None:
    """Add a server: connect, show its tools, and take them once you agree.

    \b
    Example:
      holdfast mcp add files -- npx -y some-mcp-server /data
      holdfast mcp add tracker --url https://tracker.example/mcp --oauth
    """
    given: dict[str, Any] = {"url": url} if url else {}
    if command:
        given |= {"command": command[0], "args": list(command[1:])}
    given |= {"env": _pairs(more["env"])} if more["env"] else {}
    given |= {"headers": _pairs(more["header"])} if more["header"] else {}
    given |= {"auth": "oauth"} if more["oauth"] else {}
    app.home.prepare()
    new = app.config_store().patch({"mcp": {"servers": {name: given}}})
    if more["oauth"]:
        click.echo(f"Added. Now: holdfast mcp login {name}")
        return
    found = _tools(app, name, new.mcp.servers[name])
    _show(found)
    if yes or click.confirm(f"Let agents use these {len(found)} tools?"):
        _agree(app, name, found)
        click.echo("Agreed. What changes later is asked for again.")
    else:
        click.echo("Added; its tools wait: `holdfast approvals list` while a gateway runs.")


@mcp.command()
@click.argument("name")
@click.option("--agree", is_flag=True, help="Agree to its tools as they are now.")
@pass_app
def try_(app: App, name: str, agree: bool) -> None:
    """Connect to a server once and show its tools.

    \b
    Example:
      holdfast mcp try files
    """
    found = _tools(app, name, _configured(app, name))
    _show(found)
    if agree:
        _agree(app, name, found)


try_.name = "try"
mcp.add_command(try_, "try")


@mcp.command()
@click.argument("name")
@pass_app
def login(app: App, name: str) -> None:
    """Log in to a server that asks for it, in a browser.

    \b
    Example:
      holdfast mcp login tracker
    """
    import asyncio

    settings = _configured(app, name)
    asyncio.run(_logged_in(app, name, settings))
    click.echo("Logged in.")


async def _logged_in(app: App, name: str, settings: McpServer) -> None:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    from holdfast.agents.mcp.transports import come_back, provider

    async def show(url: str) -> None:
        click.echo(f"Open this in a browser of this machine:\n{url}", err=True)
        click.launch(url)

    auth = provider(name, settings, app.home.credentials, show, come_back)
    async with (
        create_mcp_http_client(auth=auth) as http,
        Client(streamable_http_client(str(settings.url), http_client=http)) as client,
    ):
        await client.list_tools()


def _configured(app: App, name: str) -> McpServer:
    from holdfast.config import load_config

    found = load_config(app.home.config).mcp.servers.get(name)
    if found is None:
        raise NotFound(f"no server {name[:80]!r} is configured", hint="See `holdfast mcp list`.")
    return found


def _tools(app: App, name: str, settings: McpServer) -> tuple[Definition, ...]:
    import asyncio

    from holdfast.agents.mcp.connection import connected, listed, told

    async def look() -> tuple[Definition, ...]:
        folder = app.home.path / "mcp"
        async with asyncio.timeout(settings.connect_seconds):
            async with connected(name, settings, folder, lambda: None) as client:
                return await listed(client, name)

    try:
        return asyncio.run(look())
    except (Exception, TimeoutError) as error:
        from holdfast.errors import HoldfastError

        if isinstance(error, HoldfastError):
            raise
        raise Unavailable(
            f"the server {name} cannot be used: {told(error)}",
            code="mcp_gone",
            hint=f"What it wrote is in {app.home.path / 'mcp' / f'{name}.stderr.log'}.",
        ) from error


def _agree(app: App, name: str, found: tuple[Definition, ...]) -> None:
    from holdfast.agents.mcp import Pins

    Pins(app.home).agree(name, {one.tool: one.digest for one in found})


def _show(found: tuple[Definition, ...]) -> None:
    """Whole: a person agrees to all of it."""
    click.echo("\n".join(one.shown for one in found) or "It has no tools.")


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if not all(name and mark for name, mark, _ in pairs):
        raise click.UsageError("write NAME=VALUE")
    return {name: value for name, _, value in pairs}
