import java.io.File;
import java.util.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Lets Apache Kafka's own cleaner, or its retention, through partition directories, at a time that the caller chooses.
 * Run with the jars of Apache Kafka 4.3.1 on the class path:
 *   java -cp 'LIBS/*' CleanLog.java clean NOW_MS DELETE_RETENTION_MS SEGMENT_BYTES DIRECTORY...
 * prints the first offset that was not cleaned, a line for each directory;
 *   java -cp 'LIBS/*' CleanLog.java retain NOW_MS SEGMENT_BYTES (DIRECTORY POLICY RETENTION_MS RETENTION_BYTES START)...
 * first deletes the records below START, and prints the start of the log afterwards.
 */
public class CleanLog {
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        Time time = new FixedTime(Long.parseLong(args[1]));
        List<String> rest = List.of(args).subList(2, args.length);
        if (args[0].equals("clean")) {
            for (String directory : rest.subList(2, rest.size())) clean(directory, rest.get(0), rest.get(1), time);
        } else {
            for (int at = 1; at < rest.size(); at += 5) retain(rest.subList(at, at + 5), rest.get(0), time);
        }
        SCHEDULER.shutdown();
        System.exit(0);
    }

    static UnifiedLog open(String directory, Time time, Map<String, String> config) throws Exception {
        Properties properties = new Properties();
        properties.putAll(config);
        UnifiedLog log = UnifiedLog.create(new File(directory), new LogConfig(properties), 0, 0, SCHEDULER,
            new BrokerTopicStats(), time, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        return log;
    }

    static void clean(String directory, String deleteRetentionMs, String segmentBytes, Time time) throws Exception {
        UnifiedLog log = open(directory, time, Map.of("cleanup.policy", "compact",
            "delete.retention.ms", deleteRetentionMs, "internal.segment.bytes", segmentBytes));
        long limit = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 1 << 16, 1 << 20, 0.9,
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "bytes", time), time, partition -> { });
        System.out.println(cleaner.doClean(new LogToClean(log, 0, limit, false), time.milliseconds()).getKey());
        log.close();
    }

    static void retain(List<String> args, String segmentBytes, Time time) throws Exception {
        UnifiedLog log = open(args.get(0), time, Map.of("cleanup.policy", args.get(1), "retention.ms", args.get(2),
            "retention.bytes", args.get(3), "internal.segment.bytes", segmentBytes));
        log.maybeIncrementLogStartOffset(Long.parseLong(args.get(4)), LogStartOffsetIncrementReason.ClientRecordDeletion);
        log.deleteOldSegments();
        System.out.println(log.logStartOffset());
        log.close();
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
