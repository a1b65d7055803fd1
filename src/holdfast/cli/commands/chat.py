"""`holdfast chat` and `agent`: talk in the terminal, or say one thing and get the reply."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import print_json
from holdfast.cli.root import App, Command, json_option, pass_app

if TYPE_CHECKING:
    from holdfast.cli.chat.events import End
    from holdfast.cli.chat.line import Decision, Told
    from holdfast.cli.chat.talk import Talk


@click.command(cls=Command)
@click.option("-m", "--message", metavar="TEXT", required=True, help="What to say; `-` reads it from stdin.")
@click.option("--agent", "agent_id", metavar="ID", help="The agent; else the default one.")
@click.option("--session", "session_key", metavar="KEY", help="The session; else the agent's main one.")
@click.option("--model", metavar="REF", help="provider/model, for this turn.")
@click.option("--stream", is_flag=True, help="Print the reply while it comes.")
@click.option(
    "--timeout", type=click.FloatRange(1, 86_400), metavar="S", help="Stop it after so many seconds."
)
@json_option
@pass_app
@click.pass_context
def agent(
    ctx: click.Context,
    app: App,
    message: str,
    agent_id: str | None,
    session_key: str | None,
    model: str | None,
    stream: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """One turn: say something, print the reply; exit 1 if there is none. Ctrl-C stops the turn.

    It runs through the gateway of this home if there is one, else in this process. What tools do, and what
    waits for approval, is told on stderr.

    \b
    Examples:
      holdfast agent -m 'What did we decide about the deploy?'
      git diff | holdfast agent -m - --session review --stream
    """
    from holdfast.cli.chat.line import Target
    from holdfast.cli.chat.talk import connect

    if stream and as_json:
        raise click.UsageError("--stream and --json exclude each other")
    text = sys.stdin.read() if message == "-" else message
    asked = _asked_at_terminal if message != "-" and sys.stdin.isatty() and sys.stderr.isatty() else _nobody
    with connect(app, Target(agent_id, session_key, model), lasting=False) as talk:
        from holdfast.cli.chat.plain import Plain, aside

        accepted = talk.say(text)
        if "told" in accepted:
            aside(str(accepted["told"]))
        run_id = str(accepted["runId"])
        end: End | None = None
        if "reply" not in accepted:
            end = Plain(words=stream, decide=asked).follow(talk, run_id, seconds=timeout)
        ctx.exit(_told(talk, accepted, end, stream=stream, as_json=as_json))


def _told(talk: Talk, accepted: Told, end: End | None, *, stream: bool, as_json: bool) -> int:
    """Print how the turn ended; 0 if it came to a reply, which may be that there is nothing to say."""
    status: Any = talk.status(str(accepted["runId"]))
    if as_json:
        print_json(dict(status))
    elif status["status"] == "committed":
        if (not stream or end is None) and not status["silent"]:
            _print_reply(str(accepted.get("reply") or status["reply"] or ""))
    else:
        _print_failure(status, end)
    return 0 if status["status"] == "committed" else 1


def _print_reply(text: str) -> None:
    from holdfast.cli.output import safe

    if sys.stdout.isatty():
        from rich.console import Console

        from holdfast.cli.chat.screen import Reply

        Console().print(Reply(text))
    else:
        click.echo(safe(text))


def _print_failure(status: Told, end: End | None) -> None:
    from holdfast.cli.output import safe

    why = (end.error if end is not None else "") or status.get("error") or f"the turn was {status['status']}"
    hint = "" if end is None else end.hint
    click.echo(safe(f"error: {str(why).rstrip('.')}. {hint}".rstrip()), err=True)


def _asked_at_terminal(_approval: Told) -> Decision | None:
    from holdfast.cli.chat.plain import ANSWERS, QUESTION

    while True:
        click.echo(f"{QUESTION}: ", nl=False, err=True)
        try:
            answer = input().strip().lower()
        except EOFError:
            return None
        if answer in ANSWERS:
            return ANSWERS[answer]


def _nobody(_approval: Told) -> Decision | None:
    return None


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
            from holdfast.cli.chat.plain import History
            from holdfast.cli.chat.terminal import Terminal

            terminal = Terminal(talk, History(app.home.path / "chat_history"))
            terminal.greet(talk.about())
            terminal.converse()
            return
        from holdfast.cli.chat.plain import Piped

        piped = Piped(talk)
        piped.greet(talk.about())
        piped.converse()
    ctx.exit(1 if piped.failed else 0)


def _at_terminal() -> bool:
    """A terminal on both sides, on a system that has them."""
    return sys.stdin.isatty() and sys.stdout.isatty() and find_spec("termios") is not None
