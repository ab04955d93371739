package wasmill

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A RetryError asks to deliver the event again. [Retry] makes one.
type RetryError struct {
	// Reason is shown in logs, and kept with the event.
	Reason string
	// Delay is how long to wait at least, where HasDelay is true; else the pipeline's backoff decides.
	Delay    time.Duration
	HasDelay bool
}

func (e *RetryError) Error() string { return e.Reason }

// A RejectError makes the event a dead letter at once. [Reject] makes one.
type RejectError struct {
	// Reason is shown in logs, and kept with the dead letter.
	Reason string
}

func (e *RejectError) Error() string { return e.Reason }

// Retry is the error of a handler that cannot succeed now: the event is delivered again when the
// pipeline's backoff says so, unless this was its last attempt.
func Retry(reason string) error {
	return &RetryError{Reason: reason}
}

// Retryf is [Retry] with a reason as [fmt.Sprintf] makes it.
func Retryf(format string, args ...any) error {
	return Retry(fmt.Sprintf(format, args...))
}

// RetryAfter is [Retry], but not before a delay, which is cut to whole milliseconds and to 49 days.
func RetryAfter(reason string, delay time.Duration) error {
	return &RetryError{Reason: reason, Delay: delay, HasDelay: true}
}

// Reject is the error of a handler that can never succeed: the event becomes a dead letter at once.
func Reject(reason string) error {
	return &RejectError{Reason: reason}
}

// Rejectf is [Reject] with a reason as [fmt.Sprintf] makes it.
func Rejectf(format string, args ...any) error {
	return Reject(fmt.Sprintf(format, args...))
}

// An answer is what a handler's error means to the host.
type answer struct {
	reject   bool
	reason   string
	hasDelay bool
	delayMs  uint32
	// Whether the error is neither a retry nor a rejection, nor wraps one.
	unexpected bool
}

// answerOf finds a retry or a rejection also where another error wraps it; the reason is the text of the
// outermost one.
func answerOf(err error) answer {
	var reject *RejectError
	if errors.As(err, &reject) {
		return answer{reject: true, reason: err.Error()}
	}
	var retry *RetryError
	if errors.As(err, &retry) {
		ms := min(max(retry.Delay.Milliseconds(), 0), math.MaxUint32)
		return answer{reason: err.Error(), hasDelay: retry.HasDelay, delayMs: uint32(ms)}
	}
	return answer{reason: fmt.Sprintf("%T: %v", err, err), unexpected: true}
}
