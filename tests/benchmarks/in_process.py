"""Triptych in process, for server.py: translates a whole file in one call at every line of standard input, prints the seconds.

python tests/benchmarks/in_process.py REPOSITORY TEXTS.JSON --model NAME --limit 255
"""

import json
import sys
import time
from pathlib import Path

import click
from candidate import Decoding
from triptych_peer import TriptychPeer, find_model


@click.command()
@click.argument("repository", type=click.Path(path_type=Path, exists=True))
@click.argument("texts", type=click.Path(path_type=Path, exists=True))
@click.option("--model", default="")
@click.option("--precision", default="int8", show_default=True)
@click.option("--beam", default=1, show_default=True)
@click.option("--limit", default=255, show_default=True, help="The most tokens of a translation.")
@click.option("--exact", is_flag=True, help="No fewer tokens either.")
@click.option("--slots", default=None, type=click.IntRange(min=1))
def main(
    repository: Path, texts: Path, model: str, precision: str, beam: int, limit: int, exact: bool, slots: int | None
) -> None:
    contents = json.loads(texts.read_text(encoding="utf-8"))
    decoding = Decoding(beam, limit, exact)
    peer = TriptychPeer(find_model(repository, model), precision, slots)
    peer.translate(contents, decoding)
    click.echo("ready on standard input")
    for _ in sys.stdin:
        started = time.perf_counter()
        peer.translate(contents, decoding)
        click.echo(time.perf_counter() - started)


if __name__ == "__main__":
    main()
