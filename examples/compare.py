"""Which loss? The same model under several losses, from Python, and the page of the result.

python examples/compare.py [training steps]
"""

import sys
from pathlib import Path

import lossmith
from lossmith.lab.report import read_run, write_report


def main(num_steps: int = 700) -> None:
    folder = Path("runs/example")
    result = lossmith.compare(
        "digits",
        positive_class=8,
        metric="f1",
        losses=["ce_again", "soft_f1", "traced", "ce+traced"],
        num_steps=num_steps,
        folder=folder,
        progress=False,
    )
    for row in result.table:
        print(f"{row.recipe:10} {row.mean:.4f}")
    print(result.verdict)
    print(result.snippet())
    print(write_report([read_run(folder)], folder / "report.html"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
