"""What images become before the model, and how training varies them.

transforms    host: crop, resize, flip
crops         crop geometry and sampling
randaugment   host: RandAugment
augment       device: crop, resize, flip, normalise
color_jitter  device: brightness, contrast, saturation, hue
mixing        device: mixup, CutMix, random erasing
"""

# What other packages import.
__all__ = ('augment', 'mixing', 'transforms')
