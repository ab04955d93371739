#!/usr/bin/env python3
"""Writes events.jsonl: 40 deposits that open accounts, then 1,960 transfers, always the same ones.

No account sends more than its own deposit, in whatever order the transfers are handled; 20 of them ask
for more than there is in all accounts together. So the end is always the same. README.md has the counts.
"""
import json
import pathlib
import random

ACCOUNTS = [f"a-{number:02}" for number in range(1, 41)]
DEPOSIT = 1_000_000
TRANSFERS = 1960
IMPOSSIBLE = 20


def line(number, event_type, key, payload):
    return {"id": f"b-{number:04}", "type": event_type, "key": key, "payload": payload}


def events(rng):
    for number, account in enumerate(ACCOUNTS, 1):
        yield line(number, "deposit", account, {"account": account, "amount": DEPOSIT})
    left = dict.fromkeys(ACCOUNTS, DEPOSIT)
    impossible = set(rng.sample(range(TRANSFERS), IMPOSSIBLE))
    for number in range(TRANSFERS):
        sender, receiver = rng.sample(ACCOUNTS, 2)
        if number in impossible:
            amount = DEPOSIT * len(ACCOUNTS) + rng.randint(1, 1000)
        else:
            amount = rng.randint(1, min(20_000, left[sender]))
            left[sender] -= amount
        payload = {"from": sender, "to": receiver, "amount": amount}
        yield line(len(ACCOUNTS) + number + 1, "transfer", sender, payload)


def main():
    rng = random.Random(20260118)
    out = pathlib.Path(__file__).with_name("events.jsonl")
    with out.open("w", encoding="utf-8") as lines:
        for event in events(rng):
            lines.write(json.dumps(event, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
