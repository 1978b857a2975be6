"""Weights in every format: find them, read them, adapt them, write them.

record          `Weights`: parameters, model, labels, preprocessing, source
checks          whether they fit their model and become predictions
released        a name to a file, downloaded where needed
hub             puts folders on the Hugging Face hub
formats         the table of formats; reads and converts any of them
npz             official `.npz`
big_vision      SigLIP's config, big_vision's places of arrays
huggingface     reads transformers folders
to_huggingface  writes them
open_clip       reads the CLIPs of open_clip
open_clip_names  their names, as a table
families        models of transformers: JSON and array names, one file a family
timm            reads and writes weights of timm
token_positions  which tokens have position embeddings
layer_scale     multiplies kernels by LayerScale
torch_layout    axes and names of PyTorch modules
training_run    reads the checkpoints of a run
artifact        reads and writes WORKDIR/artifact
array_files     arrays in `.npz` and `.safetensors`
other_models    what is not read, and why
pillow_filters  how PyTorch's libraries resize images
infer           names and shapes to the model they belong to
vocabularies    the file of a tokeniser beside weights
extras          keeps fields that a format cannot hold
adaptation      weights for another head, grid, patch size or channel count
resized_positions  position embeddings for another grid of patches
units           heads that predict numbers in their units
initial         the first parameters of a run
programs        ONNX and StableHLO
quantization    ONNX models with fewer bits
"""

# What other packages import.
__all__ = (
  'adaptation',
  'array_files',
  'artifact',
  'checks',
  'formats',
  'hub',
  'initial',
  'npz',
  'programs',
  'record',
  'released',
  'training_run',
  'units',
  'vocabularies',
)
