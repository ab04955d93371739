// What programs expect of an engine and QuickJS lacks, or has only for an embedder of another kind.

import { console } from "./console.js";
import { Promise, queueMicrotask } from "./promise.js";
import { decode, encode } from "./utf8.js";

class TextEncoder {
  encoding = "utf-8";

  encode(text = "") {
    return encode(String(text));
  }
}

class TextDecoder {
  encoding = "utf-8";

  constructor(label = "utf-8", { fatal = false } = {}) {
    if (!/^utf-?8$/i.test(label)) throw new RangeError(`the encoding ${label} is not known here`);
    this.fatal = fatal;
  }

  decode(bytes = new Uint8Array()) {
    const view = ArrayBuffer.isView(bytes)
      ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
      : new Uint8Array(bytes);
    return decode(view, this.fatal).replace(/^\ufeff/, "");
  }
}

// The generator behind `Math.random`: sfc32, four numbers of 32 bits.
let [a, b, c, counter] = [1, 2, 3, 4];

function next() {
  const sum = (a + b + counter) | 0;
  counter = (counter + 1) | 0;
  a = b ^ (b >>> 9);
  b = (c + (c << 3)) | 0;
  c = (((c << 21) | (c >>> 11)) + sum) | 0;
  return sum >>> 0;
}

/** Instances begin as copies of the one that the build started: all would draw the same numbers. */
export function seed(...values) {
  for (const character of values.join(" ")) {
    a ^= Math.imul(character.charCodeAt(0), 0x01000193);
    next();
  }
  for (let n = 0; n < 16; n++) next();
}

Math.random = () => ((next() >>> 5) * 0x4000000 + (next() >>> 6)) / 0x20000000000000;

for (const [name, value] of Object.entries({ console, Promise, queueMicrotask, TextEncoder, TextDecoder })) {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
}
// It would use the engine's own promises.
delete Array.fromAsync;
