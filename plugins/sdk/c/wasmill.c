#include "wasmill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wit.h"

// ---- Memory of a call ----

// What is to be freed when the call ends.
static void **owned;
static size_t owned_count, owned_room;

// Out of memory means at the instance's limit: the host has noted it, and names it.
static void *checked(void *memory) {
  if (!memory) abort();
  return memory;
}

static void *own(void *memory) {
  if (owned_count == owned_room) {
    owned_room = owned_room ? 2 * owned_room : 64;
    owned = checked(realloc(owned, owned_room * sizeof *owned));
  }
  return owned[owned_count++] = checked(memory);
}

static void free_owned(void) {
  while (owned_count > 0) free(owned[--owned_count]);
}

// The host calls this for room for each text and each list that it hands over; it takes the place of the
// generated one. One byte more than asked for leaves room for the zero behind a text.
__attribute__((export_name("cabi_realloc")))
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {
  (void)old_size;
  if (size == 0) return (void *)align;
  return checked(realloc(old, size + 1));
}

void *wasmill_alloc(size_t size) { return own(malloc(size ? size : 1)); }

char *wasmill_copy(const void *bytes, size_t length) {
  char *copy = wasmill_alloc(length + 1);
  memcpy(copy, bytes, length);
  copy[length] = 0;
  return copy;
}

char *wasmill_format_v(const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  char small[256];
  int length = vsnprintf(small, sizeof small, format, arguments);
  if (length < 0) abort();
  char *text = wasmill_alloc((size_t)length + 1);
  if ((size_t)length < sizeof small) {
    memcpy(text, small, (size_t)length + 1);
  } else {
    vsnprintf(text, (size_t)length + 1, format, again);
  }
  va_end(again);
  return text;
}

char *wasmill_format(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *text = wasmill_format_v(format, arguments);
  va_end(arguments);
  return text;
}

// Stands for the object file with the world's type: `wasmill plugin build` embeds that itself.
void __component_type_object_force_link_wit(void) {}

// ---- Between the generated types and these ----

// A text that the host has handed over: it is freed with the call.
static const char *taken(wit_string_t text) {
  if (text.len == 0) return "";
  own(text.ptr);
  text.ptr[text.len] = 0;
  return (const char *)text.ptr;
}

static wasmill_value taken_value(wit_list_u8_t list) {
  return (wasmill_value){taken((wit_string_t){list.ptr, list.len}), list.len};
}

static wit_string_t given(const char *text) { return (wit_string_t){(uint8_t *)text, strlen(text)}; }

static wit_option_string_t given_option(const char *text) {
  return text ? (wit_option_string_t){true, given(text)} : (wit_option_string_t){0};
}

static void take_event(const wit_event_t *from, wasmill_event *event) {
  size_t count = from->metadata.len;
  wasmill_pair *metadata = wasmill_alloc(count * sizeof *metadata);
  for (size_t n = 0; n < count; n++) {
    metadata[n] = (wasmill_pair){taken(from->metadata.ptr[n].f0), taken(from->metadata.ptr[n].f1)};
  }
  if (count > 0) own(from->metadata.ptr);
  wasmill_value payload = taken_value(from->payload);
  *event = (wasmill_event){
      .id = taken(from->id),
      .stream = taken(from->stream_name),
      .partition = from->partition,
      .sequence = from->sequence,
      .timestamp = taken(from->timestamp),
      .has_timestamp_ms = from->timestamp_ms.is_some,
      .timestamp_ms = from->timestamp_ms.is_some ? from->timestamp_ms.val : 0,
      .key = from->key.is_some ? taken(from->key.val) : NULL,
      .type = from->event_type.is_some ? taken(from->event_type.val) : NULL,
      .metadata = metadata,
      .metadata_count = count,
      .payload = payload.data,
      .payload_length = payload.length,
  };
}

// A reason that the generated code frees, once the host has read it.
static wit_string_t given_away(const char *text) {
  size_t length = strlen(text);
  if (length == 0) return (wit_string_t){0};
  return (wit_string_t){memcpy(checked(malloc(length)), text, length), length};
}

