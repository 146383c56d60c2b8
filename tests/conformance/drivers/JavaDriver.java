// The conformance driver of Apache Kafka's Java client. The lines it speaks are described in jsonl.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

public class JavaDriver {
  static final ObjectMapper JSON = new ObjectMapper();
  /** Of every client: how it gets in. */
  static final Map<String, Object> OPTIONS = new HashMap<>();
  String bootstrap;
  Admin admin;

  /** Kafka's class for this has another package in 4.4. */
  static String version() throws java.io.IOException {
    Properties found = new Properties();
    try (var file = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
      found.load(file);
    }
    return found.getProperty("version");
  }

  final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
  final Map<String, Member> members = new HashMap<>();
  final Map<String, Copier> copiers = new HashMap<>();

  /** Options of Kafka's own system properties go there. */
  void connect(JsonNode args) {
    bootstrap = args.get("bootstrap").asText();
    OPTIONS.clear();
    args.get("options").fields().forEachRemaining(option -> {
      if (option.getKey().startsWith("org.apache.kafka.")) System.setProperty(option.getKey(), option.getValue().asText());
      else OPTIONS.put(option.getKey(), option.getValue().asText());
    });
    Map<String, Object> options = new HashMap<>(OPTIONS);
    options.put("bootstrap.servers", bootstrap);
    admin = Admin.create(options);
  }

  /** Return whether nothing is open, so that another client can connect. */
  boolean release() {
    if (!producers.isEmpty() || !members.isEmpty() || !copiers.isEmpty()) return false;
    admin.close(Duration.ofSeconds(5));
    return true;
  }

