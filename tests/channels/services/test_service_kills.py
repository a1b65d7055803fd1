"""People write while the gateway is killed again and again, most often just when a message was taken."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from channel_stage import killable
from service_stage import SERVICES, config, opened, script, settled

from holdfast.testing import ScriptedOpenAI

KILLS = min(20, int(os.environ.get("HOLDFAST_CRASH_KILLS", "1")))
# Once for one service in every run; `make torture` kills all of them, many times.
KILLED = SERVICES if "HOLDFAST_CRASH_KILLS" in os.environ else SERVICES[:1]
EACH = 10


@pytest.mark.parametrize("name", KILLED)
@pytest.mark.timeout(1200)
def test_through_kills_each_message_is_answered_once_and_in_order(
    name: str, home: Path, tmp_path: Path
) -> None:
    chance = random.Random(KILLS)
    with opened(name, tmp_path) as service, ScriptedOpenAI(script) as model:
        (home / "holdfast.json").write_text(json.dumps(config(service, model.url)))
        with killable(home):
            service.ready()
        said = 0
        for _ in range(KILLS):
            shown = len(service.shown())
            for _ in range(EACH):
                service.say(f"number {said}")
                said += 1
            with killable(home):
                service.answered(shown + chance.randrange(1, EACH - 2))
        with killable(home) as url:
            for count in range(len(service.shown()), said):  # each within its time, however many are left
                service.answered(count + 1)
            settled(url, home)
        assert service.shown() == [f"Re: number {number}" for number in range(said)]
