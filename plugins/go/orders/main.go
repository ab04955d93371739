// Checks orders, enriches them and routes them: ../../orders.md says which answer each case gets.
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"wasmill"
)

const (
	currenciesDefault      = "EUR,USD,GBP"
	paymentAttemptsDefault = 3
	reviewAboveDefault     = "100000"
)

// An enrichedOrder is what is appended for whoever ships or reviews.
type enrichedOrder struct {
	OrderID    string  `json:"order_id"`
	Customer   string  `json:"customer"`
	Currency   string  `json:"currency"`
	TotalCents amount  `json:"total_cents"`
	Lines      int     `json:"lines"`
	Units      int64   `json:"units"`
	Trace      *string `json:"trace"`
}

func main() {
	wasmill.Handle(handle)
}

func handle(event wasmill.Event, delivery wasmill.Delivery) error {
	order, err := parse(event.Payload)
	if err != nil {
		return wasmill.Rejectf("not an order: %v", err)
	}
	if err := check(order); err != nil {
		return err
	}
	if err := collect(order, delivery.Attempt); err != nil {
		return err
	}
	slog.Info(fmt.Sprintf("order %s of %s: %d cents %s", order.ID, order.Customer, order.Total, order.Currency))
	return route(enrich(order, event.Metadata))
}

// check finds what stays wrong, however often it is tried.
func check(order order) error {
	accepted := wasmill.ConfigOr("currencies", currenciesDefault)
	isCurrency := func(name string) bool { return strings.TrimSpace(name) == order.Currency }
	if !slices.ContainsFunc(strings.Split(accepted, ","), isCurrency) {
		return wasmill.Rejectf("currency `%s` is not accepted (accepted: %s)", order.Currency, accepted)
	}
	if len(order.Items) == 0 {
		return wasmill.Reject("the order has no items")
	}
	for _, item := range order.Items {
		if item.Quantity == 0 {
			return wasmill.Rejectf("item `%s` has the quantity 0", item.SKU)
		}
	}
	sum := amount(0)
	for _, item := range order.Items {
		if item.UnitPrice > (amountMax-sum)/amount(item.Quantity) {
			return wasmill.Rejectf("the items add up to more than %d", amountMax)
		}
		sum += amount(item.Quantity) * item.UnitPrice
	}
	if sum != order.Total {
		return wasmill.Rejectf("total_cents is %d, but the items add up to %d", order.Total, sum)
	}
	return nil
}

// collect waits for a payment that is pending; one that was declined will not arrive.
func collect(order order, attempt int) error {
	switch {
	case order.Payment == "pending" && amount(attempt) < order.PaymentAttempts:
		return wasmill.Retryf("the payment of order %s is pending", order.ID)
	case order.Payment == "declined":
		return wasmill.Rejectf("the payment of order %s was declined", order.ID)
	default:
		return nil
	}
}

func enrich(order order, metadata map[string]string) enrichedOrder {
	enriched := enrichedOrder{
		OrderID:    order.ID,
		Customer:   order.Customer,
		Currency:   order.Currency,
		TotalCents: order.Total,
		Lines:      len(order.Items),
	}
	for _, item := range order.Items {
		enriched.Units += int64(item.Quantity)
	}
	if trace, ok := metadata["trace_id"]; ok {
		enriched.Trace = &trace
	}
	return enriched
}

func route(order enrichedOrder) error {
	if stream, ok := wasmill.Config("review_stream"); ok {
		// What is no number is the operator's to mend: the error becomes a retry.
		above, err := strconv.ParseUint(wasmill.ConfigOr("review_above_cents", reviewAboveDefault), 10, 64)
		if err != nil {
			return err
		}
		if order.TotalCents > amount(above) {
			return send(stream, "order-review", order)
		}
	}
	if stream, ok := wasmill.Config("shipping_stream"); ok {
		return send(stream, "order-accepted", order)
	}
	return nil
}

func send(stream, eventType string, order enrichedOrder) error {
	payload, err := json.Marshal(order)
	if err != nil {
		return err
	}
	return wasmill.Append(stream, wasmill.NewEvent{
		Type:     eventType,
		Key:      order.Customer,
		Metadata: map[string]string{"order_id": order.OrderID},
		Payload:  payload,
	})
}
