#include "order.h"

#include <string.h>

// Each `read_…` gives NULL, or what is wrong with the field.

static const char *read_text(wasmill_json object, const char *name, const char **text) {
  bool right = wasmill_json_string(wasmill_json_get(object, name), text);
  return right ? NULL : wasmill_format("`%s` is no string", name);
}

static const char *read_integer(wasmill_json object, const char *name, int64_t max, int64_t *number) {
  bool right = wasmill_json_integer(wasmill_json_get(object, name), number) && *number >= 0 && *number <= max;
  return right ? NULL : wasmill_format("`%s` is no integer from 0 to %lld", name, (long long)max);
}

static const char *read_items(wasmill_json list, order *order) {
  if (list.type != WASMILL_JSON_ARRAY) return "`items` is no array";
  wasmill_json item = {0};
  while (wasmill_json_next(list, &item)) order->item_count++;
  order->items = wasmill_alloc(order->item_count * sizeof *order->items);

  item = (wasmill_json){0};
  for (order_item *to = order->items; wasmill_json_next(list, &item); to++) {
    const char *error = read_text(item, "sku", &to->sku);
    if (!error) error = read_integer(item, "quantity", UINT32_MAX, &to->quantity);
    if (!error) error = read_integer(item, "unit_price_cents", AMOUNT_MAX, &to->unit_price);
    if (error) return error;
  }
  return NULL;
}

static const char *read_payment(wasmill_json object, order *order) {
  order->payment = AUTHORIZED;
  order->payment_attempts = 3;
  const char *error = NULL;
  if (wasmill_json_get(object, "payment_attempts").type != WASMILL_JSON_ABSENT) {
    error = read_integer(object, "payment_attempts", AMOUNT_MAX, &order->payment_attempts);
  }
  if (error || wasmill_json_get(object, "payment").type == WASMILL_JSON_ABSENT) return error;

  const char *payment;
  error = read_text(object, "payment", &payment);
  if (error) return error;
  if (strcmp(payment, "pending") == 0) {
    order->payment = PENDING;
  } else if (strcmp(payment, "declined") == 0) {
    order->payment = DECLINED;
  } else if (strcmp(payment, "authorized") != 0) {
    return wasmill_format("the payment `%s` is unknown", payment);
  }
  return NULL;
}

const char *order_parse(const char *text, size_t length, order *order) {
  *order = (struct order){0};
  wasmill_json object;
  const char *error = wasmill_json_parse(text, length, &object);
  if (!error) error = read_text(object, "order_id", &order->id);
  if (!error) error = read_text(object, "customer", &order->customer);
  if (!error) error = read_text(object, "currency", &order->currency);
  if (!error) error = read_integer(object, "total_cents", AMOUNT_MAX, &order->total);
  if (!error) error = read_payment(object, order);
  if (!error) error = read_items(wasmill_json_get(object, "items"), order);
  return error;
}
