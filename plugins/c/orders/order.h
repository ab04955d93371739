// An order as producers send it.
#ifndef ORDER_H
#define ORDER_H

#include "wasmill/wasmill.h"

// The largest amount: what every language's JSON holds.
#define AMOUNT_MAX INT64_C(9007199254740991)

typedef struct {
  const char *sku;
  int64_t quantity;
  int64_t unit_price;
} order_item;

typedef enum { AUTHORIZED, PENDING, DECLINED } order_payment;

typedef struct order {
  const char *id;
  const char *customer;
  const char *currency;
  int64_t total;
  order_payment payment;
  int64_t payment_attempts;
  order_item *items;
  size_t item_count;
} order;

// Reads an order. NULL if it is one, else what is wrong with it.
const char *order_parse(const char *text, size_t length, order *order);

#endif