  public static void main(String[] args) throws Exception {
    PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    JavaDriver driver = new JavaDriver();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      JsonNode request = JSON.readTree(line);
      ObjectNode answer = JSON.createObjectNode();
      try {
        answer.set("ok", JSON.valueToTree(driver.serve(request.get("op").asText(), request.get("args"))));
      } catch (Throwable thrown) {
        answer.set("error", JSON.valueToTree(describe(thrown)));
      }
      answers.println(JSON.writeValueAsString(answer));
    }
    Runtime.getRuntime().halt(0);
  }

  /** The exception a user sees; a code below 0 means that Kafka has none for it. */
  static Map<String, Object> describe(Throwable thrown) {
    Throwable cause = thrown instanceof ExecutionException && thrown.getCause() != null ? thrown.getCause() : thrown;
    Throwable inner = cause.getClass() == org.apache.kafka.common.KafkaException.class && cause.getCause() != null ? cause.getCause() : cause;
    Map<String, Object> error = new HashMap<>();
    int code = Errors.forException(inner).code();
    error.put("type", inner.getClass().getSimpleName());
    error.put("code", code < 0 ? null : code);
    error.put("message", String.valueOf(cause.getMessage()));
    return error;
  }

  Object serve(String op, JsonNode args) throws Exception {
    switch (op) {
      case "hello": return Map.of("client", "java", "version", version(), "missing", Map.of());
      case "connect": connect(args); return null;
      case "release": return release();
      case "create_topics": createTopics(args.get("topics")); return null;
      case "delete_topics": admin.deleteTopics(texts(args.get("names"))).all().get(20, TimeUnit.SECONDS); return null;
      case "list_topics": return new TreeSet<>(admin.listTopics().names().get(20, TimeUnit.SECONDS));
      case "producer_open": openProducer(args); return null;
      case "init": producer(args).initTransactions(); return null;
      case "begin": producer(args).beginTransaction(); return null;
      case "send": return send(producer(args), args.get("records"), !args.has("awaited"));
      case "send_offsets": sendOffsets(args); return null;
      case "commit": producer(args).commitTransaction(); return null;
      case "abort": producer(args).abortTransaction(); return null;
      case "producer_close": producers.remove(args.get("id").asText()).close(Duration.ofSeconds(5)); return null;
      case "read": return read(texts(args.get("topics")), args.get("isolation").asText());
      case "committed": return committed(args);
      case "member_open": openMember(args); return null;
      case "member_state": return members.get(args.get("id").asText()).state();
      case "member_close": members.remove(args.get("id").asText()).finish(); return null;
      case "copier_open": openCopier(args); return null;
      case "copier_state": return copiers.get(args.get("id").asText()).state();
      case "copier_close": copiers.remove(args.get("id").asText()).finish(); return null;
      default: throw new IllegalArgumentException("unknown op " + op);
    }
  }

  void createTopics(JsonNode topics) throws Exception {
    List<NewTopic> rows = new ArrayList<>();
    for (JsonNode topic : topics) {
      Map<String, String> configs = new HashMap<>();
      topic.get("configs").fields().forEachRemaining(config -> configs.put(config.getKey(), config.getValue().asText()));
      rows.add(new NewTopic(topic.get("name").asText(), topic.get("partitions").asInt(), (short) 1).configs(configs));
    }
    admin.createTopics(rows).all().get(20, TimeUnit.SECONDS);
  }

  void openProducer(JsonNode args) {
    Map<String, Object> options = new HashMap<>(OPTIONS);
    options.put("bootstrap.servers", args.get("bootstrap").isNull() ? bootstrap : args.get("bootstrap").asText());
    options.put("acks", args.get("acks").asText());
    options.put("compression.type", args.get("compression").asText());
    options.put("enable.idempotence", args.get("idempotent").asBoolean());
    options.put("max.block.ms", 30_000);
    if (args.has("request_timeout_ms")) options.put("request.timeout.ms", args.get("request_timeout_ms").asInt());
    if (!args.get("transactional_id").isNull()) {
      options.put("transactional.id", args.get("transactional_id").asText());
      options.put("transaction.timeout.ms", args.get("transaction_timeout_ms").asInt());
    }
    producers.put(args.get("id").asText(), new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer()));
  }

  KafkaProducer<byte[], byte[]> producer(JsonNode args) {
    return producers.get(args.get("id").asText());
  }

  List<Long> send(KafkaProducer<byte[], byte[]> producer, JsonNode rows, boolean wait) throws Exception {
    List<Future<RecordMetadata>> futures = new ArrayList<>();
    for (JsonNode row : rows) {
      List<Header> headers = new ArrayList<>();
      for (JsonNode header : row.get("headers")) headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
      futures.add(producer.send(new ProducerRecord<>(
          row.get("topic").asText(), row.get("partition").asInt(), bytes(row.get("key")), bytes(row.get("value")), headers)));
    }
    if (!wait) return null;
    producer.flush();
    List<Long> offsets = new ArrayList<>();
    for (Future<RecordMetadata> future : futures) offsets.add(future.get(30, TimeUnit.SECONDS).offset());
    return offsets;
  }

  void sendOffsets(JsonNode args) {
    Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
    for (JsonNode row : args.get("offsets"))
      positions.put(new TopicPartition(row.get(0).asText(), row.get(1).asInt()), new OffsetAndMetadata(row.get(2).asLong()));
    ConsumerGroupMetadata group = args.get("member").isNull()
        ? new ConsumerGroupMetadata(args.get("group").asText())
        : members.get(args.get("member").asText()).groupMetadata;
    producer(args).sendOffsetsToTransaction(positions, group);
  }

  static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group, String isolation) {
    return consumer(bootstrap, group, isolation, OPTIONS.get("group.protocol"));
  }

  static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group, String isolation, Object protocol) {
    Map<String, Object> options = new HashMap<>(OPTIONS);
    if (protocol != null) options.put("group.protocol", protocol);
    options.put("bootstrap.servers", bootstrap);
    if (group != null) options.put("group.id", group);
    options.put("isolation.level", isolation);
    options.put("enable.auto.commit", false);
    options.put("auto.offset.reset", "earliest");
    if (!"consumer".equals(protocol)) {  // with it, these are the broker's
      options.put("session.timeout.ms", 10_000);
      options.put("heartbeat.interval.ms", 300);
    }
    options.put("fetch.max.wait.ms", 50);
    return new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  List<Object> read(List<String> topics, String isolation) {
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, null, isolation)) {
      List<TopicPartition> partitions = new ArrayList<>();
      for (String topic : topics)
        consumer.partitionsFor(topic).forEach(info -> partitions.add(new TopicPartition(topic, info.partition())));
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      List<Object> found = new ArrayList<>();
      long deadline = System.nanoTime() + 180_000_000_000L;
      while (partitions.stream().anyMatch(tp -> consumer.position(tp) < ends.get(tp))) {
        if (System.nanoTime() > deadline) throw new IllegalStateException("stuck before " + ends);
        consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(row(record)));
      }
      return found;
    }
  }

  /** The consumer always waits for positions that a transaction still holds; only the admin client reads past them. */
  List<Long> committed(JsonNode args) throws Exception {
    String group = args.get("group").asText();
    List<TopicPartition> partitions = new ArrayList<>();
    for (JsonNode row : args.get("partitions")) partitions.add(new TopicPartition(row.get(0).asText(), row.get(1).asInt()));
    Map<TopicPartition, OffsetAndMetadata> found;
    if (args.get("isolation").asText().equals("read_uncommitted")) {
      found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(20, TimeUnit.SECONDS);
    } else {
      try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, group, "read_committed")) {
        found = consumer.committed(new HashSet<>(partitions));
      }
    }
    List<Long> offsets = new ArrayList<>();
    for (TopicPartition tp : partitions) offsets.add(found.get(tp) == null ? null : found.get(tp).offset());
    return offsets;
  }

  void openMember(JsonNode args) {
    Member member = new Member(bootstrap, args);
    members.put(args.get("id").asText(), member);
    member.start();
  }

  void openCopier(JsonNode args) {
    Copier copier = new Copier(bootstrap, args);
    copiers.put(args.get("id").asText(), copier);
    copier.start();
  }

  static Map<String, Object> row(ConsumerRecord<byte[], byte[]> record) {
    List<List<String>> headers = new ArrayList<>();
    record.headers().forEach(header -> headers.add(Arrays.asList(header.key(), text(header.value()))));
    Map<String, Object> row = new HashMap<>();
    row.put("topic", record.topic());
    row.put("partition", record.partition());
    row.put("offset", record.offset());
    row.put("timestamp", List.of(record.timestampType().id, record.timestamp()));
    row.put("key", text(record.key()));
    row.put("value", text(record.value()));
    row.put("headers", headers);
    return row;
  }

  static byte[] bytes(JsonNode node) {
    return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
  }

  static String text(byte[] data) {
    return data == null ? null : Base64.getEncoder().encodeToString(data);
  }

  static List<String> texts(JsonNode array) {
    List<String> texts = new ArrayList<>();
    array.forEach(node -> texts.add(node.asText()));
    return texts;
  }

  /** A member of a group that polls and commits in its own thread until it is closed. */
  static class Member extends Thread {
    final String bootstrap;
    final JsonNode args;
    final List<Object> records = new ArrayList<>();
    final List<String> errors = new ArrayList<>();
    List<Object> assignment = List.of();
    String failure;
    volatile boolean stopping;
    volatile ConsumerGroupMetadata groupMetadata;

    Member(String bootstrap, JsonNode args) {
      this.bootstrap = bootstrap;
      this.args = args;
      setDaemon(true);
    }

    @Override public void run() {
      Object protocol = args.has("protocol") ? args.get("protocol").asText() : OPTIONS.get("group.protocol");
      try (KafkaConsumer<byte[], byte[]> consumer =
          consumer(bootstrap, args.get("group").asText(), args.get("isolation").asText(), protocol)) {
        List<String> topics = texts(args.get("topics"));
        // A regular expression begins with ^, as in librdkafka.
        if (topics.get(0).startsWith("^")) consumer.subscribe(new SubscriptionPattern(topics.get(0)));
        else consumer.subscribe(topics);
        while (!stopping) {
          ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
          groupMetadata = consumer.groupMetadata();
          List<Object> shares = new ArrayList<>();
          consumer.assignment().forEach(tp -> shares.add(List.of(tp.topic(), tp.partition())));
          synchronized (this) {
            polled.forEach(record -> records.add(row(record)));
            assignment = shares;
          }
          if (!polled.isEmpty()) commit(consumer);
        }
      } catch (Exception thrown) {
        synchronized (this) { failure = thrown.toString(); }
      }
      synchronized (this) { assignment = List.of(); }
    }

    /** A commit that meets a rebalance is refused; the records come again, to whoever owns the partition then. */
    void commit(KafkaConsumer<byte[], byte[]> consumer) {
      try {
        consumer.commitSync();
      } catch (RebalanceInProgressException | CommitFailedException thrown) {
        synchronized (this) { errors.add(thrown.toString()); }
      }
    }

    synchronized Map<String, Object> state() {
      if (failure != null) throw new IllegalStateException(failure);
      return Map.of("assignment", assignment, "records", new ArrayList<>(records), "errors", new ArrayList<>(errors));
    }

    void finish() throws InterruptedException {
      stopping = true;
      join(30_000);
      if (isAlive()) throw new IllegalStateException("the member did not close within 30 s");
      synchronized (this) { if (failure != null) throw new IllegalStateException(failure); }
    }
  }

  /** Copies records to another topic in transactions with its offsets until it is closed, as jsonl.py describes it. */
  static class Copier extends Thread {
    final String bootstrap;
    final JsonNode args;
    final String name;
    final Map<String, Integer> errors = new TreeMap<>();
    int copied, instances;
    String step = "open";
    volatile boolean stopping;
    KafkaProducer<byte[], byte[]> producer;
    KafkaConsumer<byte[], byte[]> consumer;

    interface Step { void run() throws Exception; }

    Copier(String bootstrap, JsonNode args) {
      this.bootstrap = bootstrap;
      this.args = args;
      name = args.get("transactional_id").asText();
      setDaemon(true);
    }

    @Override public void run() {
      while (!stopping) {
        synchronized (this) { instances++; }
        if (attempt("open", this::open)) {
          while (!stopping && copySome()) { }
        }
        attempt("shut", this::shut);
      }
    }

    void open() {
      Map<String, Object> options = new HashMap<>(OPTIONS);
      options.putAll(Map.of("bootstrap.servers", bootstrap, "client.id", name));
      Map<String, Object> reading = new HashMap<>(options);
      options.putAll(Map.of("transactional.id", name, "transaction.timeout.ms", 20_000, "max.block.ms", 30_000));
      producer = new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
      producer.initTransactions();
      String protocol = args.get("protocol").asText();
      reading.putAll(Map.of("group.id", args.get("group").asText(), "group.protocol", protocol, "isolation.level", "read_committed",
          "enable.auto.commit", false, "auto.offset.reset", "earliest", "max.poll.records", 200));
      if (protocol.equals("classic")) reading.putAll(Map.of("session.timeout.ms", 3_000, "heartbeat.interval.ms", 500));
      consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
      consumer.subscribe(List.of(args.get("source").asText()));
    }

    /** Return whether this instance can continue. */
    boolean copySome() {
      List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
      if (!attempt("poll", () -> consumer.poll(Duration.ofMillis(100)).forEach(records::add))) return attempt("rewind", this::rewind);
      if (records.isEmpty()) return true;
      if (!attempt("begin", () -> producer.beginTransaction())) return false;
      if (attempt("send", () -> send(records)) && attempt("send_offsets", () -> sendOffsets(records)) && commit()) {
        synchronized (this) { copied += records.size(); }
        return true;
      }
      return attempt("abort", () -> producer.abortTransaction()) && attempt("rewind", this::rewind);
    }

    /** A commit that timed out may be repeated, and not aborted. */
    boolean commit() {
      boolean[] again = {true};
      while (again[0]) {
        again[0] = false;
        boolean done = attempt("commit", () -> {
          try {
            producer.commitTransaction();
          } catch (org.apache.kafka.common.errors.TimeoutException thrown) {
            again[0] = !stopping;
            throw thrown;
          }
        });
        if (done) return true;
      }
      return false;
    }

    void send(List<ConsumerRecord<byte[], byte[]>> records) {
      for (ConsumerRecord<byte[], byte[]> record : records)
        producer.send(new ProducerRecord<>(args.get("sink").asText(), record.partition(), record.key(), record.value()));
    }

    void sendOffsets(List<ConsumerRecord<byte[], byte[]>> records) {
      Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
      for (ConsumerRecord<byte[], byte[]> record : records)
        positions.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
      producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
    }

    void rewind() {
      Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
      for (TopicPartition place : consumer.assignment())
        consumer.seek(place, committed.get(place) == null ? 0 : committed.get(place).offset());
    }

    void shut() {
      if (consumer != null) consumer.close();
      consumer = null;
      if (producer != null) producer.close(Duration.ofSeconds(5));
      producer = null;
    }

    /** Return whether a step succeeds. */
    boolean attempt(String step, Step work) {
      synchronized (this) { this.step = step; }
      try {
        work.run();
        return true;
      } catch (Exception thrown) {
        synchronized (this) { errors.merge(step + ": " + describe(thrown).get("type"), 1, Integer::sum); }
        System.err.printf("%s %d %s: %s%n", name, System.currentTimeMillis(), step, thrown);
        return false;
      }
    }

    synchronized Map<String, Object> state() {
      return Map.of("copied", copied, "instances", instances, "errors", new TreeMap<>(errors), "step", step);
    }

    void finish() throws InterruptedException {
      stopping = true;
      join(50_000);
      if (isAlive()) throw new IllegalStateException("the copier did not close within 50 s");
    }
  }
}
