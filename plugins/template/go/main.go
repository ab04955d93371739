// The handler of the plugin {{name}}.
package main

import (
	"fmt"
	"log/slog"
	"time"

	"wasmill"
)

func main() {
	wasmill.Handle(greet)
}

// greet is called for each event. Returning nil acknowledges it.
func greet(event wasmill.Event, delivery wasmill.Delivery) error {
	var payload struct {
		Name           *string `json:"name"`
		ReadyAtAttempt *int    `json:"ready_at_attempt"`
	}
	if err := event.Unmarshal(&payload); err != nil || payload.Name == nil {
		// Trying again would not help: the event becomes a dead letter.
		return wasmill.Reject("the payload has no `name`")
	}
	if payload.ReadyAtAttempt != nil && delivery.Attempt < *payload.ReadyAtAttempt {
		// Not yet: the event is delivered again, after a second at least.
		return wasmill.RetryAfter(fmt.Sprintf("%s is not ready", *payload.Name), time.Second)
	}
	slog.Info(fmt.Sprintf("%s, %s!", wasmill.ConfigOr("greeting", "Hello"), *payload.Name))
	return nil
}
