// The same as copying_member.py with Apache Kafka's Java client: CopyingMember BOOTSTRAP GROUP TRANSACTIONAL-ID TOPIC...

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.*;

public class CopyingMember {
  public static void main(String[] args) throws Exception {
    String name = args[2];
    List<String> topics = List.of(args).subList(3, args.length);
    Map<String, Object> common = Map.of(
        "bootstrap.servers", args[0], "client.id", name, "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 250);
    Map<String, Object> writing = new HashMap<>(common);
    writing.putAll(Map.of("transactional.id", name, "transaction.timeout.ms", 5000, "linger.ms", 0, "max.block.ms", 20_000));
    Map<String, Object> reading = new HashMap<>(common);
    reading.putAll(Map.of("group.id", args[1], "group.protocol", "consumer", "isolation.level", "read_committed",
        "enable.auto.commit", false, "auto.offset.reset", "earliest", "max.poll.records", 20, "fetch.max.wait.ms", 50));
    int code = 0;
    KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
      Thread main = Thread.currentThread();
      Runtime.getRuntime().addShutdownHook(new Thread(() -> {
        consumer.wakeup();
        try { main.join(10_000); } catch (InterruptedException ignored) { }
      }));
      producer.initTransactions();
      consumer.subscribe(topics);
      while (true) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        if (!records.isEmpty()) System.out.println(String.join(" ", copy(producer, consumer, records)));
      }
    } catch (WakeupException leaving) {
      consumer.close();
    } catch (Throwable thrown) {
      thrown.printStackTrace();
      consumer.close();
      code = 1;
    }
    Runtime.getRuntime().halt(code);
  }

  /** Copy the records in a transaction and return the names of their partitions. */
  static List<String> copy(
      KafkaProducer<byte[], byte[]> producer, KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records) {
    producer.beginTransaction();
    List<String> names = new ArrayList<>();
    Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
    for (TopicPartition partition : records.partitions()) {
      for (ConsumerRecord<byte[], byte[]> record : records.records(partition)) {
        producer.send(new ProducerRecord<>("copy-of-" + record.topic(), record.partition(), null, record.value()));
        positions.put(partition, new OffsetAndMetadata(record.offset() + 1));
      }
      names.add(partition.toString());
    }
    producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
    producer.commitTransaction();
    return names;
  }
}
