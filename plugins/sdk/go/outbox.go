package wasmill

// NewEvent is an event to append. The host adds its id, its time, and where it comes from.
type NewEvent struct {
	// Type is the event's type; none where it is empty.
	Type string
	// Key is its routing key: events with equal keys go to the same partition, in order. None where it
	// is empty.
	Key string
	// Partition is its partition, from 0, whatever the key says; nil lets the key decide.
	Partition *int
	// Metadata has further fields. `causation_id`, `producer` and `hops` are the host's.
	Metadata map[string]string
	// Payload is the text of a JSON object, which is kept byte for byte.
	Payload []byte
}

// Append stages an event for a stream: it is appended together with the acknowledgement of the handled
// event, in the same atomic step, or not at all. Events of one call are appended in the order of these
// calls. The operator grants the streams (`allow_streams`).
//
// The error is an [AppendError]. A handler can return it as it is: a missing grant is a retry, since it
// can be mended before the last attempt; an event that cannot be stored is a rejection.
func Append(stream string, event NewEvent) error {
	return outboxAppend(stream, event)
}

// An AppendError says why an event was not staged. What was staged before stays.
type AppendError struct {
	Kind AppendErrorKind
	// Text is the host's explanation: it names the grant or the limit.
	Text string
}

// AppendErrorKind tells the causes of an [AppendError] apart.
type AppendErrorKind int

const (
	// AccessDenied: the stream is not granted.
	AccessDenied AppendErrorKind = iota
	// Invalid: the event cannot be stored. Its payload is no JSON object, or it is too large.
	Invalid
	// Limit: more events, or more bytes, than one call may stage.
	Limit
)

func (e *AppendError) Error() string { return e.Text }

// Unwrap makes it a [RetryError] or a [RejectError].
func (e *AppendError) Unwrap() error {
	if e.Kind == AccessDenied {
		return Retry(e.Text)
	}
	return Reject(e.Text)
}
