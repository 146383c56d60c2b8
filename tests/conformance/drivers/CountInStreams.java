import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Kafka Streams with exactly-once processing: BOOTSTRAP SOURCE SINK STATE. Counts the records of each value, until it is killed. */
public class CountInStreams {
    public static void main(String[] arguments) {
        var options = new Properties();
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, "counts-of-" + arguments[1]);
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        options.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        options.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
        options.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        options.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        options.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        options.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "500");
        var text = Serdes.String();
        var builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[1], org.apache.kafka.streams.kstream.Consumed.with(text, text))
            .groupBy((key, value) -> value, Grouped.with(text, text))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(text).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[2], Produced.with(text, text));
        new KafkaStreams(builder.build(), options).start();
    }
}