bool exports_wit_handle(wit_event_t *from, wit_delivery_t *how, wit_failure_t *failure) {
  static bool begun;
  if (!begun) {
    // There is no end of the program at which what was printed would be written.
    setvbuf(stdout, NULL, _IOLBF, 0);
    begun = true;
  }
  wasmill_event event;
  take_event(from, &event);
  wasmill_delivery delivery = {
      taken(how->pipeline), taken(how->group), how->attempt, how->max_attempts, how->timeout_ms,
  };
  wasmill_outcome outcome = handle(&event, &delivery);
  fflush(stdout);
  if (outcome.verdict != WASMILL_OK) {
    wit_string_t reason = given_away(outcome.reason ? outcome.reason : "");
    if (outcome.verdict == WASMILL_REJECT) {
      failure->tag = WASMILL_HANDLER_TYPES_FAILURE_REJECT;
      failure->val.reject = reason;
    } else {
      failure->tag = WASMILL_HANDLER_TYPES_FAILURE_RETRY;
      failure->val.retry.reason = reason;
      failure->val.retry.delay_ms = (wit_option_u32_t){outcome.has_delay, outcome.delay_ms};
    }
  }
  free_owned();
  return outcome.verdict == WASMILL_OK;
}

// ---- Answers, log, settings ----

const char *wasmill_metadata(const wasmill_event *event, const char *key) {
  for (size_t n = 0; n < event->metadata_count; n++) {
    if (strcmp(event->metadata[n].key, key) == 0) return event->metadata[n].value;
  }
  return NULL;
}

wasmill_outcome wasmill_ok(void) { return (wasmill_outcome){.verdict = WASMILL_OK}; }

wasmill_outcome wasmill_retry(const char *reason, ...) {
  va_list arguments;
  va_start(arguments, reason);
  wasmill_outcome outcome = {.verdict = WASMILL_RETRY, .reason = wasmill_format_v(reason, arguments)};
  va_end(arguments);
  return outcome;
}

wasmill_outcome wasmill_retry_after(uint32_t delay_ms, const char *reason, ...) {
  va_list arguments;
  va_start(arguments, reason);
  wasmill_outcome outcome = {WASMILL_RETRY, wasmill_format_v(reason, arguments), true, delay_ms};
  va_end(arguments);
  return outcome;
}

wasmill_outcome wasmill_reject(const char *reason, ...) {
  va_list arguments;
  va_start(arguments, reason);
  wasmill_outcome outcome = {.verdict = WASMILL_REJECT, .reason = wasmill_format_v(reason, arguments)};
  va_end(arguments);
  return outcome;
}

wasmill_outcome wasmill_failed(const wasmill_failure *failure) {
  bool is_final = failure->kind == WASMILL_INVALID || failure->kind == WASMILL_LIMIT;
  return (wasmill_outcome){.verdict = is_final ? WASMILL_REJECT : WASMILL_RETRY, .reason = failure->text};
}

void wasmill_log(wasmill_level level, const char *message, ...) {
  va_list arguments;
  va_start(arguments, message);
  wit_string_t context = given(""), text = given(wasmill_format_v(message, arguments));
  va_end(arguments);
  wasi_logging_logging_log((wasi_logging_logging_level_t)level, &context, &text);
}

const char *wasmill_config(const char *key) {
  wit_string_t name = given(key);
  wit_option_string_t value;
  wasi_config_store_error_t error;
  if (wasi_config_store_get(&name, &value, &error)) return value.is_some ? taken(value.val) : NULL;
  taken(error.tag == WASI_CONFIG_STORE_ERROR_IO ? error.val.io : error.val.upstream);
  return NULL;
}

// ---- Outbox ----

static const wasmill_failure *failed(wasmill_failure_kind kind, const char *text) {
  wasmill_failure *failure = wasmill_alloc(sizeof *failure);
  *failure = (wasmill_failure){kind, text};
  return failure;
}

