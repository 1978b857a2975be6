"""Texts to token ids.

text        the table of tokenisers, and BERT's
byte_pairs  CLIP's tokeniser
pieces      tokenisers of SentencePiece: LiT, SigLIP, SigLIP 2
token_ids   what tokenisers share
"""

# What other packages import.
__all__ = ('text', 'token_ids')
