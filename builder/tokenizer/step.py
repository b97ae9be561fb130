"""The step that gives a model the tokenizer.json to serve."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from tokenizers import Tokenizer

from builder.convert import run_child
from builder.tokenizer.configured import configured
from builder.tokenizer.settings import TOKENIZER
from shared.errors import TokenizerNotConverted
from shared.layout import Layout
from shared.logs import get_logger

if TYPE_CHECKING:
    from builder.step import Build, Model
    from shared.progress import StepProgress

_log = get_logger()

_SHOWN_LENGTH = 40


@dataclass(frozen=True, slots=True)
class MakeTokenizer:
    """Give `Build.model` the tokenizer.json that transformers would make of all files of its tokenizer, and
    what has to be beside it.
    """

    name: ClassVar[str] = "tokenizer"

    def run(self, build: Build, progress: StepProgress) -> None:  # noqa: ARG002 - some seconds
        """Raises TokenizerNotConverted, TokenizerFilesDisagree, CheckpointInvalid, NotEnoughSpace, and
        PartNotInstalled when the converter's environment is missing.
        """
        assert build.model is not None
        if (build.model.path / TOKENIZER).exists():
            self._configure(build, build.model)
        else:
            self._convert(build, build.model)

    def _configure(self, build: Build, model: Model) -> None:
        """Apply what the files beside tokenizer.json say, to a copy of it."""
        if (text := configured(model.path)) is None:
            return
        folder = _own_folder(build)
        (folder / TOKENIZER).unlink()  # may be a link to the model's own
        (folder / TOKENIZER).write_text(text, encoding="utf-8")
        _log.info("tokenizer.json changed to what the files beside it say", model=model.name)
        build.model = replace(model, path=folder)

    def _convert(self, build: Build, model: Model) -> None:
        with TemporaryDirectory(prefix="tokenizer-", dir=build.work_dir) as made:
            command = [str(Layout.current().tokenizer_converter), "-m", "builder.tokenizer"]
            folders = ["--model", str(model.path), "--output", made]
            run_child(self.name, [*command, *folders], cwd=build.work_dir, on_line=lambda _: None)
            samples = Path(made, "samples.json")
            _judge(Path(made, TOKENIZER), json.loads(samples.read_bytes()))
            samples.unlink()
            folder = _own_folder(build)
            for file in Path(made).iterdir():
                file.rename(folder / file.name)
        build.model = replace(model, path=folder)


def _judge(made: Path, samples: list[dict[str, Any]]) -> None:
    """Raises TokenizerNotConverted."""
    try:
        compare(Tokenizer.from_file(str(made)), samples)
    except (TokenizerNotConverted, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare ones, and panics
        raise TokenizerNotConverted(reason=f"the converted one fails ({error})") from None


def compare(tokenizer: Tokenizer, samples: list[dict[str, Any]]) -> None:
    """Raise TokenizerNotConverted for the first text on which `tokenizer` disagrees with the model's own.

    One difference is only reported: newer forms of Llama's tokenizer strip one space less from the beginning
    of a text, in each of their tokenizer.json files.
    """
    told = False
    for sample in samples:
        text, ids = sample["text"], sample["ids"]
        ids_alike = tokenizer.encode(text, add_special_tokens=False).ids == ids
        ids_alike = ids_alike and tokenizer.encode(text).ids == sample["all_ids"]
        # Slow ones lose more spaces at the beginning than were added there.
        text_alike = tokenizer.decode(ids).lstrip(" ") == sample["decoded"].lstrip(" ")
        if ids_alike and text_alike:
            continue
        if text_alike and text.startswith(" "):
            if not told:
                _log.warning(
                    "spaces at the beginning of a text are not handled as the model's own tokenizer"
                    " handles them"
                )
                told = True
            continue
        shown = text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."
        what = "decodes" if ids_alike else "splits"
        raise TokenizerNotConverted(reason=f"the converted one {what} {shown!r} differently")


def _own_folder(build: Build) -> Path:
    """A folder with the model's files that only this build uses, so that it may be written to."""
    assert build.model is not None
    path = build.model.path.resolve()
    if path.is_relative_to(build.work_dir.resolve()):
        return path
    own = build.model_dir
    own.mkdir()
    for file in path.iterdir():
        (own / file.name).symlink_to(file)
    return own
