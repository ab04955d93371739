// Package wasmill is for writing an event handler for Wasmill in Go.
//
// A handler is a function that is given one event at a time:
//
//	func main() {
//		wasmill.Handle(handle)
//	}
//
//	func handle(event wasmill.Event, delivery wasmill.Delivery) error {
//		slog.Info("received", "id", event.ID, "attempt", delivery.Attempt)
//		return nil
//	}
//
// Returning nil acknowledges the event. An error is a [Retry] or a [Reject]; any other error is a retry
// too, whose reason is the error's type and text. A panic ends the call: the host treats it as a fault,
// and goes on with a fresh instance.
//
// What a handler changes goes through [Append] (events) and [Bucket] (keys and values): it is committed
// together with the acknowledgement, or not at all. Messages of log/slog and log go to the host's log.
package wasmill

import (
	"encoding/json"
	"time"
)

// Event is one event of the log. It never changes, however often it is delivered.
type Event struct {
	// ID is the producer's id, or one that the host made. Use it to recognise an event that comes again.
	ID string
	// Stream is the stream that holds the event.
	Stream string
	// Partition is the event's partition, from 0.
	Partition int
	// Sequence is the event's place in its partition, from 1.
	Sequence int64
	// Timestamp is the event's time as it is stored: as a rule ISO 8601 in UTC.
	Timestamp string
	// Time is the instant that Timestamp names; the zero time where that text is no time with an offset.
	Time time.Time
	// Key is the routing key: events with equal keys are in the same partition, in order.
	Key string
	// HasKey tells an empty key from none.
	HasKey bool
	// Type is the event's type, as its producer named it.
	Type string
	// HasType tells an empty type from none.
	HasType bool
	// Metadata has strings as they are, and other values as their JSON text.
	Metadata map[string]string
	// Payload is the text of a JSON object, byte for byte as it was appended.
	Payload []byte
}

// Unmarshal reads the payload into what v points to, as [json.Unmarshal] does: fields that are missing
// stay as they are, and fields that v does not have are ignored.
func (e Event) Unmarshal(v any) error {
	return json.Unmarshal(e.Payload, v)
}

// Delivery says how an event came to be delivered this time.
type Delivery struct {
	// Pipeline is the pipeline that delivers.
	Pipeline string
	// Group is the consumer group that the pipeline reads for.
	Group string
	// Attempt is how often the event was delivered, this time included: from 1.
	Attempt int
	// MaxAttempts is the attempt after which a failure is final.
	MaxAttempts int
	// Timeout is the time left for the answer when the call starts; after that it is cut off.
	Timeout time.Duration
}

var handler func(Event, Delivery) error

// Handle makes a function the handler. Call it once, in main or in an init function. Calls of the
// function never overlap; it may be called many times, or only once.
func Handle(handle func(Event, Delivery) error) {
	handler = handle
}

// Config returns the operator's setting of this key, and whether it is set.
func Config(key string) (string, bool) {
	return configGet(key)
}

// ConfigOr returns the operator's setting of this key, or a default where it is not set.
func ConfigOr(key, byDefault string) string {
	if value, ok := Config(key); ok {
		return value
	}
	return byDefault
}
