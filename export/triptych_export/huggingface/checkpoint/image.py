"""Images: class names of config.json, and preprocessing from preprocessor_config.json.

The processors are transformers' classes; members missing in the file have the defaults of the class. Source:
https://huggingface.co/docs/transformers/main_classes/image_processor
"""

from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Any

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import CONFIG, Folder, neutral
from triptych_serving.bundle.manifest.image import SHORTEST_EDGE, STRETCH
from triptych_training.checkpoints.encoder import ImagePreprocessing


def sides(name: str, value: object) -> tuple[int, int]:
    """Read a size given as one number or as height and width; raises ValueError if it is neither."""
    match value:
        case bool():
            pass
        case int() if value > 0:
            return value, value
        case [int(height), int(width)] if min(height, width) > 0:
            return height, width
    raise ValueError(f"{name}: {value!r}, expected a number of pixels, or height and width")


TIMM_NAMES = "label_names"  # timm's member for them, which may be a list


def class_names(folder: Folder, classes: int, member: str = "id2label") -> tuple[str, ...]:
    """Read the class names in a member of config.json; duplicate names get the class index appended.

    Raises:
        SourceError: there are names, but not one for each class.
    """
    given = folder.config.get(member)
    if not given:
        return tuple(f"LABEL_{number}" for number in range(classes))
    if member == TIMM_NAMES and isinstance(given, list):
        given = dict(enumerate(given))
    if not isinstance(given, dict):
        raise folder.config_error(f"{member}: {given!r:.40}, expected names by class number")
    names = {str(key): "" if name is None else " ".join(str(name).split()) for key, name in given.items()}
    if missing := [number for number in range(classes) if not names.get(str(number))]:
        shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise folder.config_error(f"{member}: no name for {len(missing)} of {classes} classes: {shown}")
    if len(names) != classes:
        raise folder.config_error(f"{member}: {len(names)} names, the model has {classes} classes")
    labels = [names[str(number)] for number in range(classes)]
    while len(counts := Counter(labels)) < classes:  # again where a numbered name is another class's
        labels = [name if counts[name] == 1 else f"{name} ({number})" for number, name in enumerate(labels)]
    return tuple(labels)


FILE, WHOLE_FILE = "preprocessor_config.json", "processor_config.json"
BYTE = 255.0
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
SUFFIXES = ("Fast", "Pil", "ImageProcessor", "FeatureExtractor")
CHANNELS = 3
WARPED = 384  # ConvNeXt resizes without cropping from this size on

Members = Mapping[str, Any]
Size = tuple[int, int]  # height, width

