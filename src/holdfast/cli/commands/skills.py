"""`holdfast skills`: what agents know how to do, and where to get more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import cell, print_fields, print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from holdfast.agents.skills import Checked, Registry, SkillRoom
    from holdfast.config import Author, Config
    from holdfast.log.versions import Version
    from holdfast.runtime.shared_home import SharedHome

agent_option = click.option("--agent", "agent_id", metavar="ID", help="Of this agent; else the default one.")
SHOWN_BROKEN = 5
registry_option = click.option("--registry", metavar="URL", help="Else skills.registry.url of the config.")


@click.group(cls=Group)
def skills() -> None:
    """List, info, check, search, install, update, publish; history, diff, rollback, withdraw."""


@skills.command("list")
@click.option("--eligible", "only", is_flag=True, help="Only those that can be used now.")
@agent_option
@json_option
@pass_app
def list_(app: App, only: bool, agent_id: str | None, as_json: bool) -> None:
    """The skills of an agent."""
    room, agent, _ = _room(app, agent_id)
    found = [each for each in room.checked(agent) if each.eligible or not only]
    if as_json:
        print_json([skill_json(each) for each in found])
        return
    rows = [(c.skill.name, c.skill.tier.label, c.eligible, c.skill.description[:70]) for c in found]
    print_table(["skill", "from", "ready", "for"], rows, empty="No skills.")
    broken = room.found(agent).broken
    if broken:
        click.echo(f"{len(broken)} cannot be read; see `holdfast skills check`:", err=True)
    for one in broken[:SHOWN_BROKEN]:
        click.echo(cell(f"  {one.path}: {one.reason}"), err=True)


@skills.command()
@click.argument("name")
@agent_option
@json_option
@pass_app
def info(app: App, name: str, agent_id: str | None, as_json: bool) -> None:
    """One skill, and what stands in its way."""
    room, agent, _ = _room(app, agent_id)
    skill = room.found(agent).get(name)
    each = next(c for c in room.checked(agent) if c.skill.name == skill.name)
    if as_json:
        print_json(skill_json(each) | {"body": skill.body})
        return
    fields = {
        "name": skill.name,
        "for": skill.description,
        "from": f"{skill.tier.label} ({skill.path})",
        "homepage": skill.homepage,
        "ready": "yes" if each.eligible else "; ".join(reason.text for reason in each.reasons),
        "slash command": skill.user_invocable,
        "in the prompt": skill.model_invocable,
        "calls": skill.dispatch_tool,
        "note": "; ".join(skill.notes) or None,
    }
    print_fields(fields)


@skills.command()
@agent_option
@json_option
@pass_app
@click.pass_context
def check(ctx: click.Context, app: App, agent_id: str | None, as_json: bool) -> None:
    """Why skills are not offered: what is missing, hidden or broken. Ends with 1 if one is broken."""
    room, agent, _ = _room(app, agent_id)
    found, states = room.found(agent), room.checked(agent)
    if as_json:
        print_json(
            {
                "ready": [each.skill.name for each in states if each.eligible],
                "waiting": [skill_json(each) for each in states if not each.eligible],
                "hidden": [{"name": s.name, "tier": s.tier.label, "path": str(s.path)} for s in found.hidden],
                "broken": [
                    {"path": str(b.path), "line": b.line, "reason": b.reason, "hint": b.hint}
                    for b in found.broken
                ],
                "notes": {s.name: list(s.notes) for s in found.skills if s.notes},
            }
        )
        ctx.exit(1 if found.broken else 0)
    rows = [(c.skill.name, "waits", "; ".join(r.text for r in c.reasons)) for c in states if not c.eligible]
    rows += [(s.name, "hidden", f"{s.path} lies below another of that name") for s in found.hidden]
    rows += [(s.name, "note", f"{note} ({s.path})") for s in found.skills for note in s.notes]
    rows += [(b.path.parent.name, "broken", f"{b.path}: {b.reason}. {b.hint}".rstrip()) for b in found.broken]
    ready = sum(each.eligible for each in states)
    print_table(["skill", "state", "why"], rows, empty=f"All {ready} skills are ready.")
    ctx.exit(1 if found.broken else 0)


@skills.command()
@click.argument("words", nargs=-1)
@registry_option
@json_option
@pass_app
def search(app: App, words: tuple[str, ...], registry: str | None, as_json: bool) -> None:
    """Look for skills in the registry."""
    found = _registry(app, registry).search(" ".join(words))
    if as_json:
        print_json([{"name": r.name, "version": r.version, "description": r.description} for r in found])
        return
    rows = [(r.name, r.version, r.description[:80]) for r in found]
    print_table(["skill", "version", "for"], rows, empty="The registry has nothing like it.")


@skills.command()
@click.argument("name")
@click.option("--version", help="This version; else the newest.")
@click.option("--deps", is_flag=True, help="Install the programs that the skill needs, instead.")
@click.option("--yes", is_flag=True, help="With --deps: do not ask.")
@click.option("--force", is_flag=True, help="Replace a skill that was edited or is not from a registry.")
@registry_option
@json_option
@pass_app
def install(
    app: App,
    name: str,
    version: str | None,
    deps: bool,
    yes: bool,
    force: bool,
    registry: str | None,
    as_json: bool,
) -> None:
    """Install a skill from the registry. Nothing of it is run.

    \b
    Examples:
      holdfast skills install notes --version 1.2.0
      holdfast skills install github --deps
    """
    from holdfast.agents.skills import install as put

    if deps:
        _install_programs(app, name, yes)
        return
    skill = put(_registry(app, registry), app.home.skills, name, version=version, force=force)
    app.note("skill.installed", skill.name, version=version or "newest")
    if as_json:
        print_json({"name": skill.name, "path": str(skill.path)})
        return
    click.echo(f"Skill {skill.name} is in {skill.folder}.")
    if skill.install:
        click.echo(f"It may need programs: holdfast skills install {skill.name} --deps")


@skills.command()
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Every skill that came from a registry.")
@click.option("--force", is_flag=True, help="Lose edits made since.")
@registry_option
@json_option
@pass_app
def update(app: App, name: str | None, every: bool, force: bool, registry: str | None, as_json: bool) -> None:
    """Bring skills to their newest version."""
    from holdfast.agents.skills import update as renew
    from holdfast.agents.skills import update_all

    if every == (name is not None):
        raise InvalidInput("give a name or --all")
    source = _registry(app, registry)
    managed = app.home.skills
    done = [renew(source, managed, name, force=force)] if name else update_all(source, managed, force=force)
    for one in done:
        if one.after != one.before:
            app.note("skill.updated", one.name, before=str(one.before), after=str(one.after))
    if as_json:
        print_json([{"name": u.name, "before": u.before, "after": u.after, "error": u.error} for u in done])
        return
    rows = [(u.name, u.before, u.after, u.error) for u in done]
    print_table(["skill", "was", "is", "error"], rows, empty="No skill came from a registry.")


@skills.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--to", "into", metavar="DIR", help="A registry's folder, to be served; else the store.")
@click.option("--version", help="For a registry; else the version in SKILL.md.")
@json_option
@pass_app
def publish(app: App, folder: Path, into: str | None, version: str | None, as_json: bool) -> None:
    """Give a skill to every gateway on the store, as a new version; with --to, write its archive and its
    entry in the index into a folder that any web server can give out."""
    from holdfast.agents.skills import publish as put
    from holdfast.clock import SystemClock

    if into is None:
        _publish_to_store(app, folder, as_json)
        return
    release = put(folder, Path(into), SystemClock(), version=version)
    if as_json:
        print_json({"name": release.name, "version": release.version, "sha256": release.sha256})
    else:
        click.echo(f"{release.name} {release.version} is in {Path(into) / release.archive}.")


@skills.command()
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@json_option
@pass_app
def history(app: App, name: str | None, limit: int, as_json: bool) -> None:
    """The versions of a skill in the store, the newest first; without a name the newest of each."""
    from holdfast.cli.commands.config import print_versions
    from holdfast.log import versions

    with _in_store(app).reading() as tx:
        if name is None:
            found = versions.current(tx, versions.SKILL)
        else:
            found = versions.history(tx, versions.SKILL, name, limit=limit)
    if name is not None and not found:
        raise NotFound(f"no skill {name[:64]!r} in the store", code="unknown_skill")
    print_versions(found, as_json)


@skills.command()
@click.argument("name")
@click.argument("number", type=int)
@click.argument("other", type=int, required=False)
@pass_app
def diff(app: App, name: str, number: int, other: int | None) -> None:
    """What a version of a skill changed, or what is other in a second one."""
    from holdfast.runtime.shared_home import skill_diff

    first, second = (number - 1, number) if other is None else (number, other)
    with _in_store(app).reading() as tx:
        click.echo(skill_diff(tx, name, first, second), nl=False)


@skills.command()
@click.argument("name")
@click.argument("number", type=int)
@json_option
@pass_app
def rollback(app: App, name: str, number: int, as_json: bool) -> None:
    """Make an earlier version of a skill in the store the newest, in every gateway."""
    made = _in_store(app).roll_back_skill(name, number, _author())
    _tell_version(made, f"{name} is as it was in version {number}.", as_json)


@skills.command()
@click.argument("name")
@json_option
@pass_app
def withdraw(app: App, name: str, as_json: bool) -> None:
    """Take a skill of the store away from every gateway; its versions stay, and `rollback` brings it back."""
    made = _in_store(app).withdraw_skill(name, _author())
    _tell_version(made, f"{name} is taken away.", as_json)


def _publish_to_store(app: App, folder: Path, as_json: bool) -> None:
    from holdfast.agents.skills import archive

    place = folder.resolve()
    made = _in_store(app).publish_skill(place.name, archive.pack(place), _author())
    _tell_version(made, f"{made.name} is in the store, for every gateway.", as_json)


def _in_store(app: App) -> SharedHome:
    from holdfast.config import load_config

    if load_config(app.home.config).config.source != "store":
        raise InvalidInput(
            "skills of this home lie in its files", hint="`holdfast config use store`; or publish --to DIR."
        )
    return app.shared_home()


def _author() -> Author:
    from holdfast.config import Author

    return Author(surface="cli")


def _tell_version(made: Version, said: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": made.name, "version": made.number, "sha256": made.sha256})
    else:
        click.echo(f"{said} It is version {made.number} now.")


def skill_json(each: Checked) -> dict[str, Any]:
    skill = each.skill
    return {
        "name": skill.name,
        "description": skill.description,
        "tier": skill.tier.label,
        "location": str(skill.path),
        "homepage": skill.homepage,
        "eligible": each.eligible,
        "reasons": [{"kind": reason.kind, "text": reason.text} for reason in each.reasons],
        "userInvocable": skill.user_invocable,
        "modelInvocable": skill.model_invocable,
    }


def _room(app: App, agent_id: str | None) -> tuple[SkillRoom, str, Config]:
    from holdfast.cli.agent_checks import skills_of
    from holdfast.config import load_config

    config = load_config(app.home.config)
    agent = config.agent(agent_id or config.default_agent_id).id
    return skills_of(app.home, config), agent, config


def _registry(app: App, given: str | None) -> Registry:
    from holdfast.agents.skills import Registry
    from holdfast.config import load_config

    url = given or load_config(app.home.config).skills.registry.url
    if url is None:
        raise InvalidInput("no registry is set", hint="Set skills.registry.url in the config, or --registry.")
    return Registry(url)


def _install_programs(app: App, name: str, yes: bool) -> None:
    """Shows the one command first; without a yes to it nothing is run."""
    from holdfast.agents.skills import carry_out, plan, surroundings

    room, agent, config = _room(app, None)
    skill = room.found(agent).get(name)
    chosen = plan(skill, config.skills.install, surroundings(config))
    click.echo(f"For {skill.name}, a {skill.tier.label} skill ({skill.path}), this would run: {chosen.text}")
    if yes or click.confirm("Run it?", default=False):
        carry_out(chosen, agreed=chosen.text)
        click.echo("Done.")
    else:
        click.echo("Nothing was run.")
