// Write an event handler for Wasmill in C.
//
//     #include "wasmill/wasmill.h"
//
//     wasmill_outcome handle(const wasmill_event *event, const wasmill_delivery *delivery) {
//       wasmill_info("%s at attempt %u", event->id, delivery->attempt);
//       return wasmill_ok();
//     }
//
// Memory: whatever these functions give, and the event itself, lasts until the handler returns. Nothing of
// it has to be freed; what is to last longer has to be copied. Memory from malloc is the handler's own.
//
// Texts are UTF-8 and end with a zero. One that holds a zero itself seems to end there; payloads and values
// of the state have a length.
//
// An `abort()`, a failed `assert` or a trap ends the call: the host treats it as a fault, puts the last of
// what was written to stderr into the fault's message, and goes on with a fresh instance.
#ifndef WASMILL_H
#define WASMILL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wasmill_json.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#define WASMILL_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define WASMILL_PRINTF(text, first)
#endif

// ---- What a handler is given ----

// A field of an event's metadata.
typedef struct {
  const char *key;
  const char *value;
} wasmill_pair;

// One event of the log. It never changes, however often it is delivered.
typedef struct {
  // The producer's id, or one that the host made. Use it to recognise an event that comes again.
  const char *id;
  // The stream that holds the event.
  const char *stream;
  // The event's partition, from 0.
  uint32_t partition;
  // The event's place in its partition, from 1; below 2^53.
  uint64_t sequence;
  // The event's time as it is stored: as a rule ISO 8601 in UTC.
  const char *timestamp;
  // The instant that `timestamp` names, in milliseconds since 1970; where it is a time with an offset.
  bool has_timestamp_ms;
  int64_t timestamp_ms;
  // The routing key: events with equal keys are in the same partition, in order. NULL if there is none.
  const char *key;
  // The event's type, as its producer named it. NULL if there is none.
  const char *type;
  // Metadata: strings as they are, other values as their JSON text.
  const wasmill_pair *metadata;
  size_t metadata_count;
  // The text of a JSON object, byte for byte as it was appended; a zero follows.
  const char *payload;
  size_t payload_length;
} wasmill_event;

// How an event came to be delivered this time.
typedef struct {
  // The pipeline that delivers.
  const char *pipeline;
  // The consumer group that the pipeline reads for.
  const char *group;
  // How often the event was delivered, this time included: from 1.
  uint32_t attempt;
  // The attempt after which a failure is final.
  uint32_t max_attempts;
  // Milliseconds left for the answer when the call starts; after that it is cut off.
  uint32_t timeout_ms;
} wasmill_delivery;

// The value of a field of the metadata, or NULL.
const char *wasmill_metadata(const wasmill_event *event, const char *key);

// ---- What it answers ----

typedef enum {
  WASMILL_OK,
  WASMILL_RETRY,
  WASMILL_REJECT,
} wasmill_verdict;

typedef struct {
  wasmill_verdict verdict;
  const char *reason;
  bool has_delay;
  uint32_t delay_ms;
} wasmill_outcome;

// The handler: yours to write. Calls never overlap; it may be called many times, or only once.
wasmill_outcome handle(const wasmill_event *event, const wasmill_delivery *delivery);

// Handled: the event is acknowledged.
wasmill_outcome wasmill_ok(void);
// Not now: the event is delivered again when the pipeline's backoff says so, unless this was its last
// attempt. The reason is made as by printf; so are those below.
wasmill_outcome wasmill_retry(const char *reason, ...) WASMILL_PRINTF(1, 2);
// Not now, and not before a delay.
wasmill_outcome wasmill_retry_after(uint32_t delay_ms, const char *reason, ...) WASMILL_PRINTF(2, 3);
// Never: the event becomes a dead letter at once.
wasmill_outcome wasmill_reject(const char *reason, ...) WASMILL_PRINTF(1, 2);

// ---- Log and settings ----

typedef enum {
  WASMILL_TRACE,
  WASMILL_DEBUG,
  WASMILL_INFO,
  WASMILL_WARN,
  WASMILL_ERROR,
  WASMILL_CRITICAL,
} wasmill_level;

// Writes one message to the host's log. What is written to stdout and stderr goes there too.
void wasmill_log(wasmill_level level, const char *message, ...) WASMILL_PRINTF(2, 3);
#define wasmill_debug(...) wasmill_log(WASMILL_DEBUG, __VA_ARGS__)
#define wasmill_info(...) wasmill_log(WASMILL_INFO, __VA_ARGS__)
#define wasmill_warn(...) wasmill_log(WASMILL_WARN, __VA_ARGS__)
#define wasmill_error(...) wasmill_log(WASMILL_ERROR, __VA_ARGS__)

