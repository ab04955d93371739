// What the host offers. It is there only while an event is handled: `component.js` opens it with the
// first one. Neither the build, which runs the handler's file once, nor a unit test has it.

let imports = null;
let pipeline = "";

/** Open buckets. Handles are never given back in JavaScript, so each is opened only once. */
const buckets = new Map();

/** From now on the host can be asked; `delivery` is that of the event in hand. */
export function open(offered, delivery) {
  imports = offered;
  pipeline = delivery.pipeline;
}

/** Whether an event was handled already. */
export function isOpen() {
  return imports !== null;
}

/** The host, once it is open. */
export function host() {
  if (imports === null) {
    throw new Error("settings, outbox and state are there only while an event is handled");
  }
  return imports;
}

/** The handle of a bucket. One plugin may serve several pipelines, and each has its own buckets. */
export function bucket(name) {
  const key = `${pipeline}\n${name}`;
  let handle = buckets.get(key);
  if (handle === undefined) {
    handle = host().store.open(name);
    buckets.set(key, handle);
  }
  return handle;
}
