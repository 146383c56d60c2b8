// Makes the calls of Redpanda Console's pages, in its order and with its options, by franz-go, and writes a line for
// each result that must not depend on the broker: console BOOTSTRAP TOPIC.
//
// The calls were read from Redpanda Console 3.10.0: backend/pkg/console, the services of backend/pkg/api/connect, and
// the options of backend/pkg/factory/kafka.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Of every request that a page can make or offers, whether the broker lists it.
var offered = []kmsg.Request{
	&kmsg.DescribeConfigsRequest{}, &kmsg.DescribeGroupsRequest{}, &kmsg.ListGroupsRequest{}, &kmsg.DeleteRecordsRequest{},
	&kmsg.OffsetCommitRequest{}, &kmsg.DeleteGroupsRequest{}, &kmsg.OffsetDeleteRequest{}, &kmsg.ListPartitionReassignmentsRequest{},
	&kmsg.IncrementalAlterConfigsRequest{}, &kmsg.AlterPartitionAssignmentsRequest{}, &kmsg.DescribeClientQuotasRequest{},
	&kmsg.DescribeUserSCRAMCredentialsRequest{}, &kmsg.AlterUserSCRAMCredentialsRequest{},
}

type pages struct {
	limit  context.Context
	client *kgo.Client
	admin  *kadm.Client
}

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.ClientID("redpanda-console"), kgo.FetchMaxBytes(5_000_000), kgo.MaxConcurrentFetches(12),
		kgo.KeepControlRecords(), kgo.MetadataMinAge(10*time.Millisecond),
	)
	if err != nil {
		panic(err)
	}
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := pages{limit, client, kadm.NewClient(client)}
	p.overview()
	p.brokers()
	p.topics()
	p.topic(os.Args[2])
	p.messages(os.Args[2])
	p.groups("groups")
	p.security()
}

