import json
import logging
import re
import socket
import subprocess
import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

from ottla import __version__
from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS, Listener, from_flags, load_config
from ottla.cli.admin import address_for_a_terminal
from ottla.cli.logs import JsonFormatter, KafkaFormatter
from ottla.cli.main import COMMANDS, main
from ottla.cli.output import output_for


@pytest.fixture
def cli(monkeypatch, tmp_path):
    """Run `ottla` in an empty folder, with no KAFKA_ variables but those given."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **environment):
        return CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)

    return run


@pytest.fixture
def serve_calls(monkeypatch, logging_as_before):
    """Replace the broker, and return the arguments that `serve` calls it with."""
    calls = []

    def run(config, **options):
        calls.append(SimpleNamespace(config=config, **options))
        return 3

    server = ModuleType("ottla.broker.server")
    server.run = run
    monkeypatch.setitem(sys.modules, "ottla.broker.server", server)
    return calls


def test_help_imports_nothing_that_is_slow_to_import():
    slow = {"asyncio", "json", "kafka", "ottla.broker", "ottla.protocol", "pyspark", "uvloop"}
    script = (
        "import sys; from ottla.cli.main import main; main(['--help'], standalone_mode=False); "
        f"print(sorted({slow} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "[]"
    assert all(f"  {name}" in told for name in COMMANDS)


def test_help_shows_for_each_command_the_line_that_the_command_has(cli):
    for name, (module, line) in COMMANDS.items():
        assert getattr(import_module(module), name.replace("-", "_")).help.splitlines()[0] == line
        assert cli(name, "--help").exit_code == 0


def test_an_unknown_command_is_refused(cli):
    assert cli("swerve").exit_code == 2
    told = cli("--version").output
    build = "compiled engine|compiled walk over records|plain Python"
    assert re.fullmatch(rf"ottla, version {__version__} \(CPython [\d.]+\S*, ({build})\)\n", told)


def test_serve_passes_options_and_configuration_to_the_broker(cli, serve_calls, tmp_path):
    (tmp_path / "server.properties").write_text("num.partitions=2\nlog.dirs=theirs\nmessage.max.bytes=2000\n")
    arguments = "serve server.properties --data-dir mine --listen 127.0.0.1:0 --override num.partitions=3"
    arguments += " --ready-file ready --truncate-damaged ledger-0 --truncate-damaged audit-log-12"
    result = cli(*arguments.split(), KAFKA_MESSAGE_MAX_BYTES="3000")
    assert result.exit_code == 3
    (call,) = serve_calls
    assert (call.config.log_dirs, call.config.num_partitions, call.config.message_max_bytes) == ("mine", 3, 3000)
    assert call.config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 0),)
    assert (call.ready_file, call.truncate_damaged) == ("ready", frozenset({"ledger-0", "audit-log-12"}))
    assert not call.kafka_lines


def test_serve_without_arguments_keeps_its_log_in_the_folder_it_was_started_in(cli, serve_calls):
    cli("serve")
    assert serve_calls[0].config.log_dirs == "ottla-data"
    assert (serve_calls[0].ready_file, serve_calls[0].truncate_damaged) == (None, frozenset())


def test_serve_logs_ignored_options_once(cli, serve_calls):
    result = cli(
        "serve", "--override", "num.io.threads=8", "--override", "log.cleaner.threads=1", KAFKA_NUM_PARTITION="4"
    )
    lines = result.stderr.splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "WARN Known to Kafka, ignored by Ottla: log.cleaner.threads, num.io.threads (ottla.broker.config)",
        "WARN Unknown options, ignored: num.partition (did you mean num.partitions?) (ottla.broker.config)",
    ]


@pytest.mark.parametrize("command", ["serve", "configs"])
def test_a_flag_that_names_no_option_is_one_line_and_exit_code_2(cli, serve_calls, command):
    result = cli(command, "--override", "num.partition=4")
    assert (result.exit_code, result.stdout, serve_calls) == (2, "", [])
    assert result.stderr == "ottla: --override num.partition=4: there is no such option; did you mean num.partitions?\n"


@pytest.mark.parametrize("said", ["--data-dir=mine log.dirs=theirs", "--listen=localhost:0 listeners=PLAINTEXT://:0"])
def test_an_option_set_by_two_flags_is_refused(cli, said):
    flag, override = said.split()
    result = cli("configs", flag, "--override", override)
    assert result.exit_code == 2
    name = flag.split("=")[0]
    assert result.stderr == f"ottla: --override {override}: {name} sets this already; give one of the two\n"


@pytest.mark.parametrize("command", ["serve", "configs"])
def test_an_impossible_value_is_one_line_and_exit_code_2(cli, command):
    result = cli(command, KAFKA_NUM_PARTITIONS="0")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "ottla: num.partitions=0 (environment KAFKA_NUM_PARTITIONS): must be a whole number from 1 to 2147483647\n"
    )


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--admin-listen 0.0.0.0:0", "--admin-listen 0.0.0.0:0: other machines can reach this address"),
        ("--admin-listen :0", "--admin-listen :0: other machines can reach this address"),
        ("--admin-listen 9644", "--admin-listen 9644: must be HOST:PORT, such as 127.0.0.1:9644 or [::1]:0"),
        ("--admin-token-file token", "--admin-token-file needs --admin-listen"),
        ("--admin-listen [::1]:0 --admin-token-file nowhere", "--admin-token-file nowhere: No such file or directory"),
        ("--admin-listen [::1]:0 --admin-token-file short", "--admin-token-file short: must hold 16 ASCII characters"),
        ("--admin-listen [::1]:0 --admin-token-file blank", "--admin-token-file blank: must hold 16 ASCII characters"),
        ("--admin-listen [::1]:0 --admin-token-file .", "--admin-token-file .: is a directory"),
    ],
)
def test_an_admin_port_that_may_not_be_is_one_line_and_exit_code_2(cli, serve_calls, tmp_path, flags, told):
    (tmp_path / "short").write_text("secret")
    (tmp_path / "blank").write_text("correct horse battery staple")
    result = cli("serve", *flags.split())
    assert (result.exit_code, result.stdout, serve_calls) == (2, "", [])
    assert result.stderr.startswith(f"ottla: {told}") and result.stderr.count("\n") == 1
    assert not (tmp_path / "ottla-data").exists()


@pytest.mark.parametrize("listen", ["9092", "127.0.0.1", "127.0.0.1:99999", "::1:9092", "a:1,B://b:2"])
def test_an_address_that_is_none_is_refused(cli, listen):
    result = cli("serve", "--listen", listen)
    assert result.exit_code == 2
    must_be = "must be HOST:PORT, such as 127.0.0.1:9092 or [::1]:0"
    assert result.stderr == f"ottla: --listen {listen}: {must_be}\n"


def test_a_damaged_partition_must_be_named_by_topic_and_number(cli):
    result = cli("serve", "--truncate-damaged", "ledger")
    assert result.exit_code == 2
    assert "ledger is not TOPIC-PARTITION" in result.stderr


def test_a_properties_file_that_java_wrote_in_latin_1_is_read(cli, serve_calls, tmp_path):
    (tmp_path / "latin.properties").write_bytes("log.dirs=caf\xe9".encode("latin-1"))
    cli("serve", "latin.properties")
    assert serve_calls[0].config.log_dirs == "café"


def test_configs_lists_every_option_with_its_origin(cli):
    result = cli("configs", "--format", "json", KAFKA_NUM_PARTITIONS="4")
    document = json.loads(result.stdout)
    assert [row["option"] for row in document["options"]] == [option.key for option in BROKER_OPTIONS]
    assert [row["config"] for row in document["topic configs"]] == [option.key for option in TOPIC_OPTIONS]
    (row,) = [row for row in document["options"] if row["option"] == "num.partitions"]
    assert (row["value"], row["default"], row["origin"]) == ("4", "1", "environment KAFKA_NUM_PARTITIONS")
    assert all(row["meaning"] for row in document["options"])
    text = cli("configs").stdout
    assert all(f"  {option.key} " in text for option in (*BROKER_OPTIONS, *TOPIC_OPTIONS))


JOBS = ("audit", "alert", "export")


@pytest.fixture
def job(monkeypatch):
    """Replace a job: `job(name)` returns (the module with its `main`, the arguments that it was run with)."""

    def stand_in(name, end=lambda: 4):
        given = []
        module = import_module(f"ottla.spark_jobs.{name}")
        monkeypatch.setattr(module, "run", lambda arguments: given.append(arguments) or end())
        return module, given

    return stand_in


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("audit", ["a", "--format", "json", "b", "--all", "--copies", "x=y,key", "--copies", "y=z,header:id"]),
        ("alert", ["s3://bucket/log", "--interval", "0.5", "--once"]),
        ("export", ["log", "out", "--columns", "offset,key", "--overwrite"]),
    ],
)
def test_a_job_is_run_with_the_same_arguments_by_the_command_and_by_spark_submit(cli, job, name, arguments):
    module, given = job(name)
    assert cli(name, *arguments).exit_code == 4
    assert module.main(arguments) == 4
    assert given[0] == given[1]


def test_the_arguments_of_an_audit_have_the_values_that_were_given_or_the_documented_ones(cli, job):
    _, given = job("audit")
    cli("audit", "a", "b", "--copies", "x=y,key", "--producer-id-expiration-ms", "7")
    (arguments,) = given
    assert (arguments.directories, arguments.copies, arguments.run_on) == (("a", "b"), ("x=y,key",), "auto")
    assert (arguments.transactional_id_expiration_ms, arguments.producer_id_expiration_ms) == ("604800000", "7")
    assert (arguments.format, arguments.fail_on, arguments.output_format, arguments.all) == (
        "text",
        "warning",
        None,
        False,
    )


@pytest.mark.parametrize("name", JOBS)
def test_an_interrupted_job_prints_one_line_and_exits_with_130(cli, job, name):
    def interrupt():
        raise KeyboardInterrupt

    job(name, interrupt)
    result = cli(name, "log", *(["out"] if name == "export" else []))
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", f"ottla {name}: interrupted\n")


@pytest.mark.parametrize("name", JOBS)
def test_a_job_answers_help_and_bad_usage_without_being_run(cli, job, name, capsys):
    module, given = job(name)
    assert cli(name, "--help").exit_code == cli(name, "-h").exit_code == module.main(["--help"]) == 0
    assert f"Usage: ottla {name} [OPTIONS] DIR" in capsys.readouterr().out
    for arguments in ([], ["--no-such", "data"], ["data", "--format", "xml"]):
        assert cli(name, *arguments).exit_code == module.main(arguments) == 2
    assert given == []


@pytest.mark.parametrize("given", ["0", "-1", "soon", "1.5"])
def test_an_expiration_that_is_no_number_of_milliseconds_is_refused(cli, job, given):
    result = cli("audit", "data", "--producer-id-expiration-ms", given)
    assert result.exit_code == 2
    assert f"--producer-id-expiration-ms: {given}: not a number of milliseconds above 0" in result.stderr


def test_log_lines_have_kafkas_pattern_or_are_json():
    record = logging.LogRecord("ottla.server", logging.INFO, "", 0, "serving %s", ("here",), None)
    record.created, record.msecs = 1_700_000_000.123, 123
    assert KafkaFormatter().format(record).endswith(",123] INFO serving here (ottla.server)")
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "2023-11-14T22:13:20.123+00:00",
        "level": "INFO",
        "logger": "ottla.server",
        "message": "serving here",
    }


def test_a_failure_in_the_json_log_carries_its_traceback():
    try:
        raise OSError("disk is gone")
    except OSError:
        record = logging.LogRecord("ottla", logging.ERROR, "", 0, "stopped", (), sys.exc_info())
    assert "OSError: disk is gone" in json.loads(JsonFormatter().format(record))["exception"]


def test_a_text_table_aligns_words_left_and_numbers_right(capsys):
    output = output_for("text")
    output.table("partitions", ("partition", "records", "open"), [("ledger-0", 7, None), ("audit-log-0", 1200, True)])
    output.close()
    assert capsys.readouterr().out.splitlines() == [
        "partitions:",
        "  partition    records  open",
        "  -----------  -------  ----",
        "  ledger-0           7  -",
        "  audit-log-0     1200  yes",
    ]


def test_a_json_document_has_one_list_for_each_table(capsys):
    output = output_for("json")
    output.table("partitions", ("partition", "lag"), [("ledger-0", None)])
    output.table("open", ("id",), [])
    output.close()
    assert json.loads(capsys.readouterr().out) == {"partitions": [{"partition": "ledger-0", "lag": None}], "open": []}


@pytest.mark.parametrize(("name", "meant"), [("auditt", "audit"), ("serv", "serve"), ("transaction", None)])
def test_an_unknown_command_names_the_one_that_is_most_like_it(cli, name, meant):
    result = cli(name)
    hint = f". Did you mean {meant!r}?" if meant else "."
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"Error: No such command {name!r}{hint}"


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr("ottla.cli.admin.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))


def admin_for(*settings):
    options = ["listeners=PLAINTEXT://127.0.0.1:0", *settings]
    loaded = load_config(from_flags(options))
    return address_for_a_terminal(loaded.config)


def test_a_broker_on_a_terminal_has_an_admin_port_on_loopback(terminal):
    host, _, port = admin_for().rpartition(":")
    assert (host, port in ("9644", "0")) == ("127.0.0.1", True)


def test_a_taken_admin_port_is_replaced_by_a_free_one(terminal, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr("ottla.cli.admin._PORT", server.getsockname()[1])
        assert admin_for() == "127.0.0.1:0"


@pytest.mark.parametrize(
    "setting",
    [
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
    ],
)
def test_a_broker_with_logins_has_no_admin_port_by_itself(terminal, setting):
    assert admin_for(setting, "sasl.enabled.mechanisms=SCRAM-SHA-256") == "none"


def test_a_broker_without_a_terminal_has_no_admin_port_by_itself(cli, serve_calls):
    cli("serve", "--listen", "127.0.0.1:0", "--data-dir", "new")
    cli("serve", "--listen", "127.0.0.1:0", "--data-dir", "new", "--admin-listen", "none")
    assert [call.admin for call in serve_calls] == [None, None]
