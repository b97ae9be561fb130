"""Fetch one file: python3 fetch.py OUTPUT SHA256 URL...; the first address that has it wins.

An address with something else, such as an attacked or half-updated mirror, is passed over.

mirror://debian/ and mirror://debian-security/ mean the mirrors that this machine's apt uses.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

ATTEMPTS = 3
TIMEOUT_SECONDS = 60


def mirrors(archive: str) -> list[str]:
    """The addresses of one of Debian's archives in sources.list and sources.list.d (both formats)."""
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(
        place.read_text() for place in places if place.suffix in {".list", ".sources"} and place.exists()
    )
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = [url.rstrip("/") for line in lines for url in re.findall(r"https?://\S+", line)]
    return list(dict.fromkeys(url for url in found if url.endswith(f"/{archive}")))


def without_password(text: str) -> str:
    """As it may be shown: addresses of apt's mirrors may hold a user and a password."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def addresses(url: str) -> list[str]:
    if not url.startswith("mirror://"):
        return [url]
    archive, _, path = url.removeprefix("mirror://").partition("/")
    return [f"{mirror}/{path}" for mirror in mirrors(archive)]


def fetch(url: str, sha256: str, output: Path) -> str:
    """Fetch to `output`; return what went wrong, or nothing."""
    for attempt in range(ATTEMPTS):
        time.sleep(attempt)
        try:
            # Any scheme: the address comes from the locks, and what arrives is checked against its hash.
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, output.open("wb") as file:  # noqa: S310
                shutil.copyfileobj(answer, file, 1 << 20)
        except HTTPError as error:
            return f"{url}: {error}"
        except OSError as error:
            problem = f"{url}: {error}"
        else:
            return differs(url, sha256, output)
    return problem


def differs(url: str, sha256: str, output: Path) -> str:
    with output.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return "" if found == sha256 else f"{url}: other bytes arrived, with the sha256 {found}"


def main() -> int:
    output, sha256 = Path(sys.argv[1]), sys.argv[2]
    problems = []
    for url in (address for given in sys.argv[3:] for address in addresses(given)):
        if not (problem := fetch(url, sha256, output)):
            return 0
        problems.append(problem)
    output.unlink(missing_ok=True)
    sys.stderr.write(without_password("\n".join(problems)) or "apt has no mirror of Debian's archive.")
    sys.stderr.write("\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
