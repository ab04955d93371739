// The component's side: calls the project's `handle`, and turns its end into an answer. The bundler
// begins here and finds `handler.js` (or `handler.ts`) under the name `handler`.

import { seed } from "./globals.js";
import * as config from "wasi:config/store@0.2.0-rc.1";
import * as atomics from "wasi:keyvalue/atomics@0.2.0-draft";
import * as batch from "wasi:keyvalue/batch@0.2.0-draft";
import * as keyvalue from "wasi:keyvalue/store@0.2.0-draft";
import * as logging from "wasi:logging/logging@0.1.0-draft";
import * as outbox from "wasmill:handler/outbox@0.1.0";
import { handle as handleEvent } from "handler";
import { describe, headline, log } from "./console.js";
import { isOpen, open } from "./host.js";
import { Event, Reject, Retry } from "./index.js";
import { finish } from "./promise.js";

const DELAY_MS_MAX = 0xffffffff;

const store = {
  open: keyvalue.open,
  get: (bucket, key) => bucket.get(key),
  set: (bucket, key, value) => bucket.set(key, value),
  delete: (bucket, key) => bucket.delete(key),
  exists: (bucket, key) => bucket.exists(key),
  listKeys: (bucket, cursor) => bucket.listKeys(cursor),
};
const host = { atomics, batch, config, logging, outbox, store };

if (typeof handleEvent !== "function") throw new TypeError("`handle` is exported, but is no function");
// What the handler's file began when it was loaded, it ends before the build does.
finish();

export function handle(event, delivery) {
  if (!isOpen()) seed(event.id, Date.now(), performance.now());
  open(host, delivery);
  try {
    finish(handleEvent(eventOf(event), deliveryOf(delivery)));
  } catch (error) {
    throw failure(error);
  }
}

// The engine takes and gives numbers of 32 bits as signed ones: `>>> 0` makes them what they are.

function eventOf(event) {
  return new Event({
    ...event,
    partition: event.partition >>> 0,
    metadata: Object.fromEntries(event.metadata),
  });
}

function deliveryOf({ pipeline, group, attempt, maxAttempts, timeoutMs }) {
  return {
    pipeline,
    group,
    attempt: attempt >>> 0,
    maxAttempts: maxAttempts >>> 0,
    timeoutMs: timeoutMs >>> 0,
  };
}

/** The error as the failure that the world knows. */
function failure(error) {
  if (error instanceof Reject) return { tag: "reject", val: reason(() => error.message) };
  if (error instanceof Retry) return retry(reason(() => error.message), error.delayMs);
  log("error", reason(() => describe(error)));
  return retry(reason(() => headline(error)));
}

function retry(text, delay) {
  const whole = Math.trunc(Number(delay)) || 0;
  // `| 0`: the other way round.
  const delayMs = delay === undefined || delay === null ? null : Math.min(Math.max(whole, 0), DELAY_MS_MAX) | 0;
  return { tag: "retry", val: { reason: text, delayMs } };
}

/** Anything can be thrown, even what cannot be shown. */
function reason(show) {
  try {
    return String(show()).toWellFormed();
  } catch {
    return "an error that cannot be shown";
  }
}
