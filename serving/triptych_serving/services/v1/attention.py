"""triptych.v1.AttentionService."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, fields, replace
from typing import Any

from triptych.v1 import attention_pb2, attention_pb2_grpc
from triptych_serving.errors import NotFoundError, UnsupportedError
from triptych_serving.models.attention import (
    WHOLE,
    AttendingModel,
    Attention,
    AttentionInput,
    check_source,
    prepare_attention,
)
from triptych_serving.models.model import Model
from triptych_serving.models.text.embedding import EMBEDDING
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.registry import ModelSelector, ModelVersion, Registry
from triptych_serving.rpc.call_context import GrpcContext, ModelUseScope
from triptych_serving.rpc.engine_call import Arrival, EngineCall
from triptych_serving.rpc.event_loop import Offload
from triptych_serving.runtime.session import Array
from triptych_serving.services.translation_calls import TranslationCalls, TranslationQuery
from triptych_serving.services.v1.codec import served_by


class AttentionServicer(attention_pb2_grpc.AttentionServiceServicer):
    """Serve Attend. The response is returned packed.

    Args:
        registry: returns the loaded models, or raises UnavailableError while the server starts or stops.
        translations: translates texts that come without a translation.
        pool: threads for long work: loading the graph, decoding an image, writing the response.
    """

    def __init__(self, registry: Callable[[], Registry], translations: TranslationCalls, pool: Executor) -> None:
        self._registry, self._translations, self._offload = registry, translations, Offload(pool)

    async def Attend(self, request: attention_pb2.AttendRequest, context: GrpcContext) -> Any:
        arrival, languages = Arrival.now(context), (request.source_language_code, request.target_language_code)
        given = AttentionInput(request.text, request.target, request.text_pair, request.image, *languages)
        model = find_attending(self._registry(), ModelSelector(request.model, request.model_version, *languages), given)
        with ModelUseScope(model) as use:
            if isinstance(model, Translator) and not given.target:
                await self._offload.run_in_thread(check_source, model, given)
                selector = ModelSelector(model.name, str(model.version), *languages)
                query = TranslationQuery(selector, [given.text], WHOLE)
                [translation], _ = await self._translations.translate_with(model, query, context)
                given = replace(given, target=translation.text)
            work = await self._offload.run_in_thread(prepare_attention, model, given)
            call = await EngineCall.run(model.attender.engine, work, arrival, use)
            [attention] = work.read()
            return await call.postprocessed(self._offload.run_in_thread(_response, attention, served_by(use)))


def find_attending(registry: Registry, selector: ModelSelector, given: AttentionInput) -> AttendingModel:
    """Return the model that a request selects.

    Without a name: an image classifier for an image; a model of the BERT family for a pair, or where no model translates; else
    the model that translates. Those with attention graphs precede the others.

    Raises:
        ServingError: there is none, or several match.
    """
    model = _find(registry, selector, given)
    if not isinstance(model, AttendingModel):
        raise UnsupportedError(f"model {model.name!r} ({model.manifest.task}) has no attention graphs")
    return model


def _find(registry: Registry, selector: ModelSelector, given: AttentionInput) -> Model:
    if selector.model:
        model = registry.named(selector)
        return registry.find(selector) if isinstance(model, Translator) else model
    is_text = bool(given.text_pair) or not registry.translators

    def find(among: Registry) -> Model:
        if given.image:
            return among.find_image(selector)
        return among.find_text(selector, EMBEDDING) if is_text else among.find(selector)

    try:
        return find(Registry([each for each in registry.models if _attends(registry, selector, each)]))
    except NotFoundError:
        return find(registry)


def _attends(registry: Registry, selector: ModelSelector, version: ModelVersion) -> bool:
    """Return True if a version that the selector may mean has an attention graph."""
    model = version.model
    serves = bool(selector.version) or model is registry.serving(version.name)
    return serves and isinstance(model, AttendingModel) and model.attender.has_graph


def _response(attention: Attention, served: dict[str, Any]) -> bytes:
    values = {field.name: getattr(attention, field.name) for field in fields(attention)}
    values |= {name: _weights_to(values[name]) for name in ("encoder", "decoder", "cross")}
    values |= {name: [asdict(token) for token in values[name]] for name in ("source_tokens", "target_tokens")}
    heads = attention.alignment and asdict(attention.alignment)
    return attention_pb2.AttendResponse(**{**values, "alignment": heads}, **served).SerializeToString()


def _weights_to(weights: Array | None) -> attention_pb2.AttentionWeights | None:
    if weights is None:
        return None
    layers, heads, targets, sources = weights.shape
    values = weights.astype("<f4").tobytes()
    return attention_pb2.AttentionWeights(layers=layers, heads=heads, targets=targets, sources=sources, values=values)
