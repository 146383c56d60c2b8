package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A copier of records between topics, in transactions with its offsets, until it is closed. jsonl.py describes it.
type copier struct {
	bootstrap string
	security  security
	args      copierArgs
	stopping  chan struct{}
	done      chan struct{}
	lock      sync.Mutex
	state     copierState
}

type copierArgs struct {
	Group           string `json:"group"`
	Protocol        string `json:"protocol"`
	Source          string `json:"source"`
	Sink            string `json:"sink"`
	transactionalID string
}

type copierState struct {
	Copied    int            `json:"copied"`
	Instances int            `json:"instances"`
	Errors    map[string]int `json:"errors"`
	Step      string         `json:"step"`
}

func openCopier(bootstrap string, s security, transactionalID string, a copierArgs) *copier {
	a.transactionalID = transactionalID
	c := &copier{bootstrap: bootstrap, security: s, args: a, stopping: make(chan struct{}), done: make(chan struct{})}
	c.state.Errors = map[string]int{}
	go c.run()
	return c
}

func (c *copier) run() {
	defer close(c.done)
	for !c.isStopping() {
		c.enter("open")
		c.lock.Lock()
		c.state.Instances++
		c.lock.Unlock()
		session, err := c.open()
		if c.failed("open", err) {
			time.Sleep(time.Second)
			continue
		}
		for !c.isStopping() && c.copySome(session) {
		}
		c.enter("close")
		session.Close()
	}
}

func (c *copier) open() (*kgo.GroupTransactSession, error) {
	options, err := franzSecurity(c.security)
	if err != nil {
		return nil, err
	}
	options = append(options,
		kgo.SeedBrokers(strings.Split(c.bootstrap, ",")...),
		kgo.ClientID(c.args.transactionalID),
		kgo.TransactionalID(c.args.transactionalID),
		kgo.TransactionTimeout(20*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(c.args.Group),
		kgo.ConsumeTopics(c.args.Source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
		kgo.MetadataMinAge(metadataMinAge),
	)
	if c.args.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.SessionTimeout(3*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))
	}
	return kgo.NewGroupTransactSession(options...)
}

// copySome copies what one poll returns, and returns whether this session can continue. End aborts and rewinds if it
// cannot commit.
func (c *copier) copySome(session *kgo.GroupTransactSession) bool {
	c.enter("poll")
	limit, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	fetches := session.PollRecords(limit, 200)
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			c.failed("poll", err)
		}
	})
	if fetches.NumRecords() == 0 {
		return true
	}
	c.enter("begin")
	if c.failed("begin", session.Begin()) {
		return false
	}
	c.enter("send")
	var lock sync.Mutex
	var sent error
	fetches.EachRecord(func(r *kgo.Record) {
		copied := &kgo.Record{Topic: c.args.Sink, Partition: r.Partition, Key: r.Key, Value: r.Value}
		session.Produce(context.Background(), copied, func(_ *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				sent = err
			}
		})
	})
	c.failed("send", session.Client().Flush(context.Background()))
	lock.Lock()
	failed := c.failed("send", sent)
	lock.Unlock()
	c.enter("commit")
	committed, err := session.End(context.Background(), kgo.TransactionEndTry(!failed))
	if c.failed("commit", err) {
		return false
	}
	if committed {
		c.lock.Lock()
		c.state.Copied += fetches.NumRecords()
		c.lock.Unlock()
	} else if !failed {
		c.count("commit: the session aborted")
	}
	return true
}

func (c *copier) enter(step string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.state.Step = step
}

func (c *copier) failed(step string, err error) bool {
	if err == nil {
		return false
	}
	fmt.Fprintf(os.Stderr, "%s %s %s: %v\n", c.args.transactionalID, time.Now().Format("15:04:05.000"), step, err)
	c.count(step + ": " + nameOf(err))
	return true
}

func (c *copier) count(what string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.state.Errors[what]++
}

func (c *copier) isStopping() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}

func (c *copier) look() copierState {
	c.lock.Lock()
	defer c.lock.Unlock()
	seen := c.state
	seen.Errors = map[string]int{}
	for what, count := range c.state.Errors {
		seen.Errors[what] = count
	}
	return seen
}

func (c *copier) finish() error {
	close(c.stopping)
	select {
	case <-c.done:
		return nil
	case <-time.After(50 * time.Second):
		return fmt.Errorf("the copier did not close within 50 s")
	}
}
