"""make bench: every benchmark once, as ratios to something measured in the same run."""

from __future__ import annotations

import argparse

from benchmarks import experiment, own_data, serving, shels, threshold
from benchmarks.report import markdown, write

BENCHMARKS = {
    "threshold": threshold.run,
    "shels": shels.run,
    "experiment": experiment.run,
    "own-data": own_data.run,
    "serving": serving.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--write", action="store_true", help="save to results/ and docs/tables/")
    arguments = parser.parse_args()
    for name in arguments.names or BENCHMARKS:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
        rows = BENCHMARKS[name]()
        print(f"{name}\n\n{markdown(rows)}")
        if arguments.write:
            write(name, rows)


if __name__ == "__main__":
    main()
