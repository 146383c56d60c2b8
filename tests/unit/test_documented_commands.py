"""Commands in the docs, the compose file and the Dockerfile exist, with every option and argument they are given."""

import ast
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from ottla.admin.about import own_routes, with_description
from ottla.admin.export import export_route
from ottla.admin.metrics.page import MetricsPage
from ottla.admin.routes import Router
from ottla.broker.config import from_environment, from_flags, load_config
from ottla.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name(path):
    return path.relative_to(ROOT).as_posix()


def blocks(language):
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            if match[1] == language:
                yield pytest.param(match[2], id=f"{name(page)}:{page.read_text()[: match.start()].count(chr(10)) + 1}")


def documented_commands():
    for block in blocks("console"):
        for line in block.values[0].splitlines():
            if line.startswith("$ "):
                yield pytest.param(line.removeprefix("$ "), id=f"{block.id} {line}")


def check_ottla(arguments):
    """Parse as click would, without running the command or asking whether its files exist; check option values too."""
    command, context, words = main, click.Context(main, info_name="ottla", **main.context_settings), list(arguments)
    while isinstance(command, click.Group):
        name = words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, f"{context.command_path} has no command {name}"
        context = click.Context(command, info_name=name, parent=context, **command.context_settings)
    given, rest, _ = command.make_parser(context).parse_args(words)
    assert not rest, f"ottla {arguments[0]} takes no {rest}"
    for parameter in command.params:
        assert not (parameter.required and given.get(parameter.name) is None), f"{parameter.name} is missing"
        # `consume_value` is click's: the given value, else the value of a flag or a default.
        value, source = parameter.consume_value(context, given)
        is_said = source is click.core.ParameterSource.COMMANDLINE or parameter.required
        if is_said and not isinstance(parameter.type, click.Path):
            parameter.process_value(context, value)
    overrides = given.get("override") or []
    loaded = load_config(from_flags(overrides))
    assert not loaded.unknown and not loaded.ignored


def check_environment(variables):
    # An address to listen on is a flag, so what is advertised is checked against one that any name fits.
    loaded = load_config(from_environment({key: str(value) for key, value in variables.items()}))
    assert not loaded.unknown and not loaded.ignored


def check_make(arguments):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {word for word in arguments if "=" not in word} <= set(targets)


def check_pip(arguments):
    assert arguments[0] == "install"
    for extras in re.findall(r"\[([\w,]+)\]", " ".join(arguments)):
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def check_spark_submit(arguments):
    """Check the script, and parse the rest with the parser of `ottla audit`, which takes the same arguments."""
    script = next(word for word in arguments if word.endswith(".py"))
    assert (ROOT / script).is_file(), f"{script} does not exist"
    if script == "ottla/spark_jobs/audit.py":
        check_ottla(["audit", *arguments[arguments.index(script) + 1 :]])


