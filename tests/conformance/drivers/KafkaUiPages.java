// Makes the calls of kafka-ui's pages, in its order and with its options, by Apache Kafka's Java client, and writes a
// line for each result that must not depend on the broker: KafkaUiPages BOOTSTRAP TOPIC.
//
// The calls were read from kafka-ui 1.5.0: ReactiveAdminClient, FeatureService, StatisticsService, ScrapedClusterState,
// BrokerService, TopicsService, MessagesService with its emitters, ConsumerGroupService, AclsService,
// ClientQuotaService.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.function.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.BytesDeserializer;
import org.apache.kafka.common.utils.Bytes;

public class KafkaUiPages {
  static String bootstrap;
  static Admin admin;
  static final Map<Object, String> written = new HashMap<>();

  interface Call<V> { V make() throws Exception; }

  public static void main(String[] args) throws Exception {
    bootstrap = args[0];
    admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", 30_000, "client.id", "kafbat-ui-admin-1-1"));
    connection();
    overview();
    brokers();
    topics();
    topic(args[1]);
    messages(args[1]);
    groups();
    security();
    Runtime.getRuntime().halt(0);
  }

  /** Make a call; write what `show` says of its result, or the class of its exception. */
  static <V> V tell(String page, Call<V> call, Function<V, Object> show) {
    try {
      V result = call.make();
      write(page, show.apply(result));
      return result;
    } catch (Throwable thrown) {
      Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
      write(page, cause.getClass().getSimpleName());
      return null;
    }
  }

  /** Rows take a line each, but only once. */
  static void write(String page, Object shown) {
    if (shown instanceof Map<?, ?> rows && !rows.isEmpty() && !written.containsKey(shown))
      rows.forEach((name, row) -> System.out.println(page + ": " + name + ": " + row));
    else System.out.println(page + ": " + (written.containsKey(shown) ? "as " + written.get(shown) : shown));
    if (shown instanceof Map<?, ?>) written.putIfAbsent(shown, page);
  }

  static <K, V> Map<String, Object> each(Map<K, V> rows, Function<V, Object> show) {
    Map<String, Object> shown = new TreeMap<>();
    rows.forEach((name, row) -> shown.put(name.toString(), show.apply(row)));
    return shown;
  }

  static List<String> sorted(Stream<?> values) {
    return values.map(String::valueOf).sorted().toList();
  }

  // What a client is made with: the version of the brokers and what they can do.
  static void connection() {
    cluster("connection, cluster", false);
    brokerSettings("connection, settings");
    tell("connection, features", () -> admin.describeFeatures().featureMetadata().get(),
        found -> {
      Map<String, Object> levels = each(found.finalizedFeatures(), range -> range.maxVersionLevel());
      levels.keySet().retainAll(Set.of("metadata.version", "group.version", "transaction.version"));
      return levels;
    });
    tell("connection, entries", () -> admin.describeAcls(AclBindingFilter.ANY).values().get(), found -> found.size());
  }

