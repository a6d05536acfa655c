"""Labels of images."""

from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.rpc.engine_call import Arrival
from triptych_serving.services.image_calls import ImageQuery
from triptych_serving.services.oip.parameters import WHOLE
from triptych_serving.services.oip.task import LABELS, Calls, Output, Question, Results, Task
from triptych_serving.services.oip.tensors import UINT32, TensorInput


async def _answer(calls: Calls, question: Question, context: GrpcContext) -> Results:
    images = ImageQuery(question.wish(), question.inputs.elements["image"], question.values.get("top_k"))
    results, _ = await calls.images.classify(images, Arrival.now(context).deadline)
    return results


IMAGE_CLASSIFICATION = Task(
    inputs=(TensorInput("image"),),
    outputs=(
        *LABELS,
        Output("width", UINT32, lambda image: image.width, asked_by=None),
        Output("height", UINT32, lambda image: image.height, asked_by=None),
    ),
    parameters={"top_k": WHOLE},
    answer=_answer,
)
