package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franzInstance struct{ session *kgo.GroupTransactSession }

func (f franz) openInstance(a copierArgs) (instance, error) {
	options := append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(f.bootstrap, ",")...),
		kgo.ClientID(a.transactionalID),
		kgo.TransactionalID(a.transactionalID),
		kgo.TransactionTimeout(copierTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(a.Group),
		kgo.ConsumeTopics(a.Source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
		kgo.MetadataMinAge(metadataMinAge),
	}, f.security...)
	if a.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.SessionTimeout(copierSession), kgo.HeartbeatInterval(copierHeartbeat))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	return franzInstance{session}, err
}

func (f franzInstance) close() { f.session.Close() }

// copySome copies what one poll returns. End aborts and rewinds if it cannot commit.
func (f franzInstance) copySome(c *copier) bool {
	c.enter("poll")
	limit, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	fetches := f.session.PollRecords(limit, copierRecords)
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			c.failed("poll", err)
		}
	})
	if fetches.NumRecords() == 0 {
		return true
	}
	c.enter("begin")
	if c.failed("begin", f.session.Begin()) {
		return false
	}
	failed := f.send(c, fetches)
	c.enter("commit")
	committed, err := f.session.End(context.Background(), kgo.TransactionEndTry(!failed))
	if c.failed("commit", err) {
		return false
	}
	if committed {
		c.add(fetches.NumRecords())
	} else if !failed {
		c.count("commit: the session aborted")
	}
	return true
}

// send returns whether a record failed.
func (f franzInstance) send(c *copier, fetches kgo.Fetches) bool {
	c.enter("send")
	var lock sync.Mutex
	var sent error
	fetches.EachRecord(func(r *kgo.Record) {
		copied := &kgo.Record{Topic: c.args.Sink, Partition: r.Partition, Key: r.Key, Value: r.Value}
		f.session.Produce(context.Background(), copied, func(_ *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				sent = err
			}
		})
	})
	c.failed("send", f.session.Client().Flush(context.Background()))
	lock.Lock()
	defer lock.Unlock()
	return c.failed("send", sent)
}
