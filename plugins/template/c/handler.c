// The handler of the plugin {{name}}.
#include "wasmill/wasmill.h"

// Called for each event; what it returns is the answer.
wasmill_outcome handle(const wasmill_event *event, const wasmill_delivery *delivery) {
  wasmill_json payload;
  const char *name;
  if (wasmill_json_parse(event->payload, event->payload_length, &payload) ||
      !wasmill_json_string(wasmill_json_get(payload, "name"), &name)) {
    // Trying again would not help: the event becomes a dead letter.
    return wasmill_reject("the payload has no `name`");
  }

  int64_t ready_at_attempt = 1;
  wasmill_json_integer(wasmill_json_get(payload, "ready_at_attempt"), &ready_at_attempt);
  if (delivery->attempt < ready_at_attempt) {
    // Not yet: the event is delivered again, after 1,000 milliseconds at least.
    return wasmill_retry_after(1000, "%s is not ready", name);
  }

  // A setting that the operator may give in the pipeline file.
  const char *greeting = wasmill_config("greeting");
  wasmill_info("%s, %s!", greeting ? greeting : "Hello", name);
  return wasmill_ok();
}
