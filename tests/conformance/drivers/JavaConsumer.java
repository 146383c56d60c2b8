// Uses Apache Kafka's Java consumer with group.protocol=consumer in many ways, and writes a line for each result that
// must not depend on the broker: JavaConsumer BOOTSTRAP.

import static org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation.*;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class JavaConsumer {
  static final Duration QUICK = Duration.ofMillis(100);
  static final TopicPartition A0 = new TopicPartition("a", 0), A1 = new TopicPartition("a", 1), B0 = new TopicPartition("b", 0);
  static final long START_MS = System.currentTimeMillis() - 60_000;
  static String bootstrap;
  static Admin admin;
  static KafkaProducer<String, String> producer;

  interface Step { Object run() throws Exception; }

  public static void main(String[] args) throws Exception {
    bootstrap = args[0];
    admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
    admin.createTopics(List.of(new NewTopic("a", 3, (short) 1), new NewTopic("b", 1, (short) 1))).all().get();
    Set<TopicPartition> all = Set.of(A0, A1, new TopicPartition("a", 2), B0);
    // The broker opens partitions after its answer.
    admin.listOffsets(all.stream().collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest()))).all().get();
    for (TopicPartition partition : all) produce(partition, 10);
    oneMember();
    twoMembers();
    staticMembers();
    leaving();
    autoCommit();
    assigned();
    refused();
    administration();
    Runtime.getRuntime().halt(0);
  }

  /** Write the result of a step, or the class of its exception. */
  static void tell(String name, Step step) {
    Object result;
    try {
      result = step.run();
    } catch (Throwable thrown) {
      Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
      result = cause.getClass().getSimpleName();
    }
    System.out.println(name + ": " + result);
  }

  static void produce(TopicPartition partition, int count) throws Exception {
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    for (int number = 0; number < count; number++)
      sent.add(producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), START_MS + number, null, "" + number)));
    producer.flush();
    for (Future<RecordMetadata> record : sent) record.get();
  }

  static KafkaConsumer<String, String> open(String group, Object... more) {
    Map<String, Object> options = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
        "group.protocol", "consumer", "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 50));
    for (int at = 0; at < more.length; at += 2) options.put((String) more[at], more[at + 1]);
    return new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
  }

  @SafeVarargs static Map<TopicPartition, Integer> pollUntil(BooleanSupplier done, KafkaConsumer<String, String>... consumers) {
    Map<TopicPartition, Integer> counts = new TreeMap<>(Comparator.comparing(TopicPartition::toString));
    long deadline = System.nanoTime() + 60_000_000_000L;
    while (!done.getAsBoolean()) {
      if (System.nanoTime() > deadline) throw new IllegalStateException("not within a minute");
      for (KafkaConsumer<String, String> consumer : consumers)
        consumer.poll(QUICK).forEach(record -> counts.merge(new TopicPartition(record.topic(), record.partition()), 1, Integer::sum));
    }
    return counts;
  }

  /** Poll until so many records came; return the number of each partition. */
  static Map<TopicPartition, Integer> pollRecords(KafkaConsumer<String, String> consumer, int count) {
    int[] found = {0};
    Map<TopicPartition, Integer> counts = new TreeMap<>(Comparator.comparing(TopicPartition::toString));
    pollUntil(() -> {
      consumer.poll(QUICK).forEach(record -> {
        counts.merge(new TopicPartition(record.topic(), record.partition()), 1, Integer::sum);
        found[0]++;
      });
      return found[0] >= count;
    });
    return counts;
  }

  static List<String> names(Collection<TopicPartition> partitions) {
    return partitions.stream().map(TopicPartition::toString).sorted().toList();
  }

  static <V> Map<String, V> sorted(Map<TopicPartition, V> map) {
    Map<String, V> named = new TreeMap<>();
    map.forEach((partition, value) -> named.put(partition.toString(), value));
    return named;
  }

  static void oneMember() throws Exception {
    Set<TopicPartition> all = Set.of(A0, A1, new TopicPartition("a", 2), B0);
    KafkaConsumer<String, String> consumer = open("one");
    List<String> events = new ArrayList<>();
    consumer.subscribe(List.of("a", "b"), new ConsumerRebalanceListener() {
      public void onPartitionsAssigned(Collection<TopicPartition> given) { events.add("assigned " + names(given)); }
      public void onPartitionsRevoked(Collection<TopicPartition> taken) { events.add("revoked " + names(taken)); }
      public void onPartitionsLost(Collection<TopicPartition> lost) { events.add("lost " + names(lost)); }
    });
    tell("records", () -> pollRecords(consumer, 40));
    tell("assignment", () -> names(consumer.assignment()));
    tell("subscription", () -> new TreeSet<>(consumer.subscription()));
    tell("metadata", () -> consumer.groupMetadata().groupId() + " " + (consumer.groupMetadata().generationId() > 0)
        + " " + consumer.groupMetadata().memberId().length() + " " + consumer.groupMetadata().groupInstanceId());
    tell("committed before", () -> sorted(consumer.committed(all)));
    tell("position", () -> consumer.position(A0));
    consumer.pause(List.of(A0));
    for (TopicPartition partition : List.of(A0, A1)) produce(partition, 5);
    tell("records while paused", () -> pollRecords(consumer, 5));
    tell("paused", () -> names(consumer.paused()));
    consumer.resume(List.of(A0));
    tell("records after resume", () -> pollRecords(consumer, 5));
    consumer.seek(A1, 12);
    tell("position after seek", () -> consumer.position(A1));
    tell("records after seek", () -> pollRecords(consumer, 3));
    tell("commit", () -> { consumer.commitSync(); return sorted(consumer.committed(all)); });
    tell("commit with metadata", () -> {
      consumer.commitSync(Map.of(A0, new OffsetAndMetadata(3, Optional.of(0), "note")));
      return consumer.committed(Set.of(A0));
    });
    tell("commit async", () -> {
      List<String> answers = new ArrayList<>();
      consumer.commitAsync(Map.of(B0, new OffsetAndMetadata(4)), (offsets, error) -> answers.add(offsets + " " + error));
      pollUntil(() -> !answers.isEmpty(), consumer);
      return answers + " " + consumer.committed(Set.of(B0));
    });
    tell("commit of what does not exist", () -> {
      consumer.commitSync(Map.of(new TopicPartition("a", 9), new OffsetAndMetadata(1)), Duration.ofSeconds(2));
      return "done";
    });
    tell("begins", () -> sorted(consumer.beginningOffsets(all)));
    tell("ends", () -> sorted(consumer.endOffsets(all)));
    tell("times", () -> consumer.offsetsForTimes(Map.of(B0, START_MS + 4)).get(B0).offset());
    consumer.seekToBeginning(List.of(B0));
    tell("position at the beginning", () -> consumer.position(B0));
    consumer.seekToEnd(List.of(B0));
    tell("position at the end", () -> consumer.position(B0));
    tell("position of what is not assigned", () -> consumer.position(new TopicPartition("c", 0)));
    consumer.subscribe(List.of("b"), new ConsumerRebalanceListener() {
      public void onPartitionsAssigned(Collection<TopicPartition> given) { events.add("assigned again " + names(given)); }
      public void onPartitionsRevoked(Collection<TopicPartition> taken) { events.add("revoked again " + names(taken)); }
    });
    tell("narrowed", () -> { pollUntil(() -> consumer.assignment().size() == 1, consumer); return names(consumer.assignment()); });
    consumer.unsubscribe();
    tell("unsubscribed", () -> names(consumer.assignment()) + " " + consumer.subscription());
    tell("members", () -> members("one"));
    consumer.subscribe(List.of("a"));
    tell("subscribed again", () -> pollRecords(consumer, 12));
    consumer.close();
    tell("events", () -> events);
    tell("members after close", () -> members("one"));
  }

  static void twoMembers() throws Exception {
    KafkaConsumer<String, String> first = open("two"), second = open("two");
    first.subscribe(List.of("a", "b"));
    pollUntil(() -> first.assignment().size() == 4, first);
    second.subscribe(List.of("a", "b"));
    pollUntil(() -> first.assignment().size() == 2 && second.assignment().size() == 2, first, second);
    tell("shared", () -> names(Stream.concat(first.assignment().stream(), second.assignment().stream()).toList()));
    tell("state", () -> describe("two").groupState() + " " + describe("two").type() + " " + describe("two").partitionAssignor());
    ConsumerGroupDescription group = describe("two");
    tell("targets reached", () -> group.members().stream().allMatch(member -> member.upgraded().get()
        && member.assignment().equals(member.targetAssignment().get()) && member.memberEpoch().equals(group.targetAssignmentEpoch())));
    tell("commit of both", () -> { first.commitSync(); second.commitSync(); return "done"; });
    TopicPartition foreign = second.assignment().iterator().next();
    tell("commit of another's partition", () -> { first.commitSync(Map.of(foreign, new OffsetAndMetadata(2))); return "done"; });
    tell("delete while it has members", () -> admin.deleteConsumerGroups(List.of("two")).all().get());
    tell("offsets by an admin while it has members", () ->
        admin.alterConsumerGroupOffsets("two", Map.of(A0, new OffsetAndMetadata(1))).all().get());
    second.close();
    pollUntil(() -> first.assignment().size() == 4, first);
    tell("all again", () -> names(first.assignment()));
    KafkaConsumer<String, String> other = open("two", "group.remote.assignor", "range");
    other.subscribe(List.of("a"));
    pollUntil(() -> other.assignment().size() + first.assignment().size() == 4 && !other.assignment().isEmpty(), first, other);
    tell("different subscriptions", () -> first.assignment().contains(B0) && !other.assignment().contains(B0));
    other.close();
    first.close();
  }

  static void staticMembers() throws Exception {
    KafkaConsumer<String, String> first = open("static", "group.instance.id", "s");
    first.subscribe(List.of("a"));
    pollUntil(() -> first.assignment().size() == 3, first);
    first.commitSync(Map.of(A0, new OffsetAndMetadata(7)));
    KafkaConsumer<String, String> twin = open("static", "group.instance.id", "s");
    twin.subscribe(List.of("a"));
    tell("a twin", () -> { pollUntil(() -> false, twin); return "joined"; });
    twin.close();
    tell("instance", () -> describe("static").members().stream().map(m -> m.groupInstanceId().orElse("-")).toList());
    String id = first.groupMetadata().memberId();
    first.close();
    tell("members after a static one closed", () -> members("static"));
    KafkaConsumer<String, String> back = open("static", "group.instance.id", "s");
    back.subscribe(List.of("a"));
    tell("static member is back", () -> pollRecords(back, 33) + " " + !id.equals(back.groupMetadata().memberId()));
    tell("removed by an admin", () -> admin.removeMembersFromConsumerGroup("static",
        new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("s")))).all().get());
    tell("members after removal", () -> members("static"));
    tell("removed again", () -> admin.removeMembersFromConsumerGroup("static",
        new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("s")))).all().get());
    back.close();
  }

  static void leaving() throws Exception {
    for (CloseOptions.GroupMembershipOperation operation : List.of(LEAVE_GROUP, REMAIN_IN_GROUP, DEFAULT)) {
      for (String instance : new String[] {null, "i"}) {
        String group = "leaving-" + operation + "-" + instance;
        KafkaConsumer<String, String> consumer = instance == null ? open(group) : open(group, "group.instance.id", instance);
        consumer.subscribe(List.of("b"));
        pollUntil(() -> consumer.assignment().size() == 1, consumer);
        consumer.close(CloseOptions.groupMembershipOperation(operation));
        tell("members after " + operation + " of " + (instance == null ? "dynamic" : "static"), () -> members(group));
      }
    }
  }

  static void autoCommit() throws Exception {
    KafkaConsumer<String, String> consumer = open("auto", "enable.auto.commit", true);
    consumer.subscribe(List.of("b"));
    pollRecords(consumer, 10);
    consumer.close();
    tell("committed at close", () -> admin.listConsumerGroupOffsets("auto").partitionsToOffsetAndMetadata().get());
    KafkaConsumer<String, String> next = open("auto");
    next.subscribe(List.of("b"));
    pollUntil(() -> next.assignment().size() == 1, next);
    tell("continues at", () -> next.position(B0));
    next.close();
  }

  static void assigned() throws Exception {
    KafkaConsumer<String, String> consumer = open("simple");
    consumer.assign(List.of(A0, B0));
    tell("records by assign", () -> pollRecords(consumer, 25));
    tell("commit by assign", () -> { consumer.commitSync(); return sorted(consumer.committed(Set.of(A0, B0))); });
    consumer.close();
    tell("simple group", () -> admin.listGroups().all().get().stream().filter(group -> group.groupId().equals("simple"))
        .map(group -> group.type() + " " + group.groupState() + " " + group.isSimpleConsumerGroup()).toList());
  }

  static void refused() throws Exception {
    KafkaConsumer<String, String> unknown = open("unknown-topic", "allow.auto.create.topics", false);
    unknown.subscribe(List.of("b", "later"));
    pollUntil(() -> unknown.assignment().size() == 1, unknown);
    admin.createTopics(List.of(new NewTopic("later", 2, (short) 1))).all().get();
    tell("a topic that was created later", () -> { pollUntil(() -> unknown.assignment().size() == 3, unknown); return names(unknown.assignment()); });
    admin.createPartitions(Map.of("later", NewPartitions.increaseTo(4))).all().get();
    tell("more partitions", () -> { pollUntil(() -> unknown.assignment().size() == 5, unknown); return names(unknown.assignment()); });
    admin.deleteTopics(List.of("later")).all().get();
    tell("a topic that was deleted", () -> { pollUntil(() -> unknown.assignment().size() == 1, unknown); return names(unknown.assignment()); });
    unknown.close();
    KafkaConsumer<String, String> odd = open("odd", "group.remote.assignor", "odd");
    odd.subscribe(List.of("b"));
    tell("an unknown assignor", () -> { pollUntil(() -> false, odd); return "joined"; });
    odd.close();
  }

  static void administration() throws Exception {
    tell("groups", () -> admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().stream()
        .map(group -> group.groupId() + " " + group.type().orElse(null) + " " + group.groupState().orElse(null)).sorted().toList());
    tell("groups of the type", () -> admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))
        .inGroupStates(Set.of(GroupState.EMPTY))).all().get().stream().map(GroupListing::groupId).sorted().toList());
    tell("alter offsets", () -> { admin.alterConsumerGroupOffsets("two", Map.of(A0, new OffsetAndMetadata(1))).all().get();
      return admin.listConsumerGroupOffsets("two").partitionsToOffsetAndMetadata().get().get(A0); });
    tell("delete offsets", () -> { admin.deleteConsumerGroupOffsets("two", Set.of(A0)).all().get();
      return admin.listConsumerGroupOffsets("two").partitionsToOffsetAndMetadata().get().containsKey(A0); });
    tell("delete", () -> admin.deleteConsumerGroups(List.of("two")).all().get());
    tell("describe what is deleted", () -> describe("two"));
    tell("delete again", () -> admin.deleteConsumerGroups(List.of("two")).all().get());
  }

  static ConsumerGroupDescription describe(String group) throws Exception {
    return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
  }

  static int members(String group) throws Exception {
    return describe(group).members().size();
  }
}
