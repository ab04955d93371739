// `console`, bridged to the host's log.

import { host, isOpen } from "./host.js";

/** What was logged before the first event: while the handler's file was loaded. */
const early = [];

/** Logs a message at a level of wasi:logging. */
export function log(level, message) {
  const line = message.toWellFormed();
  if (!isOpen()) {
    if (early.length < 100) early.push([level, line]);
    return;
  }
  const { logging } = host();
  for (const [earlier, text] of early.splice(0)) logging.log(earlier, "", text);
  logging.log(level, "", line);
}

/** An error with its stack and causes, as a log shows it. */
export function describe(error) {
  if (!(error instanceof Error)) return show(error);
  const lines = [headline(error), String(error.stack ?? "").trimEnd()];
  if (error.cause !== undefined) lines.push(`caused by ${describe(error.cause)}`);
  return lines.filter((line) => line !== "").join("\n");
}

/** An error in one line: `Type: message`. */
export function headline(error) {
  if (!(error instanceof Error)) return `${error === null ? "null" : typeof error}: ${show(error)}`;
  // A class that did not set `name` inherits it.
  const name = error.name === "Error" ? error.constructor?.name || "Error" : String(error.name);
  const message = String(error.message);
  return message === "" ? name : `${name}: ${message}`;
}

function show(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return describe(value);
  if (typeof value === "object" && value !== null) {
    try {
      return JSON.stringify(value, (_, part) => (typeof part === "bigint" ? `${part}n` : part)) ?? String(value);
    } catch {
      return Object.prototype.toString.call(value);
    }
  }
  return typeof value === "bigint" ? `${value}n` : String(value);
}

/** As elsewhere: a first text may have places (`%s`, `%d`, `%o`, …) for what follows it. */
function format(values) {
  const rest = [...values];
  if (typeof rest[0] === "string" && rest.length > 1) {
    rest[0] = rest[0].replace(/%[sdifjoOc%]/g, (place) => {
      if (place === "%%") return "%";
      if (rest.length === 1) return place;
      const value = rest.splice(1, 1)[0];
      if (place === "%c") return "";
      if (place === "%i") return String(Math.trunc(Number(value)));
      return place === "%d" || place === "%f" ? String(Number(value)) : show(value);
    });
  }
  return rest.map(show).join(" ");
}

const at = (level) => (...values) => log(level, format(values));

export const console = {
  log: at("info"),
  info: at("info"),
  debug: at("debug"),
  warn: at("warn"),
  error: at("error"),
  trace: (...values) => log("trace", `${format(values)}\n${new Error().stack}`),
  assert: (holds, ...values) => holds || log("error", format(["assertion failed:", ...values])),
};
