import logging

from wasmill import Delivery, Event, Reject, Retry, config, handler

log = logging.getLogger(__name__)


@handler
def handle(event: Event, delivery: Delivery) -> None:
    """Called once for each event. Returning acknowledges the event."""
    person = event.json()
    name = person.get("name")

    # Never: trying again would not help, so the event becomes a dead letter.
    if not isinstance(name, str):
        raise Reject("the payload has no `name`")

    # Not now: the event comes again, with `delivery.attempt` one higher.
    if delivery.attempt < person.get("ready_at_attempt", 1):
        raise Retry(f"{name} is not ready", delay=1)

    # Done. A setting comes from `config` in the pipeline file.
    log.info("%s, %s!", config("greeting", "Hello"), name)
