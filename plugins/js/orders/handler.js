// Checks orders, enriches and routes them: see orders.md two folders up.

import { config, outbox, Reject, Retry } from "./wasmill/index.js";

const QUANTITY_MAX = 4294967295;
const PAYMENTS = ["authorized", "pending", "declined"];

/**
 * @param {import("./wasmill/index.js").Event} event
 * @param {import("./wasmill/index.js").Delivery} delivery
 */
export function handle(event, delivery) {
  const order = read(event.json());
  check(order);
  collect(order, delivery.attempt);

  const { order_id, customer, currency, total_cents, items } = order;
  const units = items.reduce((sum, item) => sum + item.quantity, 0);
  const trace = event.metadata.trace_id ?? null;
  console.info(`order ${order_id} of ${customer}: ${total_cents} cents ${currency}`);
  route({ order_id, customer, currency, total_cents, lines: items.length, units, trace });
}

/** The fields that an order needs, each of its type; whatever else it has is left out. */
function read({ order_id, customer, currency, items, total_cents, payment = "authorized", payment_attempts = 3 }) {
  text(order_id, "order_id");
  text(customer, "customer");
  text(currency, "currency");
  demand(Array.isArray(items), "items is no array");
  for (const [n, item] of items.entries()) {
    demand(typeof item === "object" && item !== null, `items[${n}] is no object`);
    text(item.sku, `items[${n}].sku`);
    whole(item.quantity, `items[${n}].quantity`, QUANTITY_MAX);
    whole(item.unit_price_cents, `items[${n}].unit_price_cents`);
  }
  whole(total_cents, "total_cents");
  demand(PAYMENTS.includes(payment), `payment is none of ${PAYMENTS.join(", ")}`);
  whole(payment_attempts, "payment_attempts");
  return { order_id, customer, currency, items, total_cents, payment, payment_attempts };
}

function text(value, name) {
  demand(typeof value === "string", `${name} is no string`);
}

// All numbers are doubles: what is above 2^53 − 1 may be another number than the one in the payload.
function whole(value, name, max = Number.MAX_SAFE_INTEGER) {
  demand(Number.isInteger(value) && value >= 0 && value <= max, `${name} is no integer from 0 to ${max}`);
}

function demand(holds, words) {
  if (!holds) throw new Reject(`not an order: ${words}`);
}

/** What is wrong here stays wrong, however often it is tried. */
function check({ currency, items, total_cents }) {
  const currencies = config("currencies") ?? "EUR,USD,GBP";
  if (!currencies.split(",").some((accepted) => accepted.trim() === currency)) {
    throw new Reject(`currency \`${currency}\` is not accepted (accepted: ${currencies})`);
  }
  if (items.length === 0) throw new Reject("the order has no items");
  const empty = items.find((item) => item.quantity === 0);
  if (empty) throw new Reject(`item \`${empty.sku}\` has the quantity 0`);

  let sum = 0;
  for (const { quantity, unit_price_cents } of items) {
    sum += quantity * unit_price_cents;
    if (sum > Number.MAX_SAFE_INTEGER) {
      throw new Reject(`the items add up to more than ${Number.MAX_SAFE_INTEGER}`);
    }
  }
  if (sum !== total_cents) {
    throw new Reject(`total_cents is ${total_cents}, but the items add up to ${sum}`);
  }
}

/** A pending payment may still arrive; a declined one will not. */
function collect({ order_id, payment, payment_attempts }, attempt) {
  if (payment === "pending" && attempt < payment_attempts) {
    throw new Retry(`the payment of order ${order_id} is pending`);
  }
  if (payment === "declined") throw new Reject(`the payment of order ${order_id} was declined`);
}

/** Large orders go to review, if there is one, the others to shipping. */
function route(order) {
  const options = { key: order.customer, metadata: { order_id: order.order_id } };
  const review = config("review_stream");
  const shipping = config("shipping_stream");
  if (review !== undefined && order.total_cents > integer(config("review_above_cents") ?? "100000")) {
    outbox.append(review, order, { ...options, eventType: "order-review" });
  } else if (shipping !== undefined) {
    outbox.append(shipping, order, { ...options, eventType: "order-accepted" });
  }
}

function integer(text) {
  const number = Number(text);
  if (!Number.isInteger(number)) throw new RangeError(`\`${text}\` is no integer`);
  return number;
}
