// Reads JSON: strict (RFC 8259), bounds-checked, without recursion.
//
// A text is checked once, as a whole; after that, values are pieces of it, which cost nothing to pass
// around. Only the strings that are asked for are decoded, into memory that lasts until the handler
// returns.
//
//     wasmill_json order;
//     const char *error = wasmill_json_parse(event->payload, event->payload_length, &order);
//     if (error) return wasmill_reject("not an order: %s", error);
//     const char *customer;
//     if (!wasmill_json_string(wasmill_json_get(order, "customer"), &customer)) …
//     wasmill_json items = wasmill_json_get(order, "items"), item = {0};
//     while (wasmill_json_next(items, &item)) …
#ifndef WASMILL_JSON_H
#define WASMILL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// How deep arrays and objects may be nested.
#define WASMILL_JSON_DEPTH_MAX 128

typedef enum {
  WASMILL_JSON_ABSENT,
  WASMILL_JSON_NULL,
  WASMILL_JSON_BOOL,
  WASMILL_JSON_NUMBER,
  WASMILL_JSON_STRING,
  WASMILL_JSON_ARRAY,
  WASMILL_JSON_OBJECT,
} wasmill_json_type;

// A value: its type, and the JSON text of it, which ends after `length` bytes.
typedef struct {
  wasmill_json_type type;
  const char *text;
  size_t length;
} wasmill_json;

// Checks a JSON text in UTF-8. NULL if it is right; else what is wrong with it, and where.
const char *wasmill_json_parse(const char *text, size_t length, wasmill_json *value);

// The member of an object by its key; of a key that comes twice, the last. A value of the type ABSENT if
// there is none, or if it is no object.
wasmill_json wasmill_json_get(wasmill_json object, const char *key);

// Steps through an array; begin with an item that is {0}. False after the last one, or if it is no array.
bool wasmill_json_next(wasmill_json array, wasmill_json *item);

// Steps through an object; begin with a value that is {0}. The key is a value of the type STRING.
bool wasmill_json_next_member(wasmill_json object, wasmill_json *key, wasmill_json *value);

// The functions below are true if the value has that type, and leave `result` alone if not.

// A string, ended by a zero; one that holds a zero itself is none.
bool wasmill_json_string(wasmill_json value, const char **result);
// A string that may hold zeros, with its length in bytes.
bool wasmill_json_string_n(wasmill_json value, const char **result, size_t *length);
// A number without fraction and exponent, which fits.
bool wasmill_json_integer(wasmill_json value, int64_t *result);
// Any number, as near as a double comes to it.
bool wasmill_json_number(wasmill_json value, double *result);
bool wasmill_json_bool(wasmill_json value, bool *result);

// Writes a text as a JSON string, with its quotes. Text that is no UTF-8 gets U+FFFD in place of what is
// wrong with it.
const char *wasmill_json_quote(const char *text);

#ifdef __cplusplus
}
#endif
#endif
