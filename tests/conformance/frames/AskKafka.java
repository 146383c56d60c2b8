import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * What Kafka's own readers say of one batch in each of many partitions: AskKafka dump DIR TOPIC COUNT | consume
 * BOOTSTRAP TOPIC COUNT. A line before and after each partition tells whose output stands between.
 */
public class AskKafka {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        for (int partition = 0; partition < count; partition++) {
            System.out.println("@begin " + partition);
            String failure = "";
            try {
                if (args[0].equals("dump")) {
                    dump(new File(args[1], args[2] + "-" + partition));
                } else {
                    consume(args[1], new TopicPartition(args[2], partition));
                }
            } catch (Throwable thrown) {
                Throwable cause = thrown.getCause() == null ? thrown : thrown.getCause();
                failure = thrown.getClass().getSimpleName() + " / " + cause.getClass().getSimpleName() + ": " + cause.getMessage();
            }
            System.out.println();
            System.out.println("@end " + failure.replace('\n', ' '));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void dump(File folder) throws Exception {
        org.apache.kafka.tools.DumpLogSegments.main(new String[] {
            "--deep-iteration", "--print-data-log", "--files", new File(folder, "00000000000000000000.log").toString()});
    }

    /** Prints `record OFFSET SIZE CRC` of the value for what a consumer is given before it fails, or until the end. */
    private static void consume(String bootstrap, TopicPartition partition) throws InterruptedException {
        Map<String, Object> options = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "max.partition.fetch.bytes", 1 << 26);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>(List.of(partition));
            consumer.assign(all);
            consumer.seek(partition, 0);
            long end = 0;
            long deadline = System.currentTimeMillis() + 60_000;
            while ((end = consumer.endOffsets(all).get(partition)) == 0) { // until the broker has become its leader
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("nothing to read");
                }
                Thread.sleep(50);
            }
            deadline = System.currentTimeMillis() + 5_000;
            while (consumer.position(partition) < end) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("stands at " + consumer.position(partition));
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    java.util.zip.CRC32 crc = new java.util.zip.CRC32();
                    crc.update(record.value());
                    System.out.println("record " + record.offset() + " " + record.value().length + " " + crc.getValue());
                }
            }
        }
    }
}
