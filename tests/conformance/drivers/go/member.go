package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Of every member: a close is seen after two heartbeats, and a lost member after a session.
const (
	session   = 10 * time.Second
	heartbeat = 300 * time.Millisecond
)

// A member of a group that polls and commits until it is closed. A library keeps what it sees here.
type member struct {
	args
	ctx        context.Context
	leave      context.CancelFunc
	done       chan struct{}
	lock       sync.Mutex
	assignment map[string][]int32
	records    []record
	errors     []string
	failure    error
	metadata   metadata
}

// What a producer sends with positions of a group.
type metadata struct {
	group, member string
	generation    int32
}

// metadataOf returns that of a member, or that of a group without one.
func metadataOf(group string, m *member) metadata {
	if m == nil {
		return metadata{group, "", -1}
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.metadata
}

func openMember(l library, a args) *member {
	m := &member{args: a, done: make(chan struct{}), records: []record{}, errors: []string{}}
	m.ctx, m.leave = context.WithCancel(context.Background())
	go func() {
		defer close(m.done)
		err := l.join(m)
		m.lock.Lock()
		defer m.lock.Unlock()
		m.failure, m.assignment = err, nil
	}()
	return m
}

// own keeps all partitions of a generation.
func (m *member) own(assignment map[string][]int32, id string, generation int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.assignment, m.metadata = assignment, metadata{m.Group, id, generation}
}

func (m *member) take(records ...record) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.records = append(m.records, records...)
}

// note keeps the error of a commit. During a rebalance it is refused, and the next owner gets the records again.
func (m *member) note(err error) {
	if err == nil {
		return
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.errors = append(m.errors, err.Error())
}

func (m *member) look() (any, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.failure != nil {
		return nil, m.failure
	}
	shares := []place{}
	for topic, partitions := range m.assignment {
		for _, partition := range partitions {
			shares = append(shares, place{topic: topic, partition: partition})
		}
	}
	return map[string]any{"assignment": shares, "records": m.records, "errors": m.errors}, nil
}

func (m *member) finish() error {
	m.leave()
	select {
	case <-m.done:
		return m.failure
	case <-time.After(patience):
		return fmt.Errorf("the member did not close within %v", patience)
	}
}
