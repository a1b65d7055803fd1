"""What the doctor looks at in models: which credentials and servers there are, and who would answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.cli.findings import Finding, Patient

if TYPE_CHECKING:
    from holdfast.agents.models import ModelRef, Models, Row
    from holdfast.config import Config


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
    from holdfast.errors import HoldfastError

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


def _problem(models: Models, ref: ModelRef, agent_id: str) -> Finding | None:
    from holdfast.errors import HoldfastError

    try:
        models.credentials_for(models.resolve(ref), agent_id)
    except HoldfastError as error:
        mend = error.hint or "Correct agents.defaults.model."
        return Finding("fail", f"agent {agent_id} cannot ask {ref}: {error.message}", mend)
    return None
