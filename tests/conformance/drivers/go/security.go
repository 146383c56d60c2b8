package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// How a client connects; without a mechanism it does not log in, without a CA it does not use TLS.
type security struct {
	Mechanism string `json:"mechanism"`
	Username  string `json:"username"`
	Password  string `json:"password"`
	CA        string `json:"ca"`
}

// tls returns nil without a CA.
func (s security) tls() (*tls.Config, error) {
	if s.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New(s.CA + " has no certificate")
	}
	return &tls.Config{RootCAs: roots}, nil
}

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
