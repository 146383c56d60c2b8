import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Writes messages with Apache Kafka's own serialisation: one line each, "key version request|response hex of the body".
 * Fields get random values where the version can carry them. The arguments are API keys; the seed is fixed.
 * Run with the jars of Apache Kafka 4.3.1 on the class path: java -cp 'LIBS/*' WriteMessages.java 0 1 2 ...
 */
public class WriteMessages {
    static final Random random = new Random(7);

    public static void main(String[] args) throws Exception {
        for (String arg : args) {
            ApiKeys key = ApiKeys.forId(Integer.parseInt(arg));
            for (short version = key.oldestVersion(); version <= key.latestVersion(); version++) {
                for (int sample = 0; sample < 2; sample++) {
                    print(key, version, "request", key.messageType.newRequest());
                    print(key, version, "response", key.messageType.newResponse());
                }
            }
        }
    }

    static void print(ApiKeys key, short version, String kind, ApiMessage message) throws Exception {
        fill(message, version);
        byte[] bytes = bytesOf(message, version);
        System.out.println(key.id + " " + version + " " + kind + " " + HexFormat.of().formatHex(bytes));
    }

    static byte[] bytesOf(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    /** Give every field a random value, and put back the default where this version cannot carry it. */
    static void fill(Message message, short version) throws Exception {
        for (Field field : message.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) || field.getName().startsWith("_")
                    || field.getName().equals("next") || field.getName().equals("prev")) continue;
            field.setAccessible(true);
            Object before = field.get(message);
            try {
                field.set(message, value(field, before, version));
                bytesOf(message, version);
            } catch (RuntimeException unsupported) {
                field.set(message, before);
            }
        }
    }

    static Object value(Field field, Object before, short version) throws Exception {
        Class<?> type = field.getType();
        if (!type.isPrimitive() && type != Uuid.class && random.nextInt(4) == 0) return null;
        if (type == boolean.class) return random.nextBoolean();
        if (type == byte.class) return (byte) random.nextInt();
        if (type == short.class) return (short) random.nextInt();
        if (type == int.class) return field.getName().equals("port") ? random.nextInt(65536) : random.nextInt();
        if (type == long.class) return random.nextLong();
        if (type == double.class) return random.nextDouble();
        if (type == Uuid.class) return random.nextInt(3) == 0 ? Uuid.ZERO_UUID : uuid();
        if (type == String.class) return text();
        if (type == byte[].class) return text().getBytes(StandardCharsets.UTF_8);
        if (type == ByteBuffer.class) return ByteBuffer.wrap(text().getBytes(StandardCharsets.UTF_8));
        if (type.getSimpleName().equals("BaseRecords")) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(text().getBytes(StandardCharsets.UTF_8)));
        }
        if (Message.class.isAssignableFrom(type)) return filled(type, version);
        if (Collection.class.isAssignableFrom(type)) return collection(field, before, version);
        throw new IllegalStateException("no value for " + field);
    }

    @SuppressWarnings("unchecked")
    static Object collection(Field field, Object before, short version) throws Exception {
        Type generic = field.getGenericType();
        if (!(generic instanceof ParameterizedType)) generic = field.getType().getGenericSuperclass();
        Class<?> element = (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
        Collection<Object> values = field.getType() == List.class
            ? new ArrayList<>()
            : (Collection<Object>) field.getType().getDeclaredConstructor().newInstance();
        int count = random.nextInt(4);
        for (int i = 0; i < count; i++) values.add(element(element, version));
        return values;
    }

    static Object element(Class<?> type, short version) throws Exception {
        if (type == String.class) return text();
        if (type == Integer.class) return random.nextInt();
        if (type == Byte.class) return (byte) random.nextInt();
        if (type == Short.class) return (short) random.nextInt();
        if (type == Long.class) return random.nextLong();
        if (type == Uuid.class) return uuid();
        return filled(type, version);
    }

    static Object filled(Class<?> type, short version) throws Exception {
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        fill(message, version);
        return message;
    }

    static Uuid uuid() {
        return new Uuid(random.nextLong(), random.nextLong());
    }

    static String text() {
        String[] texts = {"", "t", "payments", "gr\u00fc\u00dfe-\u6f22\u5b57", "x".repeat(130)};
        return texts[random.nextInt(texts.length)];
    }
}
