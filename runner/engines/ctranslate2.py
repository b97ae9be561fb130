"""CTranslate2 on CPU: the engine of laptops and CI.

CTranslate2 runs a request from its prompt to its end on one of N workers, which share the weights; requests
beyond N wait, first come, first served. It has no way to pause a sequence, so waiting requests cannot take
turns with running ones.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import ctranslate2

from runner.protocol.engine import MAX_TOKENS, FinishReason, Limits, Output, Statistics
from shared.errors import CTranslate2Error, EngineStartFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from runner.protocol.engine import Request, SamplingParameters

# The builder's names of quantizations mean something else to CTranslate2: its "int8" is whatever int8 mixture
# the machine prefers.
_COMPUTE_TYPES = {"float32": "float32", "int8": "int8_float32"}

_MAX_THREADS = 1024  # as in shared/config/models.py

# Dividing by less could leave the range of float32; the likeliest token has won long before.
_LOWEST_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True)
class CTranslate2Settings:
    """What the engine reads from config.json of engine.tar, and from that of the model in it."""

    quantization: str
    parallel_requests: int
    threads_per_request: int
    max_seq_len: int
    sliding_window: int | None


class CTranslate2Engine:
    """See `runner.protocol.engine.Engine`."""

    def __init__(self, engine_dir: Path) -> None:
        """Raises EngineStartFailed for a directory that does not hold such an engine, CTranslate2Error where
        CTranslate2 refuses.
        """
        settings = _read_settings(engine_dir)
        model = engine_dir / "engine"
        self._settings = settings
        self._vocabulary: list[str] = _read_json(model / "vocabulary.json", list)
        self.limits = Limits(settings.max_seq_len, settings.max_seq_len - 1, len(self._vocabulary))
        try:
            self._generator = ctranslate2.Generator(
                str(model),
                device="cpu",
                compute_type=_COMPUTE_TYPES[settings.quantization],
                inter_threads=settings.parallel_requests,
                intra_threads=settings.threads_per_request,
            )
        except (RuntimeError, ValueError) as error:
            reason = _first_line(error).replace(str(model), model.name)
            raise CTranslate2Error(reason=reason) from error

        self._outputs: SimpleQueue[Output | None] = SimpleQueue()
        self._change = threading.Condition()  # guards what follows
        self._waiting: dict[int, Request] = {}  # in order of arrival
        self._running: set[int] = set()
        self._cancelled: set[int] = set()
        self._shut_down = False
        self._workers = settings.parallel_requests
        for index in range(settings.parallel_requests):
            # Daemons: a long prompt cannot be interrupted, and must not keep the process from ending.
            threading.Thread(target=self._work, name=f"ctranslate2-{index}", daemon=True).start()

    def submit(self, request: Request) -> None:
        with self._change:
            self._waiting[request.request_id] = request
            self._change.notify()

    def cancel(self, request_id: int) -> None:
        with self._change:
            if self._waiting.pop(request_id, None):
                self._outputs.put(Output(request_id, finish_reason=FinishReason.CANCELLED))
            elif request_id in self._running:
                self._cancelled.add(request_id)

    def steps(self) -> Iterator[Sequence[Output]]:
        ended = False
        while not ended:
            step = [self._outputs.get()]
            while not self._outputs.empty():
                step.append(self._outputs.get())
            ended = None in step
            if outputs := _merge(output for output in step if output):
                yield outputs

    def statistics(self) -> Statistics:
        return Statistics(active_requests=len(self._running), queued_requests=len(self._waiting))

    def shutdown(self) -> None:
        with self._change:
            self._shut_down = True
            for request_id in (*self._waiting, *self._running):
                self.cancel(request_id)
            self._change.notify_all()

    def _work(self) -> None:
        """One worker: a request at a time until the engine is shut down."""
        while request := self._next_request():
            last = self._generate(request)
            with self._change:
                self._running.discard(request.request_id)
                self._cancelled.discard(request.request_id)
            self._outputs.put(last)
        with self._change:
            self._workers -= 1
            if self._workers == 0:
                self._outputs.put(None)

    def _next_request(self) -> Request | None:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._shut_down)
            if self._shut_down:
                return None
            request = self._waiting.pop(next(iter(self._waiting)))
            self._running.add(request.request_id)
            return request

    def _generate(self, request: Request) -> Output:
        """Run a request and return its last output; the others are sent as they arise."""
        prompt = [self._vocabulary[token] for token in request.input_token_ids]
        max_tokens = min(request.max_tokens, self._settings.max_seq_len - len(prompt))
        # CTranslate2 computes a prompt in one go, but attends beyond a sliding window when it does. Where
        # that matters, the prompt is a prefix that the output is made to start with: slow, but correct.
        window = self._settings.sliding_window
        is_prefix = window is not None and len(prompt) - 1 > window
        prefix_length = len(prompt) - 1 if is_prefix else 0
        sequence = _Sequence(request, max_tokens, prefix_length, self._cancelled, self._outputs.put)
        try:
            self._generator.generate_batch(
                [prompt],
                include_prompt_in_result=is_prefix,
                max_length=prefix_length + max_tokens,
                min_length=prefix_length + min(max(request.sampling.min_tokens or 0, 0), max_tokens),
                end_token=[token for token in request.end_ids if 0 <= token < len(self._vocabulary)],
                callback=sequence.on_token,
                **sampling_options(request.sampling, len(self._vocabulary)),
            )
        except Exception as error:
            return Output(request.request_id, error=CTranslate2Error(reason=_first_line(error)))
        return sequence.last_output()


@dataclass(slots=True)
class _Sequence:
    """One request while it runs. `on_token` is called by CTranslate2, in a thread of its own."""

    request: Request
    max_tokens: int
    prefix_length: int
    cancelled: set[int]
    emit: Callable[[Output], None]
    tokens: list[int] = field(default_factory=list)
    finish_reason: FinishReason = FinishReason.NOT_FINISHED

    def on_token(self, step: Any) -> bool:
        """Take a `ctranslate2.GenerationStepResult`; return whether the sequence ends with it."""
        if self.request.request_id in self.cancelled:
            self.finish_reason = FinishReason.CANCELLED
        elif step.step < self.prefix_length:
            return False
        elif step.token_id in self.request.end_ids:
            self.finish_reason = FinishReason.END_ID
        else:
            self.tokens.append(step.token_id)
            if self._ends_with_stop_word():
                self.finish_reason = FinishReason.STOP_WORDS
            elif len(self.tokens) == self.max_tokens:
                self.finish_reason = FinishReason.LENGTH
            else:
                self.emit(Output(self.request.request_id, (step.token_id,)))
        return self.finish_reason is not FinishReason.NOT_FINISHED

    def last_output(self) -> Output:
        """The output that says how the sequence ended, with the token that ended it where that counts."""
        with_token = self.finish_reason in (FinishReason.STOP_WORDS, FinishReason.LENGTH)
        return Output(self.request.request_id, self.tokens[-1:] if with_token else (), self.finish_reason)

    def _ends_with_stop_word(self) -> bool:
        return any(word and self.tokens[-len(word) :] == list(word) for word in self.request.stop_words)


def sampling_options(sampling: SamplingParameters, vocabulary_size: int) -> dict[str, float]:
    """The arguments of `Generator.generate_batch` that mean what `sampling` means to TensorRT-LLM.

    Both apply the temperature first, then top_k, then top_p. With neither top_k nor top_p (unset, 0, -1),
    TensorRT-LLM takes the likeliest token, whatever the temperature; CTranslate2's own default is top_k 1,
    its top_k 0 is "all tokens", and it refuses a top_k above the size of the vocabulary. Its repetition
    penalty looks at the output, TensorRT-LLM's at the prompt too.
    """
    top_k, top_p = max(sampling.top_k or 0, 0), sampling.top_p or 0.0
    temperature = 1.0 if sampling.temperature is None else sampling.temperature
    options: dict[str, float] = {}
    if sampling.repetition_penalty is not None:
        options["repetition_penalty"] = sampling.repetition_penalty
    if (top_k or top_p) and temperature >= _LOWEST_TEMPERATURE:
        options["sampling_topk"] = top_k if top_k < vocabulary_size else 0
        options["sampling_topp"] = top_p or 1.0
        options["sampling_temperature"] = temperature
    return options


def _merge(outputs: Iterable[Output]) -> list[Output]:
    """One output per request, except errors, which stay separate."""
    merged: dict[tuple[int, bool], Output] = {}
    for output in outputs:
        key = (output.request_id, output.error is None)
        earlier = merged.get(key)
        merged[key] = output._replace(tokens=(*earlier.tokens, *output.tokens)) if earlier else output
    return list(merged.values())


def _read_settings(engine_dir: Path) -> CTranslate2Settings:
    config, model = _read_json(engine_dir / "config.json"), _read_json(engine_dir / "engine/config.json")
    try:
        if config["quantization"] not in [*_COMPUTE_TYPES]:
            raise _invalid("quantization", f"one of {', '.join(_COMPUTE_TYPES)}")
        return CTranslate2Settings(
            quantization=config["quantization"],
            parallel_requests=_count(config, "parallel_requests", _MAX_THREADS, len(os.sched_getaffinity(0))),
            threads_per_request=_count(config, "threads_per_request", _MAX_THREADS),
            max_seq_len=_count(config, "max_seq_len", MAX_TOKENS, model["max_position_embeddings"]),
            sliding_window=model["sliding_window"],
        )
    except KeyError as error:
        raise EngineStartFailed(reason=f"the engine's config.json has no {error.args[0]}") from None


def _count(config: dict[str, Any], key: str, most: int, otherwise: int | None = None) -> int:
    """A number from 1; `otherwise` where the config leaves it open. Raises KeyError and EngineStartFailed."""
    value = config[key]
    if value is None and otherwise is not None:
        value = otherwise
    if type(value) is not int or not 1 <= value <= most:
        raise _invalid(key, f"a whole number from 1 to {most}")
    return value


def _invalid(key: str, wanted: str) -> EngineStartFailed:
    return EngineStartFailed(reason=f"{key} in the engine's config.json must be {wanted}")


def _read_json(path: Path, kind: type = dict) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, kind):
            return content
    except (OSError, ValueError, RecursionError):
        pass
    raise EngineStartFailed(reason=f"the engine's {path.name} cannot be read")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
