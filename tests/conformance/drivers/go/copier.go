package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// Of the consumers of copiers, and the most records of a transaction.
const (
	copierSession   = 3 * time.Second
	copierHeartbeat = 500 * time.Millisecond
	copierTimeout   = 20 * time.Second
	copierRecords   = 200
)

// A copier of records between topics, in transactions with its offsets, until it is closed. jsonl.py describes it.
type copier struct {
	args  copierArgs
	ctx   context.Context
	stop  context.CancelFunc
	done  chan struct{}
	lock  sync.Mutex
	state copierState
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

// A consumer and a producer of a library. `copySome` returns whether they can continue.
type instance interface {
	copySome(c *copier) bool
	close()
}

func openCopier(l library, transactionalID string, a copierArgs) *copier {
	a.transactionalID = transactionalID
	c := &copier{args: a, done: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.state.Errors = map[string]int{}
	go c.run(l)
	return c
}

func (c *copier) run(l library) {
	defer close(c.done)
	for c.ctx.Err() == nil {
		c.enter("open")
		c.lock.Lock()
		c.state.Instances++
		c.lock.Unlock()
		opened, err := l.openInstance(c.args)
		if c.failed("open", err) {
			time.Sleep(time.Second)
			continue
		}
		for c.ctx.Err() == nil && opened.copySome(c) {
		}
		c.enter("close")
		opened.close()
	}
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

func (c *copier) add(copied int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.state.Copied += copied
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
	c.stop()
	select {
	case <-c.done:
		return nil
	case <-time.After(50 * time.Second):
		return fmt.Errorf("the copier did not close within 50 s")
	}
}
