"""Weights of timm.

from_timm      reads them
to_timm        writes them
module_names   timm's module names and ours, as tables
architectures  what names of timm's architectures imply
vits           which model of timm a ViT is
"""

# What other packages import.
__all__ = ('from_timm', 'to_timm')
