package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
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
