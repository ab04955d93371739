// Checks orders, enriches them and routes them: ../../orders.md says which answer each case gets.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "order.h"
#include "wasmill/wasmill.h"

// Whether a list of names, separated by commas, has this one.
static bool is_listed(const char *list, const char *name) {
  for (;;) {
    list += strspn(list, " ");
    size_t length = strcspn(list, ",");
    const char *next = list + length;
    while (length > 0 && list[length - 1] == ' ') length--;
    if (strlen(name) == length && memcmp(list, name, length) == 0) return true;
    if (*next == 0) return false;
    list = next + 1;
  }
}

// What is wrong here stays wrong, however often it is tried.
static wasmill_outcome check(const order *order) {
  const char *accepted = wasmill_config("currencies");
  if (!accepted) accepted = "EUR,USD,GBP";
  if (!is_listed(accepted, order->currency)) {
    return wasmill_reject("currency `%s` is not accepted (accepted: %s)", order->currency, accepted);
  }
  if (order->item_count == 0) return wasmill_reject("the order has no items");
  for (size_t n = 0; n < order->item_count; n++) {
    if (order->items[n].quantity == 0) return wasmill_reject("item `%s` has the quantity 0", order->items[n].sku);
  }
  int64_t sum = 0;
  for (size_t n = 0; n < order->item_count; n++) {
    const order_item *item = &order->items[n];
    if (item->unit_price > (AMOUNT_MAX - sum) / item->quantity) {
      return wasmill_reject("the items add up to more than %" PRId64, AMOUNT_MAX);
    }
    sum += item->unit_price * item->quantity;
  }
  if (sum != order->total) {
    return wasmill_reject("total_cents is %" PRId64 ", but the items add up to %" PRId64, order->total, sum);
  }
  return wasmill_ok();
}

// A pending payment may still arrive; a declined one will not.
static wasmill_outcome collect(const order *order, uint32_t attempt) {
  if (order->payment == PENDING && attempt < order->payment_attempts) {
    return wasmill_retry("the payment of order %s is pending", order->id);
  }
  if (order->payment == DECLINED) return wasmill_reject("the payment of order %s was declined", order->id);
  return wasmill_ok();
}

static const char *enrich(const order *order, const char *trace) {
  int64_t units = 0;
  for (size_t n = 0; n < order->item_count; n++) units += order->items[n].quantity;
  return wasmill_format(
      "{\"order_id\":%s,\"customer\":%s,\"currency\":%s,\"total_cents\":%" PRId64 ",\"lines\":%zu,\"units\":%" PRId64
      ",\"trace\":%s}",
      wasmill_json_quote(order->id), wasmill_json_quote(order->customer), wasmill_json_quote(order->currency),
      order->total, order->item_count, units, trace ? wasmill_json_quote(trace) : "null");
}

static wasmill_outcome send(const char *stream, const char *type, const order *order, const char *payload) {
  wasmill_pair metadata = {"order_id", order->id};
  wasmill_new_event event = {
      .type = type,
      .key = order->customer,
      .metadata = &metadata,
      .metadata_count = 1,
      .payload = payload,
  };
  const wasmill_failure *failure = wasmill_append(stream, &event);
  return failure ? wasmill_failed(failure) : wasmill_ok();
}

static wasmill_outcome route(const order *order, const char *payload) {
  const char *review = wasmill_config("review_stream");
  if (review) {
    const char *setting = wasmill_config("review_above_cents");
    if (!setting) setting = "100000";
    char *end;
    errno = 0;
    long long above = strtoll(setting, &end, 10);
    // What is no number is the operator's to mend.
    if (errno || end == setting || *end) return wasmill_retry("review_above_cents is no integer: %s", setting);
    if (order->total > above) return send(review, "order-review", order, payload);
  }
  const char *shipping = wasmill_config("shipping_stream");
  return shipping ? send(shipping, "order-accepted", order, payload) : wasmill_ok();
}

wasmill_outcome handle(const wasmill_event *event, const wasmill_delivery *delivery) {
  order order;
  const char *error = order_parse(event->payload, event->payload_length, &order);
  if (error) return wasmill_reject("not an order: %s", error);

  wasmill_outcome outcome = check(&order);
  if (outcome.verdict != WASMILL_OK) return outcome;
  outcome = collect(&order, delivery->attempt);
  if (outcome.verdict != WASMILL_OK) return outcome;

  wasmill_info("order %s of %s: %" PRId64 " cents %s", order.id, order.customer, order.total, order.currency);
  return route(&order, enrich(&order, wasmill_metadata(event, "trace_id")));
}