const wasmill_failure *wasmill_append(const char *stream, const wasmill_new_event *event) {
  size_t count = event->metadata_count;
  wit_tuple2_string_string_t *metadata = wasmill_alloc(count * sizeof *metadata);
  for (size_t n = 0; n < count; n++) {
    metadata[n].f0 = given(event->metadata[n].key);
    metadata[n].f1 = given(event->metadata[n].value);
  }
  const char *payload = event->payload ? event->payload : "";
  wasmill_handler_outbox_new_event_t staged = {
      .event_type = given_option(event->type),
      .key = given_option(event->key),
      .partition = {event->has_partition, event->partition},
      .metadata = {metadata, count},
      .payload = {(uint8_t *)payload, event->payload_length ? event->payload_length : strlen(payload)},
  };
  wit_string_t name = given(stream);
  wasmill_handler_outbox_error_t error;
  if (wasmill_handler_outbox_append(&name, &staged, &error)) return NULL;
  switch (error.tag) {
    case WASMILL_HANDLER_OUTBOX_ERROR_ACCESS_DENIED:
      return failed(WASMILL_DENIED, taken(error.val.access_denied));
    case WASMILL_HANDLER_OUTBOX_ERROR_INVALID: return failed(WASMILL_INVALID, taken(error.val.invalid));
    default: return failed(WASMILL_LIMIT, taken(error.val.limit));
  }
}

// ---- State ----

static const wasmill_failure *state_failed(wasi_keyvalue_store_error_t error) {
  switch (error.tag) {
    case WASI_KEYVALUE_STORE_ERROR_NO_SUCH_STORE: return failed(WASMILL_STATE, "there is no such bucket");
    case WASI_KEYVALUE_STORE_ERROR_ACCESS_DENIED: return failed(WASMILL_DENIED, "the bucket is not granted");
    default: return failed(WASMILL_STATE, taken(error.val.other));
  }
}

__attribute__((import_module("wasi:keyvalue/store@0.2.0-draft"), import_name("[resource-drop]bucket")))
extern void drop_bucket(int32_t handle);

// Buckets stay open, up to this number; then the one that has been open for longest is closed.
#define BUCKETS_MAX 16

static const wasmill_failure *open_bucket(const char *name, wasi_keyvalue_store_borrow_bucket_t *bucket) {
  static struct {
    char *name;
    int32_t handle;
  } open[BUCKETS_MAX];
  static size_t next;
  for (size_t n = 0; n < BUCKETS_MAX && open[n].name; n++) {
    if (strcmp(open[n].name, name) == 0) {
      bucket->__handle = open[n].handle;
      return NULL;
    }
  }
  wit_string_t text = given(name);
  wasi_keyvalue_store_own_bucket_t opened;
  wasi_keyvalue_store_error_t error;
  if (!wasi_keyvalue_store_open(&text, &opened, &error)) return state_failed(error);
  if (open[next].name) {
    free(open[next].name);
    drop_bucket(open[next].handle);
  }
  size_t size = strlen(name) + 1;
  open[next].name = memcpy(checked(malloc(size)), name, size);
  open[next].handle = opened.__handle;
  next = (next + 1) % BUCKETS_MAX;
  bucket->__handle = opened.__handle;
  return NULL;
}

// Leaves the function with the failure to open a bucket.
#define OPEN(name, bucket)                                         \
  wasi_keyvalue_store_borrow_bucket_t bucket;                      \
  do {                                                             \
    const wasmill_failure *not_open = open_bucket(name, &bucket);  \
    if (not_open) return not_open;                                 \
  } while (0)

static wit_list_string_t given_all(const char *const *texts, size_t count) {
  wit_string_t *list = wasmill_alloc(count * sizeof *list);
  for (size_t n = 0; n < count; n++) list[n] = given(texts[n]);
  return (wit_list_string_t){list, count};
}

const wasmill_failure *wasmill_state_get(const char *bucket, const char *key, wasmill_value *value) {
  OPEN(bucket, handle);
  wit_string_t name = given(key);
  wit_option_list_u8_t found;
  wasi_keyvalue_store_error_t error;
  if (!wasi_keyvalue_store_method_bucket_get(handle, &name, &found, &error)) return state_failed(error);
  *value = found.is_some ? taken_value(found.val) : (wasmill_value){0};
  return NULL;
}

