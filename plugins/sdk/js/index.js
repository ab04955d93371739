// Write an event handler for Wasmill in JavaScript. `index.d.ts` beside this file says what each of
// these does.

import { bucket, host } from "./host.js";
import { decode, encode } from "./utf8.js";

/** Try the event again later. */
export class Retry extends Error {
  name = "Retry";

  constructor(reason, { delayMs, cause } = {}) {
    super(reason, cause === undefined ? undefined : { cause });
    this.delayMs = delayMs;
  }
}

/** Never try the event again. */
export class Reject extends Error {
  name = "Reject";

  constructor(reason, { cause } = {}) {
    super(reason, cause === undefined ? undefined : { cause });
  }
}

export class Event {
  constructor({ metadata = {}, payload = {}, ...fields } = {}) {
    Object.assign(this, fields);
    this.metadata = { __proto__: null, ...metadata };
    this.payload = bytes(payload);
  }

  text() {
    return decode(this.payload);
  }

  json() {
    return JSON.parse(this.text());
  }
}

export function config(key) {
  try {
    return host().config.get(text(key)) ?? undefined;
  } catch (error) {
    throw refusal(error, Retry);
  }
}

export const outbox = {
  append(stream, payload, { eventType, key, partition, metadata = {} } = {}) {
    const event = {
      eventType: optional(eventType, text),
      key: optional(key, text),
      // The engine takes numbers of 32 bits as signed ones.
      partition: optional(partition, (number) => whole(number, 0xffffffff, "a partition") | 0),
      metadata: Object.entries(metadata).map(([name, value]) => [text(name), text(value)]),
      payload: bytes(payload),
    };
    try {
      host().outbox.append(text(stream), event);
    } catch (error) {
      // A missing grant can be mended before the last attempt; what cannot be stored never will be.
      throw refusal(error, error?.payload?.tag === "access-denied" ? Retry : Reject);
    }
  },
};

export const state = {
  open: (name) => new Bucket(text(name)),
};

class Bucket {
  #name;

  constructor(name) {
    this.#name = name;
  }

  get(key) {
    return this.#call(({ store }, handle) => store.get(handle, text(key))) ?? undefined;
  }

  getText(key) {
    const value = this.get(key);
    return value && decode(value);
  }

  getMany(keys) {
    const names = Array.from(keys, text);
    return this.#call(({ batch }, handle) => batch.getMany(handle, names)).map((pair) => pair?.[1]);
  }

  has(key) {
    return this.#call(({ store }, handle) => store.exists(handle, text(key)));
  }

  set(key, value) {
    this.#call(({ store }, handle) => store.set(handle, text(key), raw(value)));
  }

  setMany(entries) {
    const pairs = Array.from(entries, ([key, value]) => [text(key), raw(value)]);
    this.#call(({ batch }, handle) => batch.setMany(handle, pairs));
  }

  delete(key) {
    this.#call(({ store }, handle) => store.delete(handle, text(key)));
  }

  deleteMany(keys) {
    const names = Array.from(keys, text);
    this.#call(({ batch }, handle) => batch.deleteMany(handle, names));
  }

  increment(key, delta = 1) {
    const added = whole(delta, Number.MAX_SAFE_INTEGER, "what is added");
    return this.#call(({ atomics }, handle) => atomics.increment(handle, text(key), added));
  }

  *keys() {
    let cursor = null;
    do {
      const from = cursor;
      const page = this.#call(({ store }, handle) => store.listKeys(handle, from));
      yield* page.keys;
      cursor = page.cursor;
    } while (cursor !== null);
  }

  #call(operation) {
    const imports = host();
    try {
      return operation(imports, bucket(this.#name));
    } catch (error) {
      throw refusal(error, Retry);
    }
  }
}

/** What the host refused, as a failure that decides the event's fate unless it is caught. */
function refusal(error, Failure) {
  const refused = error?.payload;
  if (typeof refused?.tag !== "string") return error;
  const reason = refused.val ?? refused.tag.replaceAll("-", " ");
  return Object.assign(new Failure(reason), { code: refused.tag });
}

/** The host takes no text with half of a surrogate pair, which JavaScript allows. */
function text(value) {
  return String(value).toWellFormed();
}

function optional(value, convert) {
  return value === undefined || value === null ? null : convert(value);
}

function whole(value, max, what) {
  if (!Number.isInteger(value) || value < 0 || value > max) {
    throw new RangeError(`${what} must be a whole number from 0 to ${max}, not ${String(value)}`);
  }
  return value;
}

/** Bytes as they are, text as it is. */
function raw(value) {
  if (value instanceof Uint8Array) return value;
  if (typeof value === "string") return encode(value);
  throw new TypeError(`a value must be a string or a Uint8Array, not ${typeof value}`);
}

/** Bytes and text as they are, any other value as JSON. */
function bytes(value) {
  return value instanceof Uint8Array ? value : raw(typeof value === "string" ? value : JSON.stringify(value));
}
