import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job of Flink that copies records with exactly-once delivery: BOOTSTRAP SOURCE SINK FAIL_AT. The job fails once, at
 * the record with this value, and Flink restores its last checkpoint. It ends at the end that the source has at the start.
 */
public class CopyInFlink {
    static volatile boolean failed;

    public static void main(String[] arguments) throws Exception {
        var options = new Configuration();
        options.setString("restart-strategy.type", "fixed-delay");
        options.setString("restart-strategy.fixed-delay.attempts", "3");
        options.setString("restart-strategy.fixed-delay.delay", "100 ms");
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, options);
        environment.enableCheckpointing(300);
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics(arguments[1])
            .setGroupId("flink")
            .setProperty("isolation.level", "read_committed")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-" + arguments[1])
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(arguments[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        var failAt = arguments[3];
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source")
            .map(value -> {
                Thread.sleep(2);
                if (value.equals(failAt) && !failed) {
                    failed = true;
                    throw new IllegalStateException("fails once, as it should");
                }
                return value;
            })
            .sinkTo(sink);
        environment.execute();
        System.out.println(failed ? "copied after a failure" : "copied");
    }
}