const wasmill_failure *wasmill_state_get_many(const char *bucket, const char *const *keys, size_t count,
                                              wasmill_value *values) {
  OPEN(bucket, handle);
  wit_list_string_t names = given_all(keys, count);
  wit_list_option_tuple2_string_list_u8_t found;
  wasi_keyvalue_store_error_t error;
  if (!wasi_keyvalue_batch_get_many(handle, &names, &found, &error)) return state_failed(error);
  for (size_t n = 0; n < count; n++) {
    values[n] = (wasmill_value){0};
    if (n >= found.len || !found.ptr[n].is_some) continue;
    taken(found.ptr[n].val.f0);
    values[n] = taken_value(found.ptr[n].val.f1);
  }
  if (found.len > 0) own(found.ptr);
  return NULL;
}

const wasmill_failure *wasmill_state_exists(const char *bucket, const char *key, bool *exists) {
  OPEN(bucket, handle);
  wit_string_t name = given(key);
  wasi_keyvalue_store_error_t error;
  if (wasi_keyvalue_store_method_bucket_exists(handle, &name, exists, &error)) return NULL;
  return state_failed(error);
}

const wasmill_failure *wasmill_state_set(const char *bucket, const char *key, const void *data,
                                         size_t length) {
  OPEN(bucket, handle);
  wit_string_t name = given(key);
  wit_list_u8_t value = {(uint8_t *)data, length};
  wasi_keyvalue_store_error_t error;
  if (wasi_keyvalue_store_method_bucket_set(handle, &name, &value, &error)) return NULL;
  return state_failed(error);
}

const wasmill_failure *wasmill_state_set_many(const char *bucket, const char *const *keys,
                                              const wasmill_value *values, size_t count) {
  OPEN(bucket, handle);
  wit_tuple2_string_list_u8_t *pairs = wasmill_alloc(count * sizeof *pairs);
  for (size_t n = 0; n < count; n++) {
    pairs[n].f0 = given(keys[n]);
    pairs[n].f1 = (wit_list_u8_t){(uint8_t *)values[n].data, values[n].length};
  }
  wit_list_tuple2_string_list_u8_t list = {pairs, count};
  wasi_keyvalue_store_error_t error;
  return wasi_keyvalue_batch_set_many(handle, &list, &error) ? NULL : state_failed(error);
}

const wasmill_failure *wasmill_state_delete(const char *bucket, const char *key) {
  OPEN(bucket, handle);
  wit_string_t name = given(key);
  wasi_keyvalue_store_error_t error;
  return wasi_keyvalue_store_method_bucket_delete(handle, &name, &error) ? NULL : state_failed(error);
}

const wasmill_failure *wasmill_state_increment(const char *bucket, const char *key, uint64_t delta,
                                               uint64_t *sum) {
  OPEN(bucket, handle);
  wit_string_t name = given(key);
  uint64_t total;
  wasi_keyvalue_store_error_t error;
  if (!wasi_keyvalue_atomics_increment(handle, &name, delta, &total, &error)) return state_failed(error);
  if (sum) *sum = total;
  return NULL;
}

const wasmill_failure *wasmill_state_keys(const char *bucket, wasmill_page *page) {
  OPEN(bucket, handle);
  wasi_keyvalue_store_key_response_t found;
  wasi_keyvalue_store_error_t error;
  uint64_t *from = page->more ? &page->cursor : NULL;
  if (!wasi_keyvalue_store_method_bucket_list_keys(handle, from, &found, &error)) return state_failed(error);
  const char **keys = wasmill_alloc(found.keys.len * sizeof *keys);
  for (size_t n = 0; n < found.keys.len; n++) keys[n] = taken(found.keys.ptr[n]);
  if (found.keys.len > 0) own(found.keys.ptr);
  bool more = found.cursor.is_some;
  *page = (wasmill_page){keys, found.keys.len, more, more ? found.cursor.val : 0};
  return NULL;
}
