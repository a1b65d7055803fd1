"""`holdfast chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from holdfast.cli.groups import App, Command, pass_app


@click.command(cls=Command)
@click.option("--agent", "agent_id", metavar="ID", help="The agent; else the default one.")
@click.option("--session", "session_key", metavar="KEY", help="The session; else the agent's main one.")
@click.option("--model", metavar="REF", help="provider/model, for this conversation.")
@pass_app
@click.pass_context
def chat(
    ctx: click.Context, app: App, agent_id: str | None, session_key: str | None, model: str | None
) -> None:
    """Talk to an agent. Through pipes it takes a message a line, and exits 1 if one got no reply.

    What is typed while a turn runs goes to that turn. Ctrl-C stops a turn, Ctrl-D leaves, /help lists the
    commands. Lines typed before are kept in the home, in chat_history; one that begins with a space is not.

    \b
    Examples:
      holdfast chat --session work
      echo 'What is due today?' | holdfast chat
    """
    from holdfast.cli.chat.line import Target
    from holdfast.cli.chat.talk import connect

    with connect(app, Target(agent_id, session_key, model), lasting=True) as talk:
        if _at_terminal():
            from holdfast.cli.chat.history import History
            from holdfast.cli.chat.terminal import Terminal

            terminal = Terminal(talk, History(app.home.path / "chat_history"))
            terminal.greet(talk.about())
            terminal.converse()
            return
        from holdfast.cli.chat.piped import Piped

        piped = Piped(talk)
        piped.greet(talk.about())
        piped.converse()
    ctx.exit(1 if piped.failed else 0)


def _at_terminal() -> bool:
    """A terminal on both sides, on a system that has them."""
    return sys.stdin.isatty() and sys.stdout.isatty() and find_spec("termios") is not None
