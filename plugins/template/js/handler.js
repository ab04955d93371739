import { config, Reject, Retry } from "./wasmill/index.js";

/**
 * Called once for each event. Returning acknowledges the event.
 *
 * @param {import("./wasmill/index.js").Event} event
 * @param {import("./wasmill/index.js").Delivery} delivery
 */
export function handle(event, delivery) {
  const { name, ready_at_attempt = 1 } = event.json();

  // Never: trying again would not help, so the event becomes a dead letter.
  if (typeof name !== "string") throw new Reject("the payload has no `name`");

  // Not now: the event comes again, with `delivery.attempt` one higher.
  if (delivery.attempt < ready_at_attempt) {
    throw new Retry(`${name} is not ready`, { delayMs: 1000 });
  }

  // Done. A setting comes from `config` in the pipeline file.
  console.log(`${config("greeting") ?? "Hello"}, ${name}!`);
}
