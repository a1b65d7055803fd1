"""A process to be killed: it runs the turns of a store, with a tool that changes the world and then hangs.

    turn_worker.py STORE-URL HOME MODEL-URL

`strike` writes a line to `HOME/struck` and never returns; `mark` writes one to `HOME/marked` and does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from loop_stage import Stage, Word

from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.effects import Effect
from holdfast.log import Store, Threads


def tools(home: Path) -> list[Tool[Word]]:
    def write(name: str, word: str) -> None:
        with (home / name).open("a") as file:
            file.write(f"{word}\n")

    async def strike(caller: Caller, given: Word, call_id: str) -> ToolOutput:
        write("struck", given.word)
        await asyncio.sleep(3600)
        return ToolOutput(text="never")

    async def mark(caller: Caller, given: Word, call_id: str) -> ToolOutput:
        write("marked", given.word)
        return ToolOutput(text=f"marked {given.word}")

    return [
        Tool(name="strike", input=Word, run=strike, effect=Effect.WORLD, repeatable=False),
        Tool(name="mark", input=Word, run=mark, effect=Effect.WORLD, repeatable=False),
    ]


async def main(url: str, home: Path, model_url: str) -> None:
    store = Store(url)
    async with Stage(store, Threads(4), home, url=model_url) as stage:
        stage.toolbox.register_all(tools(home))
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
