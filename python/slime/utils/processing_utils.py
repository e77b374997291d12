"""Tokenizers and processors of a checkpoint, and images on their way to an engine. transformers does the work."""

import base64
import io

__all__ = [
    "load_tokenizer",
    "load_processor",
    "build_processor_kwargs",
    "process_vision_info",
    "encode_image_for_rollout_engine",
]


def _transformers():
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            "a tokenizer needs the package transformers in the plug-ins' Python: pip install transformers, "
            "or name an interpreter that has it: --plugin-python"
        ) from error
    return transformers


def load_tokenizer(name_or_path, **kwargs):
    """The checkpoint's tokenizer, an object of transformers."""
    return _transformers().AutoTokenizer.from_pretrained(name_or_path, **kwargs)


def load_processor(name_or_path, **kwargs):
    """The processor of a model that sees; None for a checkpoint that has none."""
    transformers = _transformers()
    try:
        processor = transformers.AutoProcessor.from_pretrained(name_or_path, **kwargs)
    except (OSError, ValueError, ImportError):
        return None
    return processor if isinstance(processor, transformers.ProcessorMixin) else None


def build_processor_kwargs(multimodal_inputs=None):
    """Arguments of a processor: ids as plain lists, media as tensors."""
    kwargs = dict(multimodal_inputs or {})
    kwargs["text_kwargs"] = {
        **kwargs.get("text_kwargs", {}),
        "return_tensors": None,
        "return_mm_token_type_ids": False,
    }
    for name in ("audio_kwargs", "images_kwargs", "videos_kwargs"):
        kwargs[name] = {**kwargs.get(name, {}), "return_tensors": "pt"}
    return kwargs


def _open_image(value):
    from PIL import Image

    if not isinstance(value, str):
        return value
    if value.startswith("data:"):
        return Image.open(io.BytesIO(base64.b64decode(value.split(",", 1)[1])))
    try:
        return Image.open(io.BytesIO(base64.b64decode(value, validate=True)))
    except Exception:
        return Image.open(value)


def process_vision_info(prompt, processor):
    """{"images", "videos"} of a list of messages: by qwen_vl_utils where it is installed, images only without it."""
    try:
        from qwen_vl_utils import process_vision_info as of_qwen

        patch = getattr(processor.image_processor, "patch_size", 14)
        images, videos = of_qwen(prompt, image_patch_size=patch)
        return {"images": images, "videos": videos}
    except ImportError:
        pass
    images = [
        _open_image(part["image"])
        for message in prompt
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if isinstance(part, dict) and part.get("type") == "image" and part.get("image") is not None
    ]
    return {"images": images or None, "videos": None}


def encode_image_for_rollout_engine(image):
    """A PIL image as a data address of a PNG."""
    buffer = io.BytesIO()
    (image if image.mode == "RGB" else image.convert("RGB")).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
