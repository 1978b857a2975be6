"""The vit_jax package; the settings of tools are in pyproject.toml."""

import itertools
import pathlib
import re
import shutil

import setuptools
from setuptools.command import build_py

_ROOT = pathlib.Path(__file__).parent
_VERSION = re.search(
  r"__version__ = '(.+)'", (_ROOT / 'vit_jax' / '__init__.py').read_text()
)[1]

# Lower bounds are the oldest versions the tests pass with, upper bounds the
# next versions that may break them.
_REQUIRES = [
  'absl-py>=2.3,<3',  # Flags and logs, as ml_collections wants them.
  'array-record>=0.8.3,<0.9',  # Random access to TFDS data.
  'etils[epath,epy]>=1.13,<2',  # Folders and buckets alike; orbax needs it.
  'filelock>=3.16,<5',  # One process downloads; JAX's cache has a limit.
  'flatbuffers>=24.3,<26',  # How jax.export writes programs.
  'flax>=0.12.3,<0.13',
  'grain>=0.2.15,<0.3',  # Deterministic, sharded, resumable input.
  'huggingface_hub>=0.30,<3',  # Weights from the hub; tokenizers needs it.
  'jax>=0.10,<0.13',
  'jaxtyping>=0.3.2,<0.4',  # Shapes in signatures.
  'jinja2>=3.1.6,<4',  # The page that a run leaves.
  'matplotlib>=3.9,<4',  # Pictures of sweeps and results.
  'ml-collections>=1.1,<2',  # Run files and their overrides.
  'numpy>=2.1,<3',
  'opencv-python-headless>=4.12,<6',  # The official resize, PNG, WebP, BMP.
  'optax>=0.2.6,<0.3',
  'orbax-checkpoint>=0.11.36,<0.13',  # Asynchronous checkpoints, any mesh.
  'packaging>=24,<27',  # Compares versions, in doctor.
  'pillow>=11,<14',  # Bicubic resizing, as in PyTorch's libraries.
  'platformdirs>=4.2,<5',  # Where that cache is.
  'pyarrow>=20,<27',  # Tables of images; features as Parquet.
  'safetensors>=0.6.1,<0.9',  # Weights of PyTorch's libraries, without PyTorch.
  'scikit-learn>=1.7,<2',  # The bundled digits.
  'scipy>=1.15,<2',  # The official resize of position embeddings.
  'sentencepiece>=0.2.1,<0.3',  # LiT's tokeniser of its own text towers.
  'simplejpeg>=1.8.2,<2',  # The official JPEG pixels, fast.
  'tensorboardX>=2.6.4,<3',  # TensorBoard files without TensorFlow.
  'tensorflow-datasets>=4.9.10,<5',
  'tokenizers>=0.21,<0.24',  # The word pieces of BERT, for LiT.
  'tqdm>=4.67,<5',  # Progress bars.
]

_TEST = [
  'allpairspy>=2.5.1,<3',  # Rows of settings that have every pair.
  'beartype>=0.22,<0.24',  # Checks the jaxtyping annotations in tests.
  'importlib_resources>=6,<8',  # TFDS imports it to write a data set.
  'pytest>=8.4,<10',
  'pytest-xdist>=3.6,<4',  # Tests side by side.
]

_DOCS = [  # The pages of docs/ as a site, links checked.
  'furo>=2025.7.19,<2027',  # Their look.
  'myst-parser>=5,<6',  # Reads Markdown.
  'sphinx>=9,<10',  # Also reads docstrings, for the Python interface.
]

_TOOLS = {  # What single commands need, and their tests.
  'onnx': [  # To export to it, and to compare. Needs orbax-checkpoint<0.11.37.
    'jax2onnx>=0.17,<0.18',
    'onnx>=1.20.1,<2',
    'onnxruntime>=1.24.1,<2',
  ],
  'openvino': ['openvino>=2026.3,<2027'],  # Runs what is exported.
  'demo': ['gradio>=6,<7'],
  'heic': ['pillow-heif>=1,<2'],  # The pictures of telephones.
  'tiff': [  # TIFFs of many channels; the second reads compressed ones.
    'imagecodecs>=2026.3,<2027',
    'tifffile>=2026.3,<2027',
  ],
  'wandb': ['wandb>=0.20,<1'],  # For config.loggers.
  'mlflow': ['mlflow>=3.1,<4'],  # Likewise.
}


class BuildPy(build_py.build_py):
  """Puts the run files and the small weights into the package of a wheel.

  In a clone they lie beside it, where they are found too.
  """

  def run(self) -> None:
    """Copies them after the modules."""
    super().run()
    if self.editable_mode:
      return
    target = pathlib.Path(self.build_lib) / 'vit_jax'
    for pattern, folder in (
      ('configs/*.py', 'run_files'),
      ('checkpoints/*.npz', 'checkpoints'),
    ):
      (target / folder).mkdir(parents=True, exist_ok=True)
      for file in _ROOT.glob(pattern):
        shutil.copy(file, target / folder / file.name)


setuptools.setup(
  name='vit_jax',
  version=_VERSION,
  description='Vision Transformers in JAX and Flax',
  long_description=(_ROOT / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  # Says that packages lie here: what is installed to be edited is then found by its
  # path, also beside a clone whose folder is named as the package.
  package_dir={'': '.'},
  cmdclass={'build_py': BuildPy},
  packages=setuptools.find_packages(include=['vit_jax', 'vit_jax.*']),
  package_data={
    'vit_jax.configs': ['registry.toml'],
    'vit_jax.data': ['imagenet_classes.tsv'],
    'vit_jax.reporting': ['*.jinja'],
  },
  entry_points={
    'console_scripts': ['vit-jax = vit_jax.commands.dispatch:main']
  },
  python_requires='>=3.11',
  install_requires=_REQUIRES,
  extras_require={
    'cuda': ['jax[cuda13]>=0.10,<0.13'],
    'tpu': ['jax[tpu]>=0.10,<0.13'],
    'gcs': ['etils[epath-gcs]>=1.15,<2'],  # For --workdir=gs://...
    # To compile for TPUs where there are none: each jax names its own libtpu,
    # 0.0.42 for jax 0.10, 0.0.50 for 0.12.
    'plan': ['jax[tpu]>=0.10,<0.13'],
    'prepare': [  # Only to prepare catalogue data sets once.
      'importlib_resources>=6,<8',
      'tensorflow>=2.20,<3',
    ],
    **_TOOLS,
    'test': _TEST,
    'tools': [
      *_TEST,
      *itertools.chain(*_TOOLS.values()),
      'selenium>=4.30,<5',
    ],
    'dev': [
      *_TEST,
      *_DOCS,
      'mypy==2.4.1',
      'pre-commit>=4,<5',
      'ruff==0.17.5',
    ],
    'docs': _DOCS,
  },
)
