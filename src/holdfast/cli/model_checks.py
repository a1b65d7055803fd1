"""What the doctor looks at in models: which credentials and servers there are, and who would answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from holdfast.cli.findings import Finding, Patient
from holdfast.errors import HoldfastError

ROOMY_WINDOW: Final = 8_192
SMALLEST_WINDOW: Final = 2_048

if TYPE_CHECKING:
    from holdfast.agents.models import ModelRef, Models, Row
    from holdfast.config import Config
    from holdfast.home import Home


def check_models(patient: Patient) -> Iterator[Finding]:
    """Credentials are named and never shown; nobody but servers on this machine is asked."""
    from holdfast.agents.models import Models
    from holdfast.clock import SystemClock

    config = patient.config
    if config is None:
        yield Finding("warn", "models were not looked at: the config cannot be used", "See `config` above.")
        return
    models = Models(patient.home, lambda: config, SystemClock())
    rows = asyncio.run(_report(models))
    yield from (Finding("ok", f"{row.provider}: {row.text}") for row in rows)
    yield from _logins(models, config)
    for agent in config.agent_list:
        yield from _answering(models, config, agent.id)
        yield from _windows(models, patient.home, config, agent.id)
    yield from _learned(patient)


def _learned(patient: Patient) -> Iterator[Finding]:
    """What servers taught by refusing a request, where it takes something from what a model may do."""
    from sqlalchemy.exc import SQLAlchemyError

    from holdfast.agents.models import StoredLessons
    from holdfast.agents.models.lessons import KEPT_MS
    from holdfast.cli.checks import store_of
    from holdfast.clock import SystemClock

    try:
        with store_of(patient) as store:
            found = [] if store is None else StoredLessons(store).load()
    except (HoldfastError, SQLAlchemyError):  # `store` above tells of it
        return
    kept = SystemClock().now() - KEPT_MS
    yield from (Finding("ok", str(one)) for one in found if one.lesson.limits and one.at >= kept)


def _logins(models: Models, config: Config) -> Iterator[Finding]:
    """Nobody is asked: what is known of each login says whether it can still be used."""
    from holdfast.clock import SystemClock

    now = SystemClock().now()
    for provider, settings in config.models.providers.items():
        for login in models.credentials.logins.listing(provider) if settings.oauth is not None else ():
            profile = login.id.removeprefix(f"{provider}:")
            mend = f"Run `holdfast login {provider} --profile {profile}`."
            if login.refused:
                yield Finding("fail", f"{login.id}: the login is over, its refresh token was refused", mend)
            elif login.over(now):
                yield Finding("fail", f"{login.id}: the login has expired", mend)
            else:
                yield Finding("ok", f"{login.id}: logged in")


async def _report(models: Models) -> list[Row]:
    try:
        return await models.report()
    finally:
        await models.aclose()


def _answering(models: Models, config: Config, agent_id: str) -> Iterator[Finding]:
    """Whether the models of an agent can be asked: all that it names, since each may be called upon."""
    from holdfast.agents.models import RECALL

    try:
        refs = models.choice(config.agent(agent_id))
    except HoldfastError as error:
        yield Finding("fail", f"agent {agent_id}: {error.message}", error.hint or "Correct its model.")
        return
    if refs == [RECALL]:
        mend = "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or the like, or start Ollama, LM Studio or llama.cpp."
        yield Finding("warn", f"agent {agent_id} has no model: {RECALL} answers from memory alone", mend)
        return
    problems = [found for ref in refs if (found := _problem(models, ref, agent_id)) is not None]
    yield from problems
    if not problems:
        yield Finding("ok", f"agent {agent_id} asks {', then '.join(map(str, refs))}")


def _windows(models: Models, home: Home, config: Config, agent_id: str) -> Iterator[Finding]:
    """Models whose windows are small for what every prompt of an agent holds, and how they are shared."""
    from holdfast.cli.workspaces import fitted_files
    from holdfast.context import Budgets

    settings = config.agent(agent_id)
    mend = (
        f"Use a model with {ROOMY_WINDOW:,} tokens or more, or start its server with a larger context "
        "(llama.cpp: -c, Ollama: num_ctx)."
    )
    for ref in models.choice(settings):
        try:
            about = models.about(ref)
        except HoldfastError:  # told of above
            continue
        window = min(settings.context_tokens or about.window, about.window)
        shares = Budgets.for_window(window, settings.compaction)
        if window < SMALLEST_WINDOW:
            said = f"agent {agent_id}: the window of {about.ref} has {window:,} tokens, too few for a prompt"
            yield Finding("fail", said, mend)
        elif window < ROOMY_WINDOW:
            files = fitted_files(home, config, agent_id, window)
            cut = sum(file.chars - len(file.text) for file in files)
            told = f", {cut:,} characters of the workspace files are cut" if cut > 0 else ""
            what = f"{shares.tools:,} for tools" if shares.tools else "no room for tools"
            said = (
                f"agent {agent_id}: the window of {about.ref} has {window:,} tokens: {shares.reserve:,} for "
                f"the answer, {what}, at least {shares.history:,} for instructions and conversation{told}"
            )
            yield Finding("warn", said, mend)


def _problem(models: Models, ref: ModelRef, agent_id: str) -> Finding | None:

    try:
        models.credentials_for(models.resolve(ref), agent_id)
    except HoldfastError as error:
        mend = error.hint or "Correct agents.defaults.model."
        return Finding("fail", f"agent {agent_id} cannot ask {ref}: {error.message}", mend)
    return None
