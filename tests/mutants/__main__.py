"""Draws mutants of the broker, the protocol and the scan, runs the tests against each, and lists the survivors.

    python -m tests.mutants --count 120 --seed 7

A mutant is one line that is wrong. It is run against the tests that should find it, then against those around them,
until one fails; a mutant that survives all of them shows an untested rule or unnecessary code. The tests run in
copies of the working tree, committed or not.
"""

import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

import click

from ottla.cli.output import output_for
from tests.mutants.nearby import stages
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.trial import COLUMNS, FOUND, Tree, Trial

AREAS = ((2, "ottla/broker/api"), (2, "ottla/broker"), (1, "ottla/admin"), (1, "ottla/protocol"), (1, "ottla/scan"))
"""(share of the mutants, folder). A module of an earlier area is not drawn again for a later one."""


def draw(seed: int, count: int, only: tuple[str, ...] = ()) -> list[Mutant]:
    """Return `count` mutants, the same for the same seed and the same source."""
    chance = random.Random(seed)
    areas = tuple((1, root) for root in only) or AREAS
    parts, taken, drawn = sum(part for part, _ in areas), set[str](), list[Mutant]()
    for at, (part, root) in enumerate(areas):
        wanted = count - len(drawn) if at == len(areas) - 1 else count * part // parts
        paths = [path for path in _modules(root) if path not in taken]
        taken.update(paths)
        every = [mutant for path in paths for mutant in mutants_of(path, Path(path).read_bytes())]
        chance.shuffle(every)
        sound = (mutant for mutant in every if mutant.is_python(Path(mutant.path).read_bytes()))
        drawn += islice(sound, wanted)
    return drawn


def _modules(root: str) -> list[str]:
    return [root] if root.endswith(".py") else sorted(str(each) for each in Path(root).rglob("*.py"))


def copy_tree(target: Path) -> Path:
    """Copy tracked and untracked, not ignored files to a new folder."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(asked, capture_output=True, check=True).stdout.decode().split("\0"):
        if Path(name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, target / name)
    return target


def run_trials(mutants: list[Mutant], jobs: int, most_stages: int, timeout_s: float) -> Iterator[Trial]:
    """Yield the trial of each mutant as it ends."""
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        free = SimpleQueue[Tree]()
        for job in range(jobs):
            free.put(Tree(copy_tree(Path(folder, str(job))), timeout_s))

        def one(mutant: Mutant) -> Trial:
            tree = free.get()
            try:
                return tree.try_mutant(mutant, list(stages(mutant.path))[:most_stages])
            finally:
                free.put(tree)

        for ended in as_completed([pool.submit(one, mutant) for mutant in mutants]):
            yield ended.result()


@click.command(help=__doc__.split("\n\n")[0])
@click.option("--count", default=120, help="How many are drawn.")
@click.option("--seed", default=0, help="Of the drawing.")
@click.option("--jobs", default=2, help="Trees that are worked in at the same time.")
@click.option(
    "--stages", "most_stages", default=4, help="1: the tests of its name, then its importers', its room's, all."
)
@click.option("--timeout-s", default=600.0, help="For one stage; a mutant that hangs is found.")
@click.option("--only", multiple=True, help="Modules or folders to draw from, in the place of all.")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def main(
    count: int, seed: int, jobs: int, most_stages: int, timeout_s: float, only: tuple[str, ...], style: str
) -> None:
    mutants, trials = draw(seed, count, only), list[Trial]()
    for trial in run_trials(mutants, jobs, most_stages, timeout_s):
        trials.append(trial)
        place = f"{trial.mutant.path}:{trial.mutant.line}"
        click.echo(f"{len(trials)}/{len(mutants)} {trial.outcome} {place} {trial.by}", err=True)
    left = [trial.row() for trial in trials if trial.outcome != FOUND]
    output = output_for(style)
    if left:
        output.table("survivors", COLUMNS, left)
    output.line("summary", f"{len(trials) - len(left)} of {len(trials)} mutants of seed {seed} were found")
    output.close()


if __name__ == "__main__":
    main()
