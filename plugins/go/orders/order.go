package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// An order as producers send it.
type order struct {
	ID              string
	Customer        string
	Currency        string
	Items           []item
	Total           amount
	Payment         string
	PaymentAttempts amount
}

type item struct {
	SKU       string
	Quantity  uint32
	UnitPrice amount
}

// An amount is an integer from 0 to the largest that every language's JSON holds.
type amount uint64

const amountMax amount = 1<<53 - 1

func (a *amount) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || amount(number) > amountMax {
		return fmt.Errorf("%s is no integer from 0 to %d", text, amountMax)
	}
	*a = amount(number)
	return nil
}

// parse reads an order. encoding/json leaves fields alone that are missing, so that pointers tell which.
func parse(payload []byte) (order, error) {
	var found struct {
		ID       *string `json:"order_id"`
		Customer *string `json:"customer"`
		Currency *string `json:"currency"`
		Items    *[]struct {
			SKU       *string `json:"sku"`
			Quantity  *uint32 `json:"quantity"`
			UnitPrice *amount `json:"unit_price_cents"`
		} `json:"items"`
		Total           *amount `json:"total_cents"`
		Payment         *string `json:"payment"`
		PaymentAttempts *amount `json:"payment_attempts"`
	}
	if err := json.Unmarshal(payload, &found); err != nil {
		return order{}, err
	}
	if found.ID == nil || found.Customer == nil || found.Currency == nil || found.Items == nil || found.Total == nil {
		return order{}, errors.New("order_id, customer, currency, items or total_cents is missing")
	}
	read := order{
		ID:              *found.ID,
		Customer:        *found.Customer,
		Currency:        *found.Currency,
		Total:           *found.Total,
		Payment:         "authorized",
		PaymentAttempts: paymentAttemptsDefault,
	}
	for n, line := range *found.Items {
		if line.SKU == nil || line.Quantity == nil || line.UnitPrice == nil {
			return order{}, fmt.Errorf("sku, quantity or unit_price_cents of item %d is missing", n+1)
		}
		read.Items = append(read.Items, item{*line.SKU, *line.Quantity, *line.UnitPrice})
	}
	if found.PaymentAttempts != nil {
		read.PaymentAttempts = *found.PaymentAttempts
	}
	if found.Payment != nil {
		read.Payment = *found.Payment
	}
	switch read.Payment {
	case "authorized", "pending", "declined":
		return read, nil
	default:
		return order{}, fmt.Errorf("the payment `%s` is unknown", read.Payment)
	}
}
