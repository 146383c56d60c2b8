import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Writes records with Apache Kafka's own serialisation and says how its tools print them: one line each,
 * "metadata|control|subscription|assignment type version hex json". Fields get random values; the seed is fixed.
 * Run with WriteMessages.java of tests/wire and the jars of Apache Kafka 4.3.1 on the class path.
 */
public class WriteRecords {
    static final int SAMPLES = 6;

    public static void main(String[] args) throws Exception {
        for (MetadataRecordType type : MetadataRecordType.values()) {
            for (short version = type.lowestSupportedVersion(); version <= type.highestSupportedVersion(); version++) {
                for (int sample = 0; sample < SAMPLES; sample++) metadata(type, version, sample);
            }
        }
        for (int sample = 0; sample < SAMPLES; sample++) {
            LeaderChangeMessage leader = made(new LeaderChangeMessage(), sample).setVersion((short) 0);
            control(ControlRecordType.LEADER_CHANGE, leader, LeaderChangeMessageJsonConverter.write(leader, (short) 0));
            SnapshotHeaderRecord header = made(new SnapshotHeaderRecord(), sample).setVersion((short) 0);
            control(ControlRecordType.SNAPSHOT_HEADER, header, SnapshotHeaderRecordJsonConverter.write(header, (short) 0));
            KRaftVersionRecord level = made(new KRaftVersionRecord(), sample).setVersion((short) 0);
            control(ControlRecordType.KRAFT_VERSION, level, KRaftVersionRecordJsonConverter.write(level, (short) 0));
            VotersRecord voters = made(new VotersRecord(), sample).setVersion((short) 0);
            control(ControlRecordType.KRAFT_VOTERS, voters, VotersRecordJsonConverter.write(voters, (short) 0));
        }
        SnapshotFooterRecord footer = new SnapshotFooterRecord();
        control(ControlRecordType.SNAPSHOT_FOOTER, footer, SnapshotFooterRecordJsonConverter.write(footer, (short) 0));
        for (short version = 0; version <= 3; version++) {
            for (int sample = 0; sample < SAMPLES; sample++) consumer(version, sample);
        }
    }

    /** The first sample has the defaults. */
    static <T extends Message> T made(T message, int sample) throws Exception {
        if (sample > 0) WriteMessages.fill(message, (short) 0);
        return message;
    }

    static void metadata(MetadataRecordType type, short version, int sample) throws Exception {
        ApiMessage message = type.newMetadataRecord();
        if (sample > 0) WriteMessages.fill(message, version);
        MetadataRecordSerde serde = new MetadataRecordSerde();
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ApiMessageAndVersion both = new ApiMessageAndVersion(message, version);
        ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(both, cache));
        serde.write(both, cache, new ByteBufferAccessor(buffer));
        print("metadata", type.toString(), version, buffer.array(), MetadataJsonConverters.writeJson(message, version));
    }

    static void control(ControlRecordType type, Message message, JsonNode json) {
        print("control", String.valueOf(type.type()), (short) 0, WriteMessages.bytesOf(message, (short) 0), json);
    }

    static void consumer(short version, int sample) throws Exception {
        ConsumerProtocolSubscription subscription = new ConsumerProtocolSubscription();
        ConsumerProtocolAssignment assignment = new ConsumerProtocolAssignment();
        if (sample > 0) {
            WriteMessages.fill(subscription, version);
            WriteMessages.fill(assignment, version);
        }
        print("subscription", "consumer", version, versioned(subscription, version),
            ConsumerProtocolSubscriptionJsonConverter.write(subscription, version));
        print("assignment", "consumer", version, versioned(assignment, version),
            ConsumerProtocolAssignmentJsonConverter.write(assignment, version));
    }

    static byte[] versioned(Message message, short version) {
        byte[] content = WriteMessages.bytesOf(message, version);
        return ByteBuffer.allocate(2 + content.length).putShort(version).put(content).array();
    }

    static void print(String kind, String type, short version, byte[] bytes, JsonNode json) {
        System.out.println(String.join(" ", kind, type, "" + version, HexFormat.of().formatHex(bytes), json.toString()));
    }
}
