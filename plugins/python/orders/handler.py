"""Checks orders, enriches and routes them: see orders.md two folders up."""

import logging
from dataclasses import dataclass
from typing import Any

from wasmill import Delivery, Event, Reject, Retry, config, handler, outbox

INTEGER_MAX = 2**53 - 1
QUANTITY_MAX = 2**32 - 1
PAYMENTS = ("authorized", "pending", "declined")

log = logging.getLogger(__name__)


@dataclass
class Item:
    sku: str
    quantity: int
    unit_price_cents: int


@dataclass
class Order:
    order_id: str
    customer: str
    currency: str
    items: list[Item]
    total_cents: int
    payment: str
    payment_attempts: int


@handler
def handle(event: Event, delivery: Delivery) -> None:
    try:
        order = read(event.json())
    except (KeyError, TypeError, ValueError) as error:
        raise Reject(f"not an order: {type(error).__name__}: {error}") from None
    check(order)
    collect(order, delivery.attempt)

    log.info("order %s of %s: %d cents %s", order.order_id, order.customer, order.total_cents, order.currency)
    route(order, event.metadata.get("trace_id"))


def read(payload: dict[str, Any]) -> Order:
    """The fields that an order needs, each of its type; whatever else it has is left out."""
    payment = payload.get("payment", "authorized")
    if payment not in PAYMENTS:
        raise ValueError(f"payment is none of {', '.join(PAYMENTS)}")
    return Order(
        order_id=text(payload["order_id"]),
        customer=text(payload["customer"]),
        currency=text(payload["currency"]),
        items=[
            Item(text(item["sku"]), whole(item["quantity"], QUANTITY_MAX), whole(item["unit_price_cents"]))
            for item in array(payload["items"])
        ],
        total_cents=whole(payload["total_cents"]),
        payment=payment,
        payment_attempts=whole(payload.get("payment_attempts", 3)),
    )


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no string")
    return value


def array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no array")
    return value


def whole(value: Any, most: int = INTEGER_MAX) -> int:
    # `True` is an integer in Python.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    if not 0 <= value <= most:
        raise ValueError(f"{value} is not from 0 to {most}")
    return value


def check(order: Order) -> None:
    """What is wrong here stays wrong, however often it is tried."""
    currencies = config("currencies", "EUR,USD,GBP")
    if order.currency not in (accepted.strip() for accepted in currencies.split(",")):
        raise Reject(f"currency `{order.currency}` is not accepted (accepted: {currencies})")
    if not order.items:
        raise Reject("the order has no items")
    for item in order.items:
        if item.quantity == 0:
            raise Reject(f"item `{item.sku}` has the quantity 0")

    total = sum(item.quantity * item.unit_price_cents for item in order.items)
    if total > INTEGER_MAX:
        raise Reject(f"the items add up to more than {INTEGER_MAX}")
    if total != order.total_cents:
        raise Reject(f"total_cents is {order.total_cents}, but the items add up to {total}")


def collect(order: Order, attempt: int) -> None:
    """A pending payment may still arrive; a declined one will not."""
    if order.payment == "pending" and attempt < order.payment_attempts:
        raise Retry(f"the payment of order {order.order_id} is pending")
    if order.payment == "declined":
        raise Reject(f"the payment of order {order.order_id} was declined")


def route(order: Order, trace: str | None) -> None:
    """Large orders go to review, if there is one, the others to shipping."""
    stream, event_type = config("shipping_stream"), "order-accepted"
    review = config("review_stream")
    if review is not None and order.total_cents > int(config("review_above_cents", "100000")):
        stream, event_type = review, "order-review"
    if stream is None:
        return
    enriched = {
        "order_id": order.order_id,
        "customer": order.customer,
        "currency": order.currency,
        "total_cents": order.total_cents,
        "lines": len(order.items),
        "units": sum(item.quantity for item in order.items),
        "trace": trace,
    }
    outbox.append(
        stream, enriched, event_type=event_type, key=order.customer, metadata={"order_id": order.order_id}
    )
