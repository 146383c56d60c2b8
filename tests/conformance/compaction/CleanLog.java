import java.io.File;
import java.util.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Lets Apache Kafka's own cleaner through partition directories, at a time that the caller chooses.
 * Run with the jars of Apache Kafka 4.3.1 on the class path:
 *   java -cp 'LIBS/*' CleanLog.java NOW_MS DELETE_RETENTION_MS SEGMENT_BYTES DIRECTORY...
 * Prints the first offset that was not cleaned, a line for each directory.
 */
public class CleanLog {
    public static void main(String[] args) throws Exception {
        long now = Long.parseLong(args[0]);
        Time time = new FixedTime(now);
        Properties properties = new Properties();
        properties.put("cleanup.policy", "compact");
        properties.put("delete.retention.ms", args[1]);
        properties.put("internal.segment.bytes", args[2]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (String directory : List.of(args).subList(3, args.length)) {
            UnifiedLog log = UnifiedLog.create(new File(directory), new LogConfig(properties), 0, 0, scheduler,
                new BrokerTopicStats(), time, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
                new LogDirFailureChannel(1), true, Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            long limit = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 1 << 16, 1 << 20, 0.9,
                new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "bytes", time), time, partition -> { });
            System.out.println(cleaner.doClean(new LogToClean(log, 0, limit, false), now).getKey());
            log.close();
        }
        scheduler.shutdown();
        System.exit(0);
    }

    record FixedTime(long milliseconds) implements Time {
        public long nanoseconds() {
            return System.nanoTime();
        }

        public void sleep(long ms) {
            Utils.sleep(ms);
        }

        public void waitObject(Object object, java.util.function.Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }
}
