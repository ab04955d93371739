// The probe in Go: it does what an event's payload says (../README.md).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"wasmill"
)

type command struct {
	Do      string          `json:"do"`
	Reason  string          `json:"reason"`
	DelayMs *int64          `json:"delay_ms"`
	Level   string          `json:"level"`
	Message string          `json:"message"`
	Key     string          `json:"key"`
	Value   string          `json:"value"`
	Stream  string          `json:"stream"`
	Payload json.RawMessage `json:"payload"`
	Bytes   int             `json:"bytes"`
}

var leaked [][]byte

func main() {
	wasmill.Handle(handle)
}

func handle(event wasmill.Event, delivery wasmill.Delivery) error {
	var command command
	if err := event.Unmarshal(&command); err != nil {
		return err
	}
	switch command.Do {
	case "ack":
		return nil
	case "retry":
		if command.DelayMs != nil {
			return wasmill.RetryAfter(command.Reason, time.Duration(*command.DelayMs)*time.Millisecond)
		}
		return wasmill.Retry(command.Reason)
	case "reject":
		return wasmill.Reject(command.Reason)
	case "raise":
		return errors.New(command.Reason)
	case "crash":
		panic(command.Reason)
	case "log":
		var level slog.Level
		if err := level.UnmarshalText([]byte(command.Level)); err != nil {
			return err
		}
		slog.Log(context.Background(), level, command.Message)
		return nil
	case "print":
		fmt.Println(command.Message)
		return nil
	case "config":
		return wasmill.Retry(wasmill.ConfigOr(command.Key, "none"))
	case "count":
		return count(command.Key)
	case "set":
		return set(command.Key, command.Value)
	case "append":
		return wasmill.Append(command.Stream, wasmill.NewEvent{
			Type:     "probe",
			Key:      "k",
			Metadata: map[string]string{"a": "b"},
			Payload:  command.Payload,
		})
	case "echo":
		return wasmill.Retry(echo(event, delivery))
	case "leak":
		leaked = append(leaked, make([]byte, command.Bytes))
		return nil
	default:
		return wasmill.Rejectf("unknown: %s", command.Do)
	}
}

func count(key string) error {
	bucket, err := wasmill.OpenBucket("default")
	if err != nil {
		return err
	}
	sum, err := bucket.Increment(key, 1)
	if err != nil {
		return err
	}
	return wasmill.Retry(strconv.FormatUint(sum, 10))
}

func set(key, value string) error {
	bucket, err := wasmill.OpenBucket("default")
	if err != nil {
		return err
	}
	if err := bucket.Set(key, []byte(value)); err != nil {
		return err
	}
	found, ok, err := bucket.Get(key)
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("what was written is not there")
	}
	return wasmill.Retry(string(found))
}

func echo(event wasmill.Event, delivery wasmill.Delivery) string {
	ms, key, eventType := "none", "none", "none"
	if !event.Time.IsZero() {
		ms = strconv.FormatInt(event.Time.UnixMilli(), 10)
	}
	if event.HasKey {
		key = event.Key
	}
	if event.HasType {
		eventType = event.Type
	}
	return fmt.Sprintf(
		"id=%s stream=%s partition=%d sequence=%d timestamp=%s ms=%s key=%s type=%s metadata=%d bytes=%d "+
			"pipeline=%s group=%s attempt=%d max=%d ",
		event.ID, event.Stream, event.Partition, event.Sequence, event.Timestamp, ms, key, eventType,
		len(event.Metadata), len(event.Payload),
		delivery.Pipeline, delivery.Group, delivery.Attempt, delivery.MaxAttempts,
	)
}