func name(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func tell(page string, rows ...string) {
	sort.Strings(rows)
	for _, row := range rows {
		fmt.Printf("%s: %s\n", page, row)
	}
	if len(rows) == 0 {
		fmt.Printf("%s: nothing\n", page)
	}
}

func text(value *string) string {
	if value == nil {
		return "null"
	}
	return *value
}

func isInternal(topic string) bool { return strings.HasPrefix(topic, "__") }

func (p pages) metadata(page string, topics ...string) kadm.Metadata {
	found, err := p.admin.Metadata(p.limit, topics...)
	rows := []string{fmt.Sprintf("%s, %d brokers, cluster %t", name(err), len(found.Brokers), found.Cluster != "")}
	for _, topic := range found.Topics {
		states := map[string]int{}
		for _, each := range topic.Partitions {
			states[fmt.Sprintf("%s led %t replicas %d in sync %d", name(each.Err), each.Leader >= 0, len(each.Replicas), len(each.ISR))]++
		}
		rows = append(rows, fmt.Sprintf("%s %s internal %t id %t %v", topic.Topic, name(topic.Err), topic.IsInternal, topic.ID != kadm.TopicID{}, states))
	}
	tell(page, rows...)
	return found
}

func (p pages) raw() *kmsg.MetadataResponse {
	asked := kmsg.NewMetadataRequest()
	found, err := asked.RequestWith(p.limit, p.client)
	if err != nil {
		panic(err)
	}
	return found
}

func (p pages) overview() {
	p.metadata("overview, status")
	versions, err := p.admin.ApiVersions(p.limit)
	tell("overview, versions", name(err), fmt.Sprint(len(versions), " brokers"))
	p.logDirs("overview, directories", nil)
	found := p.raw()
	tell("overview, metadata", fmt.Sprintf("%d brokers, controller %t, %d topics", len(found.Brokers), found.ControllerID == found.Brokers[0].NodeID, len(found.Topics)))
	for _, broker := range p.raw().Brokers {
		p.settings("overview, settings", kmsg.ConfigResourceTypeBroker, nil, fmt.Sprint(broker.NodeID))
	}
	asked := kmsg.NewApiVersionsRequest()
	asked.ClientSoftwareName, asked.ClientSoftwareVersion = "RPConsole", "3.10.0"
	answer, err := asked.RequestWith(p.limit, p.client)
	if err != nil {
		panic(err)
	}
	table := kversion.FromApiVersionsResponse(answer)
	rows := []string{name(kerr.ErrorForCode(answer.ErrorCode))}
	for _, request := range offered {
		_, isListed := table.LookupMaxKeyVersion(request.Key())
		rows = append(rows, fmt.Sprintf("%s %t", kmsg.NameForKey(request.Key()), isListed))
	}
	tell("overview, offered", rows...)
}

func (p pages) brokers() {
	p.metadata("brokers")
	p.allLogDirs("brokers, directories")
}

func (p pages) logDirs(page string, topics []kmsg.DescribeLogDirsRequestTopic) {
	asked := kmsg.NewDescribeLogDirsRequest()
	asked.Topics = topics
	rows := []string{}
	for _, shard := range p.client.RequestSharded(p.limit, &asked) {
		rows = append(rows, name(shard.Err))
		answer, isAnswer := shard.Resp.(*kmsg.DescribeLogDirsResponse)
		if !isAnswer {
			continue
		}
		for _, dir := range answer.Dirs {
			rows = append(rows, name(kerr.ErrorForCode(dir.ErrorCode)))
			for _, topic := range dir.Topics {
				for _, each := range topic.Partitions {
					if !isInternal(topic.Topic) {
						rows = append(rows, fmt.Sprintf("%s %d filled %t lag %d", topic.Topic, each.Partition, each.Size > 0, each.OffsetLag))
					}
				}
			}
		}
	}
	tell(page, rows...)
}

func (p pages) allLogDirs(page string) {
	found, err := p.admin.DescribeAllLogDirs(p.limit, nil)
	rows := []string{name(err)}
	for _, dir := range found.Sorted() {
		rows = append(rows, name(dir.Err))
		dir.Topics.Each(func(each kadm.DescribedLogDirPartition) {
			if !isInternal(each.Topic) {
				rows = append(rows, fmt.Sprintf("%s %d filled %t", each.Topic, each.Partition, each.Size > 0))
			}
		})
	}
	tell(page, rows...)
}

// Of brokers, whose settings differ, only the result; settings of tiered storage may differ too.
func (p pages) settings(page string, kind kmsg.ConfigResourceType, names []string, resources ...string) {
	asked := kmsg.NewDescribeConfigsRequest()
	asked.IncludeSynonyms, asked.IncludeDocumentation = true, true
	for _, resource := range resources {
		asked.Resources = append(asked.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kind, ResourceName: resource, ConfigNames: names})
	}
	answer, err := asked.RequestWith(p.limit, p.client)
	if err != nil {
		panic(err)
	}
	rows := []string{}
	for _, resource := range answer.Resources {
		if kind == kmsg.ConfigResourceTypeBroker {
			rows = append(rows, fmt.Sprintf("%s many %t", name(kerr.ErrorForCode(resource.ErrorCode)), len(resource.Configs) > 100))
			continue
		}
		rows = append(rows, fmt.Sprintf("%s %s", resource.ResourceName, name(kerr.ErrorForCode(resource.ErrorCode))))
		for _, each := range resource.Configs {
			if strings.HasPrefix(each.Name, "remote.") || strings.HasPrefix(each.Name, "local.") {
				continue
			}
			rows = append(rows, fmt.Sprintf("%s %s = %s %s %s fixed %t secret %t synonyms %d documented %t", resource.ResourceName, each.Name, text(each.Value),
				each.Source, each.ConfigType, each.ReadOnly, each.IsSensitive, len(each.ConfigSynonyms), each.Documentation != nil))
		}
	}
	tell(page, rows...)
}

func (p pages) topics() {
	found := p.metadata("topics")
	p.settings("topics, settings", kmsg.ConfigResourceTypeTopic, []string{"cleanup.policy"}, found.Topics.Names()...)
	p.metadata("topics, metadata")
	p.allLogDirs("topics, directories")
}

