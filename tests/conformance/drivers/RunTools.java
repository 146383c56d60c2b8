import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs tools of Kafka in one JVM: one for each line of the input, with its class and its arguments between tabs. The
 * output of each, with its errors, ends with a line of "---" and the exit code.
 */
public class RunTools {
    static class Exited extends RuntimeException {
        final int code;

        Exited(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] unused) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new Exited(code); });
        System.setErr(System.out);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            var words = line.split("\t");
            System.out.println("--- " + run(words[0], Arrays.copyOfRange(words, 1, words.length)));
            System.out.flush();
        }
    }

    static int run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (error.getCause() instanceof Exited exited) {
                return exited.code;
            }
            error.getCause().printStackTrace(System.out);
            return 1;
        }
        return 0;
    }
}
