"""DeiT: model_type "deit". Reference: https://huggingface.co/docs/transformers/model_doc/deit"""

import torch

from triptych_export.huggingface.architectures.vit import IGNORED, RULES, count_classes, vit_members
from triptych_export.huggingface.checkpoint.image_config import check_architecture, image_checkpoint, make_config
from triptych_export.huggingface.checkpoint.image_processor import read_image_processor
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import Folder
from triptych_training.checkpoints.encoder import ImageCheckpoint
from triptych_training.models.vit import Vit, VitConfig

PLAIN, WITH_TEACHER = "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"
TOKEN_RULE = Rule("distillation_token", "embeddings.distillation_token")
# Before the ones of ViT, of which one is about the classifier too.
TEACHER_RULES = (Rule("classifier", "cls_classifier"), Rule("distillation_classifier", "distillation_classifier"))


def load_deit(folder: Folder) -> ImageCheckpoint:
    """Load the classifier of a folder.

    Raises:
        SourceError: the folder holds another model than a classifier, or its files are missing, damaged or do not fit together.
    """
    check_architecture(folder, (PLAIN, WITH_TEACHER))
    teacher = folder.architecture == WITH_TEACHER
    weights = open_weights(folder.path)
    classes = count_classes(weights, "cls_classifier" if teacher else "classifier")
    members = {**vit_members(folder), "classes": classes, "distillation_token": True, "distillation_head": teacher}
    shape = make_config(folder, lambda: VitConfig(**members))
    with torch.device("meta"):
        model = Vit(shape)
    rules = (*(TEACHER_RULES if teacher else ()), TOKEN_RULE, *RULES)
    load_rules(model, weights, rules, IGNORED, prefixes=("deit.",))
    return image_checkpoint(folder, model, read_image_processor(folder))
