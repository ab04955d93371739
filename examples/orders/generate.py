#!/usr/bin/env python3
"""Writes events.jsonl: orders as a shop might send them, always the same ones.

Of the 3,000 orders about nine in ten are fine, some wait for their payment for one to three
deliveries (two of them for ever), and some can never succeed. README.md has the counts.
"""
import json
import pathlib
import random

ORDERS = 3000
SKUS = [("tea-green", 790), ("tea-black", 690), ("cup", 1250), ("pot", 3490), ("filter", 320), ("honey", 880)]
CUSTOMERS = ["Ada", "Björn", "Chloé", "Dmitri", "Eun-ji", "Fatima", "Gökhan", "Hana", "Iñigo", "Jürgen"]


def order(number, rng):
    items = []
    for sku, price in rng.sample(SKUS, rng.randint(1, 3)):
        items.append({"sku": sku, "quantity": rng.randint(1, 4), "unit_price_cents": price})
    payload = {
        "order_id": f"o-{number:05}",
        "customer": rng.choice(CUSTOMERS),
        "currency": rng.choice(["EUR", "EUR", "EUR", "USD", "GBP"]),
        "items": items,
        "total_cents": sum(item["quantity"] * item["unit_price_cents"] for item in items),
        "payment": "authorized",
    }
    draw = rng.random()
    if draw < 0.05:
        payload["payment"] = "pending"
        payload["payment_attempts"] = rng.choice([2, 2, 3])
    elif draw < 0.06:
        payload["payment"] = "declined"
    elif draw < 0.07:
        payload["total_cents"] += 100
    elif draw < 0.075:
        payload["currency"] = "XBT"
    elif draw < 0.08:
        items[0]["quantity"] = 0
    elif draw < 0.085:
        del payload["customer"]
    if number in (1000, 2000):
        payload.update(payment="pending", payment_attempts=1000)
    return payload


def main():
    rng = random.Random(20260115)
    out = pathlib.Path(__file__).with_name("events.jsonl")
    with out.open("w", encoding="utf-8") as lines:
        for number in range(1, ORDERS + 1):
            payload = order(number, rng)
            line = {"type": "order.placed", "key": payload.get("customer", "unknown"), "payload": payload}
            lines.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
