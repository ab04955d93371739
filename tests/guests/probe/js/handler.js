// Does what an event's payload says: see README.md in the folder above.

import { config, outbox, Reject, Retry, state } from "./wasmill/index.js";

const kept = [];

/**
 * @param {import("./wasmill/index.js").Event} event
 * @param {import("./wasmill/index.js").Delivery} delivery
 */
export function handle(event, delivery) {
  const { do: what, ...given } = event.json();
  const act = Object.hasOwn(acts, what) ? acts[what] : undefined;
  if (act === undefined) throw new Reject(`unknown: ${what}`);
  return act(given, event, delivery);
}

const acts = {
  ack() {},

  retry({ reason, delay_ms }) {
    throw new Retry(reason, { delayMs: delay_ms });
  },

  reject({ reason }) {
    throw new Reject(reason);
  },

  raise({ reason }) {
    throw new TypeError(reason);
  },

  // QuickJS has no exit, and the stack of WebAssembly ends before its own.
  crash({ reason }) {
    console.error(reason);
    const deeper = (n) => 1 + deeper(n + 1);
    deeper(0);
  },

  log({ level, message }) {
    console[level](message);
  },

  print({ message }) {
    console.log(message);
  },

  config({ key }) {
    throw new Retry(config(key) ?? "none");
  },

  count({ key }) {
    throw new Retry(String(state.open("default").increment(key)));
  },

  set({ key, value }) {
    const bucket = state.open("default");
    bucket.set(key, value);
    throw new Retry(bucket.getText(key));
  },

  append({ stream, payload }) {
    outbox.append(stream, payload, { eventType: "probe", key: "k", metadata: { a: "b" } });
  },

  echo(_, event, delivery) {
    const seen = {
      id: event.id,
      stream: event.streamName,
      partition: event.partition,
      sequence: event.sequence,
      timestamp: event.timestamp,
      ms: event.timestampMs,
      key: event.key,
      type: event.eventType,
      metadata: Object.keys(event.metadata).length,
      bytes: event.payload.length,
      pipeline: delivery.pipeline,
      group: delivery.group,
      attempt: delivery.attempt,
      max: delivery.maxAttempts,
    };
    throw new Retry(Object.entries(seen).map(([name, value]) => `${name}=${value ?? "none"} `).join(""));
  },

  leak({ bytes }) {
    kept.push(new Uint8Array(bytes).fill(1));
  },
};
