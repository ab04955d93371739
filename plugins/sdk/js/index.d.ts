/**
 * Write an event handler for Wasmill in JavaScript or TypeScript.
 *
 * `handler.js` exports a function `handle(event, delivery)`. Returning acknowledges the event. Throwing
 * a {@link Retry} asks for it again, throwing a {@link Reject} makes it a dead letter at once, and any
 * other error is a retry that tells the error. The function may be `async`.
 */

/** Try the event again, unless this was its last attempt. */
export class Retry extends Error {
  /**
   * @param reason Why; its first 1,000 characters are kept with the event.
   * @param options `delayMs`: how many milliseconds to wait at least, up to 49 days. Without it the
   *   pipeline's backoff decides.
   */
  constructor(reason: string, options?: { delayMs?: number; cause?: unknown });
  delayMs?: number;
  /** Of an error of the host: its kind, such as `access-denied`. */
  code?: string;
}

/** Never try the event again: make it a dead letter. */
export class Reject extends Error {
  /** @param reason Why; its first 1,000 characters are kept with the event. */
  constructor(reason: string, options?: { cause?: unknown });
  /** Of an error of the host: its kind, such as `invalid`. */
  code?: string;
}

/** One event of the log. It never changes, however often it is delivered. */
export class Event {
  /** For tests of a handler: an event with these fields. A payload may be given as a value. */
  constructor(fields?: Partial<Omit<Event, "payload" | "text" | "json">> & { payload?: unknown });
  /** The producer's id, or one that the host made. Use it to recognise an event that comes again. */
  readonly id: string;
  /** The stream that holds the event. */
  readonly streamName: string;
  /** The event's partition, from 0. */
  readonly partition: number;
  /** The event's place in its partition, from 1. */
  readonly sequence: number;
  /** The event's time as it is stored: as a rule ISO 8601 in UTC. */
  readonly timestamp: string;
  /** The instant that `timestamp` names, as `Date.now()` counts; null where the text is no time. */
  readonly timestampMs: number | null;
  /** The routing key: events with equal keys are in the same partition, in order. */
  readonly key: string | null;
  /** The event's type, as its producer named it. */
  readonly eventType: string | null;
  /** Metadata: texts as they are, other values as their JSON text. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The payload: the text of a JSON object in UTF-8, byte for byte as it was appended. */
  readonly payload: Uint8Array;
  /** The payload's text. */
  text(): string;
  /** The payload's value, parsed anew. Numbers above 2^53 lose their last digits. */
  json(): any;
}

/** How the event came to be delivered this time. */
export interface Delivery {
  /** The pipeline that delivers. */
  readonly pipeline: string;
  /** The consumer group that the pipeline reads for. */
  readonly group: string;
  /** How often the event was delivered, this time included: from 1. */
  readonly attempt: number;
  /** The attempt after which a failure is final. */
  readonly maxAttempts: number;
  /** Milliseconds left for the answer when the call starts; after that it is cut off. */
  readonly timeoutMs: number;
}

/** The operator's setting of this name, if it is set. */
export function config(key: string): string | undefined;

/**
 * Events that a handler appends: all of them with the acknowledgement of its own event, in the same
 * atomic step, or none. The operator grants the streams (`allow_streams`).
 */
export const outbox: {
  /**
   * Stages an event for a stream. Events of one call are appended in the order of these calls.
   * @param payload A JSON object. A string or bytes are its text, and are kept as they are.
   * @throws {Retry} with the code `access-denied`, if the stream is not granted
   * @throws {Reject} with the code `invalid` or `limit`, if the event cannot be stored, or the call has
   *   staged too much
   */
  append(stream: string, payload: object | string | Uint8Array, options?: NewEvent): void;
};

/** What an appended event has besides its payload. */
export interface NewEvent {
  /** Its type. */
  eventType?: string | null;
  /** Its routing key: it decides the partition where `partition` does not. */
  key?: string | null;
  /** Its partition, from 0. */
  partition?: number | null;
  /** Its metadata. `causation_id`, `producer` and `hops` are the host's. */
  metadata?: Record<string, unknown>;
}

/**
 * State that outlives a call, in named buckets of keys and values.
 *
 * Writes are committed with the acknowledgement of the handled event, in the same atomic step, or not at
 * all; reads see the call's own writes. If what a call has read was changed by another commit meanwhile,
 * the host runs the handler again on fresh state: so reading, computing and writing back is safe.
 */
export const state: {
  /** The bucket of this name: letters, digits, `.`, `_` and `-`. It is opened when it is first used. */
  open(name: string): Bucket;
};

/** A bucket. Each method throws a {@link Retry} if the host cannot do it. */
export interface Bucket {
  /** The value of a key, if it has one. */
  get(key: string): Uint8Array | undefined;
  /** The value of a key as text, if it has one. */
  getText(key: string): string | undefined;
  /** The values of keys, in the order asked for: one question to the store for all of them. */
  getMany(keys: Iterable<string>): (Uint8Array | undefined)[];
  /** Whether a key has a value. */
  has(key: string): boolean;
  /** Sets the value of a key; at most 1 MiB. */
  set(key: string, value: string | Uint8Array): void;
  /** Sets the values of keys. */
  setMany(entries: Iterable<readonly [string, string | Uint8Array]>): void;
  /** Removes a key; one that is not there is no error. */
  delete(key: string): void;
  /** Removes keys. */
  deleteMany(keys: Iterable<string>): void;
  /**
   * Adds to a number, and gives the sum. A key without a value counts as zero; the number is kept as
   * decimal text. A sum above 2^53 is kept exactly, but arrives here rounded.
   */
  increment(key: string, delta?: number): number;
  /** The bucket's keys, as the store has them: the call's own writes are not among them. */
  keys(): Iterable<string>;
}
