// The probe in C: it does what an event's payload says (../README.md).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wasmill/wasmill.h"

char *leaks;

static const char *text(wasmill_json command, const char *name) {
  const char *found = "";
  wasmill_json_string(wasmill_json_get(command, name), &found);
  return found;
}

static wasmill_outcome answer(const wasmill_failure *failure, const char *reason) {
  return failure ? wasmill_failed(failure) : wasmill_retry("%s", reason);
}

static wasmill_outcome retry(wasmill_json command) {
  int64_t delay_ms;
  if (wasmill_json_integer(wasmill_json_get(command, "delay_ms"), &delay_ms)) {
    return wasmill_retry_after((uint32_t)delay_ms, "%s", text(command, "reason"));
  }
  return wasmill_retry("%s", text(command, "reason"));
}

static wasmill_outcome log_at(const char *level, const char *message) {
  if (strcmp(level, "debug") == 0) wasmill_debug("%s", message);
  if (strcmp(level, "info") == 0) wasmill_info("%s", message);
  if (strcmp(level, "warn") == 0) wasmill_warn("%s", message);
  if (strcmp(level, "error") == 0) wasmill_error("%s", message);
  return wasmill_ok();
}

static wasmill_outcome count(const char *key) {
  uint64_t sum = 0;
  const wasmill_failure *failure = wasmill_state_increment("default", key, 1, &sum);
  return answer(failure, wasmill_format("%" PRIu64, sum));
}

static wasmill_outcome set(const char *key, const char *value) {
  wasmill_value found = {0};
  const wasmill_failure *failure = wasmill_state_set("default", key, value, strlen(value));
  if (!failure) failure = wasmill_state_get("default", key, &found);
  return answer(failure, found.data ? found.data : "what was written is not there");
}

static wasmill_outcome append(const char *stream, wasmill_json payload) {
  wasmill_pair metadata = {"a", "b"};
  wasmill_new_event event = {
      .type = "probe",
      .key = "k",
      .metadata = &metadata,
      .metadata_count = 1,
      .payload = payload.text,
      .payload_length = payload.length,
  };
  const wasmill_failure *failure = wasmill_append(stream, &event);
  return failure ? wasmill_failed(failure) : wasmill_ok();
}

static wasmill_outcome echo(const wasmill_event *event, const wasmill_delivery *delivery) {
  const char *ms = event->has_timestamp_ms ? wasmill_format("%" PRId64, event->timestamp_ms) : "none";
  return wasmill_retry(
      "id=%s stream=%s partition=%" PRIu32 " sequence=%" PRIu64 " timestamp=%s ms=%s key=%s type=%s metadata=%zu"
      " bytes=%zu pipeline=%s group=%s attempt=%" PRIu32 " max=%" PRIu32 " ",
      event->id, event->stream, event->partition, event->sequence, event->timestamp, ms,
      event->key ? event->key : "none", event->type ? event->type : "none", event->metadata_count,
      event->payload_length, delivery->pipeline, delivery->group, delivery->attempt, delivery->max_attempts);
}

wasmill_outcome handle(const wasmill_event *event, const wasmill_delivery *delivery) {
  wasmill_json command;
  const char *error = wasmill_json_parse(event->payload, event->payload_length, &command);
  if (error) return wasmill_retry("%s", error);
  const char *what = text(command, "do");

  if (strcmp(what, "ack") == 0) return wasmill_ok();
  if (strcmp(what, "retry") == 0) return retry(command);
  if (strcmp(what, "reject") == 0) return wasmill_reject("%s", text(command, "reason"));
  // C has no errors that could be left uncaught: what a handler does not expect, it answers itself.
  if (strcmp(what, "raise") == 0) return wasmill_retry("%s", text(command, "reason"));
  if (strcmp(what, "crash") == 0) {
    fprintf(stderr, "%s\n", text(command, "reason"));
    abort();
  }
  if (strcmp(what, "log") == 0) return log_at(text(command, "level"), text(command, "message"));
  if (strcmp(what, "print") == 0) {
    printf("%s\n", text(command, "message"));
    return wasmill_ok();
  }
  if (strcmp(what, "config") == 0) {
    const char *value = wasmill_config(text(command, "key"));
    return wasmill_retry("%s", value ? value : "none");
  }
  if (strcmp(what, "count") == 0) return count(text(command, "key"));
  if (strcmp(what, "set") == 0) return set(text(command, "key"), text(command, "value"));
  if (strcmp(what, "append") == 0) return append(text(command, "stream"), wasmill_json_get(command, "payload"));
  if (strcmp(what, "echo") == 0) return echo(event, delivery);
  if (strcmp(what, "leak") == 0) {
    int64_t bytes = 0;
    wasmill_json_integer(wasmill_json_get(command, "bytes"), &bytes);
    char *leaked = malloc((size_t)bytes);
    if (!leaked) abort();
    leaks = leaked;
    // Written to, so that no compiler thinks it away.
    memset(leaks, 'x', (size_t)bytes);
    return wasmill_ok();
  }
  return wasmill_reject("unknown: %s", what);
}
