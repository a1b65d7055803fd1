"""Without a model, answers come from memory and board: to the owner, and to nobody who may not look there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from builders import soon
from holdfast.agents.loop import Ask
from holdfast.board.ingest import prepare
from holdfast.errors import Forbidden
from holdfast.log import OWNER, EntryDraft, entries
from holdfast.runtime import open_home
from holdfast.services import Services

MAIN = "agent:main:main"
GROUP = "agent:main:discord:group:zz"
SECRET = "The vault opens with the word heliotrope."


def test_the_built_in_model_quotes_to_the_owner_and_to_no_guest_or_group(tmp_path: Path) -> None:
    (tmp_path / "holdfast.json").write_text(
        json.dumps({"agents": {"defaults": {"model": "holdfast/recall"}}})
    )

    async def main() -> None:
        with open_home(tmp_path) as hold:
            with hold.store.write(OWNER) as tx:
                draft = EntryDraft(content=SECRET, session_key="agent:main:telegram:dm:7", agent_id="user")
                entries.append(tx, prepare(tx, draft, hold.settings.board))

            async def told(**asked: Any) -> str:
                accepted = await hold.runs.accept(Ask(text="what opens the vault?", **asked))
                return (await soon(hold.runs.wait(accepted.run_id))).reply or ""

            async with Services(hold).running():
                assert "heliotrope" in await told(session_key=MAIN)
                with pytest.raises(Forbidden, match="the owner's alone"):
                    await told(session_key=MAIN, owner=False, sender="stranger")
                assert "heliotrope" not in await told(session_key=GROUP)
                assert "heliotrope" not in await told(session_key=GROUP, owner=False, sender="stranger")

    asyncio.run(main())
