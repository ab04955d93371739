// Text and bytes. QuickJS has no TextEncoder and no TextDecoder. What it has in native code are base64
// and percent-encoding, and a detour over these is many times faster than a loop over characters.

// Under Node, where a handler's tests run, it is the other way round.
const Native = globalThis.TextDecoder && { decoder: new TextDecoder(), encoder: new TextEncoder() };

/** The text of bytes; what is no UTF-8 becomes U+FFFD, or an error if `fatal`. */
export function decode(bytes, fatal = false) {
  if (Native) return Native.decoder.decode(bytes);
  const latin = atob(bytes.toBase64());
  if (!/[\x80-\xff]/.test(latin)) return latin;
  try {
    return decodeURIComponent(escape(latin));
  } catch {
    if (fatal) throw new TypeError("the bytes are no UTF-8");
    return latin.replace(CHARACTER, (part) => {
      try {
        return decodeURIComponent(escape(part));
      } catch {
        return "\ufffd";
      }
    });
  }
}

/** What may be a character above ASCII: a first byte and those that can follow it. */
const CHARACTER = /[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{1,2}|[\xf0-\xf4][\x80-\xbf]{1,3}|[\x80-\xff]/g;

/** The bytes of a text; half of a surrogate pair becomes U+FFFD. */
export function encode(text) {
  if (Native) return Native.encoder.encode(text);
  const ascii = !/[^\x00-\x7f]/.test(text);
  return Uint8Array.fromBase64(btoa(ascii ? text : unescape(encodeURIComponent(text.toWellFormed()))));
}