// The operator's setting of this key, or NULL where it is not set.
const char *wasmill_config(const char *key);

// ---- What it changes: committed together with the acknowledgement, or not at all ----

typedef enum {
  // The stream or the bucket is not granted.
  WASMILL_DENIED,
  // The event cannot be stored: its payload is no JSON object, or it is too large.
  WASMILL_INVALID,
  // More events, or more bytes, than one call may append.
  WASMILL_LIMIT,
  // Trouble with the state: the store did not answer, a key or a value is too long, …
  WASMILL_STATE,
} wasmill_failure_kind;

// Why something was refused. The functions below return NULL where it was not.
typedef struct {
  wasmill_failure_kind kind;
  // The host's explanation.
  const char *text;
} wasmill_failure;

// The answer to a failure: what is invalid or above a limit will be so again, and is rejected; the rest can
// be mended, and is tried again.
wasmill_outcome wasmill_failed(const wasmill_failure *failure);

// An event to append. The host adds its id, its time, and where it comes from.
typedef struct {
  // Its type, or NULL.
  const char *type;
  // Its routing key, or NULL: events with equal keys go to the same partition, in order.
  const char *key;
  // Its partition, from 0, whatever the key says.
  bool has_partition;
  uint32_t partition;
  // Further fields. `causation_id`, `producer` and `hops` are the host's.
  const wasmill_pair *metadata;
  size_t metadata_count;
  // The text of a JSON object, which is kept byte for byte. Without a length it ends with a zero.
  const char *payload;
  size_t payload_length;
} wasmill_new_event;

// Stages an event for a stream. Events of one call are appended in the order of these calls. The operator
// grants the streams (`allow_streams`).
const wasmill_failure *wasmill_append(const char *stream, const wasmill_new_event *event);

// State: keys and values that outlive a call, in buckets that have names (letters, digits, `.`, `_` and
// `-`). Reads see the call's own writes. If what a call has read was changed by another commit meanwhile,
// the host runs the handler again on fresh state: so reading, computing and writing back is safe. A key has
// 1 to 1,024 bytes, a value at most 1 MiB.

// A value. `data` is NULL if there is none; else a zero follows what it holds.
typedef struct {
  const char *data;
  size_t length;
} wasmill_value;

const wasmill_failure *wasmill_state_get(const char *bucket, const char *key, wasmill_value *value);
// One question to the store for all keys; `values` has room for `count`.
const wasmill_failure *wasmill_state_get_many(const char *bucket, const char *const *keys, size_t count,
                                              wasmill_value *values);
const wasmill_failure *wasmill_state_exists(const char *bucket, const char *key, bool *exists);
const wasmill_failure *wasmill_state_set(const char *bucket, const char *key, const void *data,
                                         size_t length);
// If it fails, what stands before the one that failed is set.
const wasmill_failure *wasmill_state_set_many(const char *bucket, const char *const *keys,
                                              const wasmill_value *values, size_t count);
// Removes a key; one that is not there is no failure.
const wasmill_failure *wasmill_state_delete(const char *bucket, const char *key);
// Adds to a number, and gives the sum. A key without a value counts as zero; the number is kept as decimal
// text. `sum` may be NULL.
const wasmill_failure *wasmill_state_increment(const char *bucket, const char *key, uint64_t delta,
                                               uint64_t *sum);

// A page of a bucket's keys, as the store has them: the call's own writes are not among them, and the list
// is not checked again when the call commits. Begin with a page that is {0}; there are more pages while
// `more` is true.
typedef struct {
  const char *const *keys;
  size_t count;
  bool more;
  uint64_t cursor;
} wasmill_page;

const wasmill_failure *wasmill_state_keys(const char *bucket, wasmill_page *page);

// ---- Memory and text that last until the handler returns ----

// Memory, aligned for anything. There is always some: the instance ends where the limit is reached.
void *wasmill_alloc(size_t size);
// A text as printf makes it.
char *wasmill_format(const char *format, ...) WASMILL_PRINTF(1, 2);
char *wasmill_format_v(const char *format, va_list arguments) WASMILL_PRINTF(1, 0);
// A copy of some bytes, with a zero behind it.
char *wasmill_copy(const void *bytes, size_t length);

#ifdef __cplusplus
}
#endif
#endif