func (p pages) offsets(page string, list func(context.Context, ...string) (kadm.ListedOffsets, error), topics ...string) kadm.ListedOffsets {
	found, err := list(p.limit, topics...)
	rows := []string{name(err)}
	found.Each(func(each kadm.ListedOffset) {
		if !isInternal(each.Topic) {
			rows = append(rows, fmt.Sprintf("%s %d %d %s", each.Topic, each.Partition, each.Offset, name(each.Err)))
		}
	})
	tell(page, rows...)
	return found
}

func (p pages) topic(topic string) {
	found := p.metadata("topic", topic)
	asked := kmsg.NewDescribeLogDirsRequestTopic()
	asked.Topic = topic
	for _, each := range found.Topics[topic].Partitions.Sorted() {
		asked.Partitions = append(asked.Partitions, each.Partition)
	}
	p.logDirs("topic, directories", []kmsg.DescribeLogDirsRequestTopic{asked})
	p.offsets("topic, begins", p.admin.ListStartOffsets, topic)
	p.offsets("topic, ends", p.admin.ListEndOffsets, topic)
	p.settings("topic, settings", kmsg.ConfigResourceTypeTopic, nil, topic)
	groups, err := p.admin.ListGroups(p.limit)
	tell("topic, groups", append(groups.Groups(), name(err))...)
	p.committed("topic, committed", groups.Groups())
	p.metadata("topic that is not there", "not-there")
	p.settings("topic that is not there, settings", kmsg.ConfigResourceTypeTopic, nil, "not-there")
}

// Messages are read from the beginning to the end, whatever ends a partition: a record or a marker.
func (p pages) messages(topic string) {
	p.metadata("messages, metadata", topic)
	p.offsets("messages, begins", p.admin.ListStartOffsets, topic)
	ends := p.offsets("messages, ends", p.admin.ListEndOffsets, topic)
	asked := kmsg.NewListOffsetsRequest()
	row := kmsg.NewListOffsetsRequestTopic()
	row.Topic = topic
	open, waiting := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		at := kmsg.NewListOffsetsRequestTopicPartition()
		at.Partition, at.Timestamp = end.Partition, 1
		row.Partitions = append(row.Partitions, at)
		open[end.Partition] = kgo.NewOffset().At(0)
		waiting[end.Partition] = end.Offset - 1
	})
	asked.Topics = append(asked.Topics, row)
	answer, err := asked.RequestWith(p.limit, p.client)
	if err != nil {
		panic(err)
	}
	rows := []string{}
	for _, each := range answer.Topics[0].Partitions {
		rows = append(rows, fmt.Sprintf("%d %d %s", each.Partition, each.Offset, name(kerr.ErrorForCode(each.ErrorCode))))
	}
	tell("messages, from a time", rows...)
	tell("messages", p.read(topic, open, waiting)...)
}

func (p pages) read(topic string, open map[int32]kgo.Offset, waiting map[int32]int64) []string {
	client, err := kgo.NewClient(append(p.client.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: open}))...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	rows := []string{}
	for len(waiting) > 0 {
		fetches := client.PollFetches(p.limit)
		if err := fetches.Err(); err != nil {
			panic(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			content := fmt.Sprintf("%s %s", r.Key, r.Value)
			if r.Attrs.IsControl() {
				content = "a marker"
			}
			rows = append(rows, fmt.Sprintf("%d %d %s transactional %t compression %d headers %d", r.Partition, r.Offset, content,
				r.Attrs.IsTransactional(), r.Attrs.CompressionType(), len(r.Headers)))
			if r.Offset >= waiting[r.Partition] {
				delete(waiting, r.Partition)
			}
		})
	}
	return rows
}