def check_kafka_python(arguments):
    """Let its own parser read the arguments, and exit with the help of that command."""
    tool, *rest = arguments
    shown = subprocess.run([sys.executable, "-m", f"kafka.{tool}", *rest, "--help"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    names = [word for word in rest if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")][:2]
    assert " ".join(names) in shown.stdout
    assert [word for word in rest if word.startswith("--") and word not in shown.stdout] == []


def check_docker(arguments):
    profiles = {profile for service in COMPOSE["services"].values() for profile in service.get("profiles", ())}
    if arguments[1] == "--profile":
        assert arguments[2] in profiles
        arguments = [arguments[0], *arguments[3:]]
    assert arguments[0] == "compose" and arguments[1] in {"up", "run", "down"}
    assert {word for word in arguments[2:] if not word.startswith("-")} <= set(COMPOSE["services"])


def check_python(arguments):
    if arguments[0] == "-m":
        assert importlib.util.find_spec(arguments[1]), f"no module {arguments[1]}"
    else:
        assert (ROOT / arguments[0]).is_file(), f"{arguments[0]} does not exist"


def check_curl(arguments):
    """Check that the admin port has a route for this URL."""
    routes = [*own_routes(None, None, 0, ""), MetricsPage(None, None, 0).route, export_route(None, None, None, {})]
    router = Router(with_description(routes, has_token=False))
    (url,) = (word for word in arguments if word.startswith("http://"))
    router.match("GET", url.removeprefix("http://127.0.0.1:9644"))


CHECKS = {
    "curl": check_curl,
    "docker": check_docker,
    "kafka-python": check_kafka_python,
    "make": check_make,
    "ottla": check_ottla,
    "pip": check_pip,
    "python": check_python,
    "spark-submit": check_spark_submit,
}


@pytest.mark.parametrize("command", list(documented_commands()))
def test_a_command_in_the_docs_exists_with_its_options(command):
    words = shlex.split(command)
    variables = {}
    while "=" in words[0]:
        key, _, value = words.pop(0).partition("=")
        variables[key] = value
    check_environment(variables)
    CHECKS[words[0]](words[1:])


def test_python_in_the_docs_compiles_and_imports_what_exists():
    for block in blocks("python"):
        for node in ast.walk(ast.parse(block.values[0], filename=block.id)):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "ottla":
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == [], block.id


def test_a_recipe_in_the_docs_is_a_test():
    folder = ROOT / "tests" / "wire" / "testkit"
    tests = "\n".join(file.read_text(encoding="utf-8") for file in sorted(folder.glob("test_*.py")))
    page = (ROOT / "docs" / "test-recipes.md").read_text(encoding="utf-8")
    recipes = [match[2] for match in FENCE.finditer(page) if match[1] == "python"]
    assert recipes and [recipe for recipe in recipes if f"\n\n\n{recipe}" not in tests] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_link_in_the_docs_leads_somewhere(page):
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_reached_from_the_index_of_its_folder():
    for index in (ROOT / "docs/README.md", ROOT / "docs/decisions/README.md"):
        text = index.read_text(encoding="utf-8")
        assert [page.name for page in index.parent.glob("*.md") if page != index and f"({page.name})" not in text] == []


def dockerfile_stages():
    """Stage name to its instructions, with those of the stage it builds on in front."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    stages = {}
    for line in text.splitlines():
        if line.startswith("FROM "):
            _, base, _, stage = line.split()
            stages[stage] = list(stages.get(base, []))
        elif line.strip() and not line.startswith("#"):
            stages[stage].append(line.split(maxsplit=1))
    return stages


def last(stage, instruction):
    found = [text for word, text in dockerfile_stages()[stage] if word == instruction]
    return json.loads(found[-1]) if found else []


def check_container_command(words):
    if words[0].startswith("/"):
        # What the image has at that place: `COPY docker/kafka /etc/kafka/docker`.
        copies = [text.split() for word, text in dockerfile_stages()["broker"] if word == "COPY"]
        folder = next(
            source for *sources, place in copies for source in sources if Path(words[0]).parent == Path(place)
        )
        assert (ROOT / folder / Path(words[0]).name).stat().st_mode & 0o111
        check_ottla(["serve", *words[1:]])
    elif words[0] == "spark-class":
        assert words[1].startswith("org.apache.spark.deploy.")
    else:
        CHECKS[words[0]](words[1:])


@pytest.mark.parametrize("stage", [stage for stage in dockerfile_stages() if last(stage, "CMD")])
def test_the_command_of_an_image_exists(stage):
    check_container_command([*last(stage, "ENTRYPOINT"), *last(stage, "CMD")])


@pytest.mark.parametrize("stage", dockerfile_stages())
def test_an_image_copies_what_exists_and_sets_options_that_exist(stage):
    for instruction, text in dockerfile_stages()[stage]:
        if instruction == "COPY":
            *sources, _ = text.split()
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in dockerfile_stages()
                continue
            assert [source for source in sources if not (ROOT / source).exists()] == []
        if instruction == "ENV":
            check_environment(dict(pair.split("=", 1) for pair in shlex.split(text)))


def substitute(environment, variables):
    """Return the environment of a service as compose makes it from these variables."""
    found = {}
    for key, value in environment.items():
        match = re.fullmatch(r"\$\{(\w+):([-+])(.*)\}", str(value))
        given = "" if match is None else variables.get(match[1], "")
        found[key] = value if match is None else (match[3] if bool(given) is (match[2] == "+") else given)
    return found


@pytest.mark.parametrize("service", [name for name, service in COMPOSE["services"].items() if "build" in service])
def test_a_service_of_ours_runs_a_command_that_exists(service):
    described = COMPOSE["services"][service]
    stage = described["build"]["target"]
    check_container_command([*last(stage, "ENTRYPOINT"), *described.get("command", last(stage, "CMD"))])
    check_environment(substitute(described.get("environment", {}), {}))


def test_the_profile_of_zookeeper_counts_producer_ids_there():
    service, page = COMPOSE["services"]["zookeeper"], (ROOT / "docs" / "zookeeper.md").read_text(encoding="utf-8")
    assert service["profiles"] == ["zookeeper"] and service["ports"] == ["127.0.0.1:2181:2181"]
    assert "PRODUCER_ID_MANAGER=zookeeper docker compose --profile zookeeper up" in page
    environment = {key: str(value) for key, value in COMPOSE["services"]["broker"]["environment"].items()}
    alone, beside = (
        load_config(from_environment(substitute(environment, variables)))
        for variables in ({}, {"PRODUCER_ID_MANAGER": "zookeeper"})
    )
    assert (alone.config.producer_id_manager, alone.notes()) == ("metadata", [])
    assert beside.config.producer_id_manager == "zookeeper" and beside.notes() == []
    assert beside.config.zookeeper_connect == "zookeeper:2181/ottla"
    assert set(re.findall(r"localhost:(2181\S*)", page)) == {"2181", "2181/ottla"}


def test_a_service_of_others_has_a_version():
    images = [service["image"] for service in COMPOSE["services"].values() if "build" not in service]
    assert images and all(re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", image) for image in images)


def test_services_depend_on_and_mount_what_the_file_defines():
    for service in COMPOSE["services"].values():
        assert set(service.get("depends_on", {})) <= set(COMPOSE["services"])
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(COMPOSE["volumes"])
        for other, wanted in service.get("depends_on", {}).items():
            assert wanted["condition"] != "service_healthy" or "healthcheck" in COMPOSE["services"][other]
        assert {config["source"] for config in service.get("configs", [])} <= set(COMPOSE["configs"])
    assert [each for each in COMPOSE["configs"].values() if not (ROOT / each["file"]).is_file()] == []
