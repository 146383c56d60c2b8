package main

import (
	"errors"
	"strings"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// codeOf returns the code of Kafka's error, or nil.
func codeOf(err error) any {
	var franz *kerr.Error
	var sarama sarama.KError
	var kafkaGo kafka.Error
	switch {
	case errors.As(err, &franz):
		return franz.Code
	case errors.As(err, &sarama):
		return sarama
	case errors.As(err, &kafkaGo):
		return int(kafkaGo)
	}
	return nil
}

// nameOf returns the name of Kafka's error, or the end of the message, which has no addresses and offsets.
func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	var lost *kgo.ErrDataLoss
	if errors.As(err, &lost) {
		return "ErrDataLoss"
	}
	parts := strings.Split(err.Error(), ": ")
	return parts[len(parts)-1]
}