HALF, CLIP_MEAN, CLIP_STD = [0.5] * 3, [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
COMMON: Members = {
    "do_resize": True,
    "do_center_crop": False,
    "do_rescale": True,
    "rescale_factor": 1 / BYTE,
    "do_normalize": True,
    "do_pad": False,
    "default_to_square": True,
    "size": {"height": 224, "width": 224},
    "crop_size": {"height": 224, "width": 224},
    "resample": 3,
    "image_mean": HALF,
    "image_std": HALF,
}
_CLIP: Members = {
    "size": {"shortest_edge": 224},
    "default_to_square": False,
    "do_center_crop": True,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
}
# Defaults of each class that differ from COMMON.
PROCESSORS: Mapping[str, Members] = {
    "ViT": {"resample": 2},
    "DeiT": {"size": {"height": 256, "width": 256}, "do_center_crop": True},
    "Beit": {},
    "Siglip": {"default_to_square": False},
    "Pvt": {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD},
    "ImageGPT": {"resample": 2, "size": {"height": 256, "width": 256}},
    "CLIP": _CLIP,
    "Bit": _CLIP,
    "ConvNext": {"size": {"shortest_edge": WARPED}, "default_to_square": False, "crop_pct": 224 / 256},
}
# Members that are read, that transformers' classes ignore, or that concern only the type and place of the arrays.
KNOWN = neutral(
    " ".join(COMMON)
    + """
    image_processor_type feature_extractor_type processor_class _processor_class _valid_processor_keys crop_pct
    do_convert_rgb data_format input_data_format return_tensors device disable_grouping pad_size do_reduce_labels reduce_labels
    _name_or_path transformers_version clusters
    """,
    do_color_quantize=(True,),
    do_flip_channel_order=(False,),
    rescale_offset=(False,),
)
TIMM = "pretrained_cfg"
TIMM_DEFAULTS: Members = {"crop_pct": 0.875, "crop_mode": "center", "interpolation": "bicubic"}
TIMM_KNOWN = neutral(  # those of training, of tests at other sizes, and of the weights' origin
    " ".join(TIMM_DEFAULTS)
    + """
    input_size mean std num_classes fixed_input_size min_input_size pool_size test_input_size test_pool_size test_crop_pct
    test_crop_mode first_conv classifier architecture tag custom_load url file state_dict hf_hub_id hf_hub_filename source
    label_offset label_names label_descriptions license description origin_url paper_name paper_ids notes
    """
)
# By model_type, if the file names no processor.
USUAL = {
    **{"vit": "ViT", "deit": "DeiT", "swin": "ViT", "swinv2": "ViT", "pvt": "Pvt", "pvt_v2": "Pvt", "imagegpt": "ImageGPT"},
    **{"vit_msn": "ViT", "dinov2": "Bit", "dinov2_with_registers": "Bit", "clip": "CLIP", "siglip": "Siglip"},
    **{"beit": "Beit", "data2vec-vision": "Beit"},
}


def read_image_processor(folder: Folder) -> ImagePreprocessing:
    """Read the folder's image processor.

    Raises:
        SourceError: there is none, or a bundle cannot express it; names the member, its value and the supported ones.
    """
    name, given = _read(folder)
    model_type = folder.model_type if folder.has(CONFIG) else ""
    usual = USUAL.get(model_type, model_type)
    kind = str(given.get("image_processor_type") or given.get("feature_extractor_type") or usual)
    for suffix in SUFFIXES:
        kind = kind.removesuffix(suffix)
    try:
        return preprocessing(kind, given)
    except ValueError as error:
        raise SourceError(f"{folder.path / name}: {error}") from error


def preprocessing(kind: str, given: Members) -> ImagePreprocessing:
    """Translate a processor's type and members to ImagePreprocessing.

    Raises:
        ValueError: the type is not among `PROCESSORS`, or a bundle cannot express its settings.
    """
    if kind not in PROCESSORS:
        names = ", ".join(f"{name}ImageProcessor" for name in PROCESSORS)
        raise ValueError(f"image_processor_type: {kind}ImageProcessor is not supported; supported: {names}")
    members = {**COMMON, **PROCESSORS[kind], **{name: value for name, value in given.items() if value is not None}}
    if not members["do_resize"]:
        raise ValueError("do_resize: false; the model takes images of one size, so they must be resized")
    if members["do_pad"]:
        raise ValueError("do_pad: true; padding is not supported")
    mean, std = _normalisation(members)
    return ImagePreprocessing(
        **(_convnext_size(members) if kind == "ConvNext" else _sizes(members)),
        interpolation=_interpolation(members["resample"]),
        mean=mean,
        std=std,
    )


def read_timm_transform(folder: Folder) -> ImagePreprocessing:
    """Read timm's evaluation transform from `pretrained_cfg` of config.json; missing members have timm's defaults.

    Raises:
        SourceError: a bundle cannot express it; names the member, its value and the supported ones.
    """
    given = folder.config.get(TIMM)
    try:
        if not isinstance(given, dict):
            raise ValueError(f"{given!r:.40}, expected an object")
        folder.closed.append((f"{CONFIG} ({TIMM})", given, TIMM_KNOWN))
        return timm_transform({name: value for name, value in given.items() if value})
    except ValueError as error:
        raise folder.config_error(f"{TIMM}: {error}") from error


def timm_transform(given: Members) -> ImagePreprocessing:
    """Translate members of timm's `pretrained_cfg`; raises ValueError if a bundle cannot express them."""
    match given.get("input_size", (CHANNELS, 224, 224)):
        case [3, int(height), int(width)] if min(height, width) > 0:
            crop = height, width
        case size:
            raise ValueError(f"input_size: {size!r}, expected {CHANNELS} channels, height and width")
    share, mode, interpolation = (given.get(name, usual) for name, usual in TIMM_DEFAULTS.items())
    _check_share(share)
    if mode not in ("center", "squash"):
        raise ValueError(f"crop_mode: {mode!r} is not supported; supported: 'center', 'squash'")
    if interpolation not in FILTERS:
        raise ValueError(f"interpolation: {interpolation!r} is not supported; supported: {', '.join(FILTERS)}")
    if mode == "center" and height != width:
        raise ValueError(f"input_size: {_text(crop)} with crop_mode 'center'; supported: 'squash', or a square")
    named = {"image_mean": given.get("mean", IMAGENET_MEAN), "image_std": given.get("std", IMAGENET_STD)}
    mean, std = _normalisation({**COMMON, **named})
    edges = int(height / share), int(width / share)
    stretch = {"height": height, "width": width, "resize_height": edges[0], "resize_width": edges[1]}
    sizes = _cut_from_shortest_edge(edges[0], crop) if mode == "center" else stretch
    return ImagePreprocessing(**sizes, interpolation=interpolation, mean=mean, std=std, round_crop=True)


def _read(folder: Folder) -> tuple[str, Members]:
    if (members := folder.read_closed(FILE, KNOWN)) is not None:
        return FILE, members
    whole = folder.members(WHOLE_FILE)
    if isinstance(members := whole.get("image_processor"), dict):
        folder.closed.append((WHOLE_FILE, members, KNOWN))
        return WHOLE_FILE, members
    remedy = "save the image processor of the training there with transformers: save_pretrained"
    raise SourceError(f"{folder.path}: holds no {FILE}, which says how images are resized and normalised; {remedy}")


def _sizes(members: Members) -> dict[str, Any]:
    """Size members of ImagePreprocessing."""
    size = _sides("size", members["size"], members["default_to_square"])
    crop = _sides("crop_size", members["crop_size"], True) if members["do_center_crop"] else None
    if isinstance(crop, int):
        raise ValueError(f"crop_size: {members['crop_size']} has no height and width")
    if isinstance(size, int):
        if crop is None:
            raise ValueError(f"size: shortest_edge {size} without do_center_crop; the model takes images of one size")
        return _cut_from_shortest_edge(size, crop)
    if crop is None or crop == size:
        return {"height": size[0], "width": size[1], "resize": STRETCH}
    if crop[0] > size[0] or crop[1] > size[1]:
        raise ValueError(f"crop_size: {_text(crop)} exceeds size {_text(size)}; padding is not supported")
    return {"height": crop[0], "width": crop[1], "resize": STRETCH, "resize_height": size[0], "resize_width": size[1]}


def _convnext_size(members: Members) -> dict[str, Any]:
    """ConvNeXt's size: a square of the shortest edge, cropped from a larger one for small images."""
    edge = _sides("size", members["size"], False)
    if not isinstance(edge, int):
        raise ValueError(f"size: {members['size']}, expected shortest_edge")
    if members["do_center_crop"]:
        raise ValueError("do_center_crop: true; ConvNextImageProcessor crops by crop_pct")
    if edge >= WARPED:
        return {"height": edge, "width": edge, "resize": STRETCH}
    _check_share(members["crop_pct"])
    return _cut_from_shortest_edge(int(edge / members["crop_pct"]), (edge, edge))


def _check_share(share: object) -> None:
    """Check what share of an image's side is left after cropping; raises ValueError."""
    if not isinstance(share, float | int) or not 0 < share <= 1:
        raise ValueError(f"crop_pct: {share!r} is outside (0, 1]")


def _cut_from_shortest_edge(edge: int, crop: Size) -> dict[str, Any]:
    if max(crop) > edge:
        raise ValueError(f"crop_size: {_text(crop)} exceeds the shortest_edge {edge} of size; padding is not supported")
    return {"height": crop[0], "width": crop[1], "resize": SHORTEST_EDGE, "resize_size": edge}


def _sides(name: str, value: object, square: bool) -> Size | int:
    """Read height and width, or the shortest edge."""
    given = {key: side for key, side in value.items() if side is not None} if isinstance(value, dict) else value
    match given:
        case bool():
            pass
        case int() if given > 0:
            return (given, given) if square else given
        case [int(height), int(width)] if min(height, width) > 0:
            return height, width
        case {"height": int(height), "width": int(width), **others} if min(height, width) > 0 and not others:
            return height, width
        case {"shortest_edge": int(edge), **others} if edge > 0 and not others:
            return edge
    raise ValueError(f"{name}: {value!r}, expected a number of pixels, height and width, or a shortest_edge alone")


def _interpolation(resample: object) -> str:
    if not isinstance(resample, int) or not 0 <= resample < len(FILTERS):
        known = ", ".join(f"{number} ({name})" for number, name in enumerate(FILTERS))
        raise ValueError(f"resample: {resample!r} is unknown; supported: {known}")
    return FILTERS[resample]


def _normalisation(members: Members) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation of `(pixel / 255 - mean) / deviation`, including any rescaling."""
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if members["do_normalize"]:
        mean, std = _channels("image_mean", members["image_mean"]), _channels("image_std", members["image_std"])
    factor = members["rescale_factor"] if members["do_rescale"] else 1.0
    if not isinstance(factor, float | int) or not factor > 0:
        raise ValueError(f"rescale_factor: {factor!r} is not above 0")
    if min(std) <= 0:
        raise ValueError(f"image_std: {list(std)}, every channel's must be above 0")
    full = BYTE * factor  # what the brightest pixel becomes
    return (mean[0] / full, mean[1] / full, mean[2] / full), (std[0] / full, std[1] / full, std[2] / full)


def _channels(name: str, value: object) -> tuple[float, float, float]:
    match [value] * 3 if isinstance(value, float | int) else value:
        case [float() | int() as red, float() | int() as green, float() | int() as blue] if isfinite(red + green + blue):
            return float(red), float(green), float(blue)
    raise ValueError(f"{name}: {value!r}, expected a number, or one each for red, green and blue")


def _text(size: Size) -> str:
    return f"{size[1]} x {size[0]}"
