"""A llama.cpp server in a process of its own: `llama_server.py PORT WINDOW TEMPLATE WEIGHTS`.

It ends with its standard input, so that none outlives the test run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import xllamacpp


def main(port: str, window: str, template: str, weights: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {"smollm2"}
    params.port = int(port)
    params.n_ctx = int(window)
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.use_jinja = True
    params.warmup = False
    params.sampling.temp = 0
    params.chat_template = Path(template).read_text()
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # a request that is still answered would keep the process


if __name__ == "__main__":
    main(*sys.argv[1:])