func (p pages) committed(page string, groups []string) {
	found := p.admin.FetchManyOffsets(p.limit, groups...)
	rows := []string{}
	for group, answer := range found {
		rows = append(rows, fmt.Sprintf("%s %s", group, name(answer.Err)))
		answer.Fetched.Each(func(each kadm.OffsetResponse) {
			rows = append(rows, fmt.Sprintf("%s %s %d %d %s", group, each.Topic, each.Partition, each.At, name(each.Err)))
		})
	}
	tell(page, rows...)
	topics := p.metadata(page+", metadata", found.CommittedPartitions().Topics()...)
	p.offsets(page+", ends", p.admin.ListEndOffsets, topics.Topics.Names()...)
}

func (p pages) groups(page string) {
	listed, err := p.admin.ListGroups(p.limit)
	rows := []string{name(err)}
	for _, each := range listed.Sorted() {
		rows = append(rows, fmt.Sprintf("%s %s %s coordinator %t", each.Group, each.ProtocolType, each.State, each.Coordinator >= 0))
	}
	tell(page, rows...)
	found, err := p.admin.DescribeGroups(p.limit, listed.Groups()...)
	rows = []string{name(err)}
	for _, group := range found.Sorted() {
		members := []string{}
		for _, each := range group.Members {
			assigned, isConsumer := each.Assigned.AsConsumer()
			members = append(members, fmt.Sprintf("%t %s %s %t", each.MemberID != "", each.ClientID, each.ClientHost, isConsumer))
			if isConsumer {
				for _, topic := range assigned.Topics {
					members = append(members, fmt.Sprint(topic.Topic, topic.Partitions))
				}
			}
		}
		rows = append(rows, fmt.Sprintf("%s %s %q %q %q %v", group.Group, name(group.Err), group.State, group.ProtocolType, group.Protocol, members))
	}
	tell(page+", described", rows...)
	p.committed(page+", committed", found.Names())
}

func (p pages) security() {
	all := kmsg.NewDescribeACLsRequest()
	all.ResourceType, all.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	all.Operation, all.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	entries, err := all.RequestWith(p.limit, p.client)
	if err != nil {
		panic(err)
	}
	rows := []string{name(kerr.ErrorForCode(entries.ErrorCode))}
	for _, resource := range entries.Resources {
		for _, each := range resource.ACLs {
			rows = append(rows, fmt.Sprint(resource.ResourceType, " ", resource.ResourceName, " ", resource.ResourcePatternType, " ", each.Principal, " ", each.Host, " ", each.Operation, " ", each.PermissionType))
		}
	}
	tell("access", rows...)
	for _, kind := range []string{"", "user", "client-id", "ip"} {
		p.quotas(kind)
	}
	users, err := p.admin.DescribeUserSCRAMs(p.limit)
	rows = []string{name(err)}
	for _, each := range users.Sorted() {
		rows = append(rows, fmt.Sprint(each.User, " ", name(each.Err), " ", each.CredInfos))
	}
	tell("users", rows...)
	moves := kmsg.NewListPartitionReassignmentsRequest()
	moves.Topics = nil
	moved, err := moves.RequestWith(p.limit, p.client)
	if err != nil {
		panic(err)
	}
	tell("reassignments", name(kerr.ErrorForCode(moved.ErrorCode)), fmt.Sprint(len(moved.Topics)))
}

func (p pages) quotas(kind string) {
	asked := kmsg.NewDescribeClientQuotasRequest()
	if kind != "" {
		asked.Components = []kmsg.DescribeClientQuotasRequestComponent{{EntityType: kind, MatchType: kmsg.QuotasMatchTypeAny}}
	}
	answer, err := asked.RequestWith(p.limit, p.client)
	if err != nil {
		panic(err)
	}
	rows := []string{name(kerr.ErrorForCode(answer.ErrorCode))}
	for _, entry := range answer.Entries {
		for _, value := range entry.Values {
			for _, entity := range entry.Entity {
				rows = append(rows, fmt.Sprint(entity.Type, " ", text(entity.Name), " ", value.Key, " ", value.Value))
			}
		}
	}
	tell("quotas of "+kind, rows...)
}
