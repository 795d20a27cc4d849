"""A process of an agent: python driver.py, beside parley.py. It does the same as driver.mjs.

Python and its packages take a second to start. So this process starts once, and forks a worker for each line "ROLE" that it reads. It
answers with the worker's number.
"""

import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from parley import call


def work(role: str) -> None:
    log = Path(f"{role}.log")

    def note(*words: object) -> None:
        with log.open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    ended = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("end ")] if log.exists() else []
    for number in itertools.count(max(ended, default=0) + 1):
        message = {"recipient_agent_id": os.environ["RECIPIENT"], "content": f"message {number}"}
        calls: dict[str, tuple[str, ...]] = {
            "poller": ("GET", "/agent/unread"),
            "sender": ("POST", "/chat/private/send", json.dumps(message, separators=(",", ":"))),
            "rotator": ("POST", "/agent/rotate_key", "{}"),
        }
        method, path, body = (*calls[role], "")[:3]

        def use(response: Any, number: int = number) -> None:
            if response["status"] != 200:
                note("error", number, response["status"], response["result"]["code"])
            for message in response["result"].get("messages", []):
                note("got", message["message_id"], message["content"])
            note("end", number)

        note("begin", number)
        call(method, path, body, use)
        time.sleep(0.25 if role == "rotator" else 0.025)


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    worker = os.fork()
    if worker == 0:
        work(line.strip())
    print(worker, flush=True)