  static List<Integer> cluster(String page, boolean withOperations) {
    DescribeClusterResult asked = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(withOperations));
    List<Integer> ids = new ArrayList<>();
    tell(page, () -> {
      asked.nodes().get().forEach(node -> ids.add(node.id()));
      Set<AclOperation> operations = asked.authorizedOperations().get();
      return ids.size() + " brokers, controller " + ids.contains(asked.controller().get().id()) + ", id " + !asked.clusterId().get().isEmpty()
          + ", " + (operations == null ? "no operations" : sorted(operations.stream()));
    }, shown -> shown);
    return ids;
  }

  static void brokerSettings(String page) {
    ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(cluster(page + ", cluster", false).get(0)));
    tell(page, () -> admin.describeConfigs(List.of(broker)).all().get().get(broker),
        found -> (found.entries().size() > 100) + ", topics can be deleted "
            + found.entries().stream().noneMatch(entry -> entry.name().equals("delete.topic.enable") && entry.value().equals("false")));
  }

  static String describe(ConfigEntry entry) {
    return entry.type() + (entry.isReadOnly() ? " fixed" : "") + (entry.isSensitive() ? " secret" : "") + " " + entry.value() + " " + entry.source() + " "
        + entry.synonyms().stream().map(synonym -> synonym.name() + "=" + synonym.value() + " " + synonym.source()).toList()
        + (entry.documentation() == null ? "" : " documented");
  }

  // The statistics that are collected every 30 seconds, for the overview and most lists.
  static void overview() {
    List<Integer> ids = cluster("overview, cluster", true);
    tell("overview, quorum", () -> admin.describeMetadataQuorum().quorumInfo().get(),
        found -> found.voters().size() + " voters, leader " + found.voters().stream().anyMatch(voter -> voter.replicaId() == found.leaderId())
            + ", " + found.voters().stream().allMatch(voter -> voter.logEndOffset() > 0 && voter.lastCaughtUpTimestamp().isPresent()));
    logDirs("overview, directories", ids);
    groupNames("overview, groups");
    Map<String, TopicDescription> topics = describe("overview, topics", topicNames("overview, topic names"));
    settings("overview, settings", topicNames("overview, topic names again"), false);
    ends("overview, ends", topics, OffsetSpec.latest());
    ends("overview, begins", topics, OffsetSpec.earliest());
    Set<String> groups = groupNames("overview, groups again");
    describeGroups("overview, described", groups);
    committed("overview, committed", groups, null);
  }

  static void brokers() {
    List<Integer> ids = cluster("brokers", true);
    logDirs("brokers, directories", ids);
    brokerSettings("broker, settings");
  }

  static void logDirs(String page, List<Integer> ids) {
    tell(page, () -> admin.describeLogDirs(ids).allDescriptions().get(), found -> each(new TreeMap<>(found).firstEntry().getValue().values().stream()
        .flatMap(dir -> dir.replicaInfos().entrySet().stream()).filter(row -> !row.getKey().topic().startsWith("__"))
        .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue)),
        replica -> (replica.size() > 0 ? "data" : "empty") + " lag " + replica.offsetLag() + " future " + replica.isFuture()));
    tell(page + ", space", () -> admin.describeLogDirs(ids).allDescriptions().get(), found -> sorted(found.values().stream()
        .flatMap(dirs -> dirs.values().stream()).map(dir -> dir.error() + " " + (dir.totalBytes().getAsLong() > 0) + " " + (dir.usableBytes().getAsLong() > 0))));
  }

  static void topics() {
    Set<String> names = topicNames("topics");
    load("topics", names);
  }

  static void load(String page, Set<String> names) {
    Map<String, TopicDescription> found = describe(page + ", described", names);
    settings(page + ", settings", names, false);
    ends(page + ", begins", found, OffsetSpec.earliest());
    ends(page + ", ends", found, OffsetSpec.latest());
  }

  static Set<String> topicNames(String page) {
    return tell(page, () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get(), found -> sorted(found.stream()));
  }

  static Map<String, TopicDescription> describe(String page, Set<String> names) {
    return tell(page, () -> admin.describeTopics(names).allTopicNames().get(), found -> each(found, topic -> topic.partitions().size() + " partitions, "
        + (topic.isInternal() ? "internal" : "own") + ", id " + !topic.topicId().equals(Uuid.ZERO_UUID) + ", " + topic.authorizedOperations()
        + ", " + topic.partitions().stream().map(each -> (each.leader() == null ? "no leader" : "led") + " " + each.replicas().size() + " " + each.isr().size()).distinct().toList()));
  }

  /** Settings of internal topics, and of tiered storage, may differ. */
  static boolean isShown(String topic, String setting) {
    return !topic.startsWith("__") && !setting.startsWith("remote.") && !setting.startsWith("local.");
  }

  static void settings(String page, Set<String> names, boolean withDocumentation) {
    List<ConfigResource> resources = names.stream().map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name)).toList();
    DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(withDocumentation);
    Map<String, Object> rows = new TreeMap<>();
    tell(page, () -> {
      for (var row : admin.describeConfigs(resources, options).values().entrySet())
        for (ConfigEntry entry : row.getValue().get().entries())
          if (isShown(row.getKey().name(), entry.name())) rows.put(row.getKey().name() + " " + entry.name(), describe(entry));
      return rows;
    }, found -> found);
  }

  static List<TopicPartition> partitions(Map<String, TopicDescription> topics) {
    return topics.values().stream().flatMap(topic -> topic.partitions().stream().map(each -> new TopicPartition(topic.name(), each.partition()))).toList();
  }

  static void ends(String page, Map<String, TopicDescription> topics, OffsetSpec spec) {
    Map<TopicPartition, OffsetSpec> asked = partitions(topics).stream().collect(Collectors.toMap(each -> each, each -> spec));
    tell(page, () -> admin.listOffsets(asked).all().get(), found -> each(own(found), row -> row.offset()));
  }

  static <V> Map<TopicPartition, V> own(Map<TopicPartition, V> rows) {
    return rows.entrySet().stream().filter(row -> !row.getKey().topic().startsWith("__")).collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
  }

  static void topic(String name) {
    load("topic", Set.of(name));
    describe("topic settings, described", Set.of(name));
    settings("topic settings", Set.of(name), true);
    Map<String, TopicDescription> found = describe("topic producers, described", Set.of(name));
    tell("topic producers", () -> admin.describeProducers(partitions(found)).all().get(), states -> each(states, state -> sorted(state.activeProducers().stream()
        .map(each -> each.producerEpoch() + " " + each.lastSequence() + " " + (each.lastTimestamp() > 0) + " " + each.coordinatorEpoch() + " " + each.currentTransactionStartOffset()))));
    Map<String, TopicDescription> again = describe("topic groups, described", Set.of(name));
    ends("topic groups, ends", again, OffsetSpec.latest());
    Set<String> groups = groupNames("topic groups, groups");
    describeGroups("topic groups, all", groups);
    committed("topic groups, committed", groups, partitions(again));
    describe("topic that is not there", Set.of("not-there"));
    settings("topic that is not there, settings", Set.of("not-there"), false);
  }

  static KafkaConsumer<Bytes, Bytes> consumer() {
    Map<String, Object> options = Map.of("bootstrap.servers", bootstrap, "client.id", "kafbat-ui-consumer-1", "auto.offset.reset", "earliest",
        "enable.auto.commit", "false", "allow.auto.create.topics", "false", "max.poll.records", 100);
    return new KafkaConsumer<>(options, new BytesDeserializer(), new BytesDeserializer());
  }

  // The newest messages first, then from the oldest, then from a time.
  static void messages(String name) {
    for (String mode : List.of("latest", "earliest", "time")) {
      describe("messages from " + mode + ", described", Set.of(name));
      try (KafkaConsumer<Bytes, Bytes> consumer = consumer()) {
        List<TopicPartition> all = consumer.partitionsFor(name).stream().map(each -> new TopicPartition(name, each.partition())).toList();
        tell("messages from " + mode + ", times", () -> consumer.offsetsForTimes(all.stream().collect(Collectors.toMap(each -> each, each -> 0L))),
            found -> all.stream().map(each -> each + " " + (found.get(each) == null ? null : found.get(each).offset())).toList());
        Map<TopicPartition, Long> begins = tell("messages from " + mode + ", begins", () -> consumer.beginningOffsets(all), found -> each(found, each -> each));
        Map<TopicPartition, Long> ends = tell("messages from " + mode + ", ends", () -> consumer.endOffsets(all), found -> each(found, each -> each));
        List<TopicPartition> filled = all.stream().filter(each -> ends.get(each) > begins.get(each)).toList();
        Map<TopicPartition, Long> starts = switch (mode) {
          case "latest" -> filled.stream().collect(Collectors.toMap(each -> each, each -> Math.max(begins.get(each), ends.get(each) - 3)));
          case "earliest" -> consumer.beginningOffsets(filled);
          default -> consumer.offsetsForTimes(filled.stream().collect(Collectors.toMap(each -> each, each -> 1L))).entrySet().stream()
              .filter(row -> row.getValue() != null).collect(Collectors.toMap(Map.Entry::getKey, row -> row.getValue().offset()));
        };
        tell("messages from " + mode, () -> poll(consumer, starts, ends), found -> found);
      }
    }
  }

  static List<String> poll(KafkaConsumer<Bytes, Bytes> consumer, Map<TopicPartition, Long> starts, Map<TopicPartition, Long> ends) {
    consumer.assign(starts.keySet());
    starts.forEach(consumer::seek);
    List<String> found = new ArrayList<>();
    long deadline = System.nanoTime() + 60_000_000_000L;
    while (starts.keySet().stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
      if (System.nanoTime() > deadline) throw new IllegalStateException("not within a minute");
      consumer.poll(Duration.ofMillis(1000)).forEach(each -> found.add(each.partition() + " " + each.offset() + " " + each.key() + " " + each.value()
          + " " + each.timestampType() + " " + each.headers().toArray().length));
    }
    Collections.sort(found);
    return found;
  }

  @SuppressWarnings("deprecation")
  static Set<String> groupNames(String page) {
    return tell(page, () -> admin.listConsumerGroups().all().get(), found -> sorted(found.stream().map(each -> each.groupId() + " " + each.isSimpleConsumerGroup()
        + " " + each.state().orElse(null) + " " + each.type().orElse(null)))).stream().map(ConsumerGroupListing::groupId).collect(Collectors.toCollection(TreeSet::new));
  }

  static void describeGroups(String page, Set<String> groups) {
    tell(page, () -> admin.describeConsumerGroups(groups).all().get(), found -> each(found, group -> group.groupState() + " " + group.type() + " "
        + group.isSimpleConsumerGroup() + " " + group.partitionAssignor() + " coordinator " + (group.coordinator() != null) + " " + group.authorizedOperations()
        + " " + sorted(group.members().stream().map(each -> !each.consumerId().isEmpty() + " " + each.clientId() + " " + each.host() + " " + each.groupInstanceId()
            + " " + sorted(each.assignment().topicPartitions().stream())))));
  }

  static void committed(String page, Set<String> groups, List<TopicPartition> partitions) {
    ListConsumerGroupOffsetsSpec spec = new ListConsumerGroupOffsetsSpec().topicPartitions(partitions);
    tell(page, () -> admin.listConsumerGroupOffsets(groups.stream().collect(Collectors.toMap(each -> each, each -> spec))).all().get(),
        found -> each(found, rows -> each(rows, each -> each == null ? null : each.offset())));
  }

  static void groups() {
    Set<String> groups = groupNames("groups");
    describeGroups("groups, described", groups);
    committed("groups, committed", groups, null);
    describeGroups("group that is not there", Set.of("not-there"));
  }

  static void security() {
    tell("access", () -> admin.describeAcls(new AclBindingFilter(ResourcePatternFilter.ANY, AccessControlEntryFilter.ANY)).values().get(), found -> sorted(found.stream()));
    tell("quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get(), found -> each(found, each -> new TreeMap<>(each)));
  }
}
