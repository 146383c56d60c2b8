import java.io.ByteArrayInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Properties;
import java.util.TreeMap;

/** Prints what java.util.Properties reads of each line of a file (bytes in hex), as JSON; null where it refuses. */
class ReadProperties {
    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            Properties read = new Properties();
            try {
                read.load(new ByteArrayInputStream(HexFormat.of().parseHex(line)));
            } catch (IllegalArgumentException refused) {
                out.append("null\n");
                continue;
            }
            String separator = "{";
            if (read.isEmpty()) out.append("{");
            for (var entry : new TreeMap<>(read).entrySet()) {
                out.append(separator).append(quoted(entry.getKey())).append(":").append(quoted(entry.getValue()));
                separator = ",";
            }
            out.append("}\n");
        }
        System.out.write(out.toString().getBytes("UTF-8"));
        System.out.flush();
    }

    private static String quoted(Object text) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : text.toString().toCharArray()) out.append(String.format("\\u%04x", (int) one));
        return out.append("\"").toString();
    }
}
