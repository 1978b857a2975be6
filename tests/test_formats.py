"""What files of other libraries leave unsaid, and what damage they come with."""

import json
import math
import pathlib
import shutil

from conftest import GOLDEN
from conftest import golden_json
from conftest import run
import cv2
import jax
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from vit_jax import artifact
from vit_jax import checkpoint
from vit_jax import convert
from vit_jax import errors
from vit_jax import models
from vit_jax import predictor
from vit_jax import weights as weights_lib
from vit_jax.configs import models as model_configs
from vit_jax.data import augment
from vit_jax.data import transforms
from vit_jax.interop import files
from vit_jax.interop import huggingface
from vit_jax.interop import timm
from vit_jax.interop import timm_names
from vit_jax.interop import to_timm

CONFIG = golden_json('index.json')['vit_token']['config']


def arrays_of(name):
  return safetensors.numpy.load_file(GOLDEN / name / 'model.safetensors')


def hugging_face(arrays=None, config=None, preprocessor=None):
  config = golden_json('hf_vit/config.json') | (config or {})
  arrays = arrays_of('hf_vit') if arrays is None else arrays
  return huggingface.from_state_dict(arrays, config, preprocessor or {}, 'x')


def from_timm(config, arrays=None):
  base = golden_json('timm_vit/config.json')
  arrays = arrays_of('timm_vit') if arrays is None else arrays
  return timm.from_state_dict(arrays, base | config, 'x')


def same(a, b):
  a, b = weights_lib.flatten(a.params), weights_lib.flatten(b.params)
  assert a.keys() == b.keys()
  return all(np.array_equal(a[k], b[k]) for k in a)


NEW_NAMES = (  # Of the modules of transformers 5.
  ('encoder.layer.', 'layers.'),
  ('attention.attention.query', 'attention.q_proj'),
  ('attention.attention.key', 'attention.k_proj'),
  ('attention.attention.value', 'attention.v_proj'),
  ('attention.output.dense', 'attention.o_proj'),
  ('intermediate.dense', 'mlp.fc1'),
  ('output.dense', 'mlp.fc2'),
)


def test_a_state_dict_with_the_names_of_transformers_5():
  arrays = {}
  for name, x in arrays_of('hf_vit').items():
    for old, new in NEW_NAMES:
      name = name.replace(old, new)
    arrays[name] = x
  assert any('q_proj' in name for name in arrays)
  assert same(hugging_face(arrays), hugging_face())


def test_what_transformers_does_not_use_is_left_out():
  arrays = arrays_of('hf_vit')
  extra = arrays | {
    'vit.pooler.dense.weight': np.ones((32, 32), np.float32),
    'vit.pooler.dense.bias': np.ones(32, np.float32),
    'vit.embeddings.mask_token': np.ones((1, 1, 32), np.float32),
  }
  assert same(hugging_face(extra), hugging_face())
  headless = {k: x for k, x in arrays.items() if 'classifier' not in k}
  bare = {k.removeprefix('vit.'): x for k, x in headless.items()}
  assert same(hugging_face(headless), hugging_face(bare))


def test_settings_of_transformers():
  weights = hugging_face(
    config={
      'hidden_act': 'gelu_new',
      'hidden_dropout_prob': 0.25,
      'id2label': {str(i): f'name {i}' for i in (9, *range(9))},
    },
    preprocessor={'do_normalize': False, 'image_mean': [1, 2, 3]},
  )
  assert weights.model['transformer']['exact_gelu'] is False
  assert weights.class_names == [f'name {i}' for i in range(10)]
  assert (weights.mean, weights.std) == ((0.0,), (1.0,))
  _, contents = huggingface.export(weights)
  assert contents['config.json']['hidden_dropout_prob'] == 0.25
  assert contents['config.json']['hidden_act'] == 'gelu_pytorch_tanh'


def test_files_for_transformers_say_that_they_are_for_pytorch(tmp_path):
  convert.convert(hugging_face(), str(tmp_path / 'x'), 'huggingface')
  path = tmp_path / 'x' / 'model.safetensors'
  with safetensors.safe_open(path, 'np') as f:
    assert f.metadata() == {'format': 'pt'}


@pytest.mark.parametrize(
  'architecture, heads, exact',
  [
    ('vit_base_patch16_gap_224', 16, True),
    ('test_vit', 2, True),
    ('vit_base_patch32_siglip_gap_256', 4, False),
    ('vit_large_patch16_siglip_gap_512', 4, False),
    ('vit_so400m_patch16_siglip_gap_384', 4, False),
    ('vit_giantopt_patch16_siglip_gap_256', 16, False),
    ('vit_large_patch16_siglip_gap_384', 4, True),
  ],
)
def test_what_architectures_of_timm_imply(architecture, heads, exact):
  arguments = {} if heads != 4 else {'num_heads': 4}
  config = {'architecture': architecture, 'model_args': arguments}
  transformer = from_timm(config).model['transformer']
  assert (transformer['num_heads'], transformer['exact_gelu']) == (heads, exact)


def test_image_sizes_of_timm():
  arguments = golden_json('timm_vit/config.json')['model_args']
  # Cells of the last row and column are cut: the grid alone tells 32.
  weights = from_timm({'model_args': arguments | {'img_size': [35, 39]}})
  assert weights.image_shape == (35, 39, 3)


@pytest.mark.parametrize('has_token', [True, False])
@pytest.mark.parametrize('pool', ['max', ''])
def test_poolings_of_timm_that_no_model_here_has(has_token, pool):
  name = 'timm_vit' if has_token else 'timm_vit_gap'
  arguments = golden_json(f'{name}/config.json')['model_args']
  with pytest.raises(errors.UserError, match=f'pools by {pool!r}'):
    from_timm(
      {'model_args': arguments | {'global_pool': pool}}, arrays_of(name)
    )


def weights_of(config, size=64, num_classes=3):
  model = models.from_config(config, num_classes=num_classes)
  params = models.init_params(model, (size, size, 3))
  return weights_lib.Weights(
    params=params,
    model=config,
    class_names=[f'class {i}' for i in range(num_classes)],
    image_shape=(size, size, 3),
  )


def test_sizes_for_timm():
  transformer = CONFIG['transformer'] | {'mlp_dim': 49}
  config = CONFIG | {
    'hidden_size': 44,
    'patches': {'size': (4, 8)},
    'transformer': transformer,
  }
  arrays, contents = to_timm.export(weights_of(config))
  arguments = contents['config.json']['model_args']
  assert arguments['patch_size'] == [4, 8]
  assert arguments['act_layer'] == 'gelu_tanh'
  assert int(44 * arguments['mlp_ratio']) == 49
  assert arrays['blocks.0.mlp.fc1.weight'].shape == (49, 44)


@pytest.mark.parametrize(
  'change',
  [
    {'num_heads': 1},
    {'mlp_dim': 24},
    {'num_layers': 1},
    {'patches': {'size': (4, 4)}},
  ],
)
def test_hybrids_for_timm_are_the_released_ones(change):
  config = model_configs.get_model_config('r_ti16').to_dict()
  _, contents = to_timm.export(weights_of(config))
  assert contents['config.json']['architecture'] == 'vit_tiny_r_s16_p8_224'
  names, _ = to_timm.export(weights_of(config))
  assert 'patch_embed.backbone.conv.weight' in names
  for name, value in change.items():
    group = config if name in config else config['transformer']
    group[name] = value
  with pytest.raises(errors.UserError, match='the released ones alone'):
    to_timm.export(weights_of(config))


@pytest.mark.parametrize('export', [huggingface.export, to_timm.export])
def test_models_without_position_embeddings_stay_here(export):
  transformer = CONFIG['transformer'] | {'add_position_embedding': False}
  with pytest.raises(errors.UserError, match='without position embeddings'):
    export(weights_of(CONFIG | {'transformer': transformer}))


NUMBERS = (None, 'abc', [1], {}, 1.5)
DAMAGED = [
  *(('hf_vit', 'num_attention_heads', x) for x in NUMBERS),
  *(('hf_vit', 'layer_norm_eps', x) for x in (None, 'abc', [1])),
  *(('hf_vit', 'image_size', x) for x in (None, 32.5)),
  *(('hf_vit', 'id2label', x) for x in ([1], 'ab', {'a': 'b'}, {'0': None})),
  ('hf_vit', 'hidden_act', ['gelu']),
  *(('timm_vit', 'model_args', x) for x in ('abc', [1])),
  *(('timm_vit', 'model_args', {'num_heads': x}) for x in ('abc', [1], 1.5)),
  ('timm_vit', 'mean', 0.5),
  ('timm_vit', 'mean', [0.5, 0.5]),
  ('timm_vit', 'std', [0.0, 0.0, 0.0]),
  ('timm_vit', 'label_names', 3),
  ('timm_vit', 'vit_jax_options', None),
]


@pytest.mark.parametrize('name, field, value', DAMAGED)
def test_damaged_settings_give_one_message(tmp_path, name, field, value):
  folder = tmp_path / 'x'
  shutil.copytree(GOLDEN / name, folder)
  path = folder / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
  with pytest.raises(errors.UserError, match=str(folder)):
    checkpoint.read(folder)


def damaged_npz(change):
  arrays = dict(np.load(GOLDEN / 'vit_token.npz'))
  change(arrays)
  return arrays


NORM, HEAD = 'Transformer/encoder_norm/bias', 'head/bias'


@pytest.mark.parametrize(
  'change',
  [
    lambda x: x.pop(NORM),
    lambda x: x.pop(HEAD),
    lambda x: x.update({NORM: np.zeros((2, 2))}),
    lambda x: x.update({'head/kernel': np.zeros((5, 10))}),
    lambda x: x.update({'foo/bar': np.zeros(3)}),
    lambda x: x.update({'embedding/kernel': np.zeros(3)}),
  ],
)
def test_damaged_npz_files_give_one_message(tmp_path, change):
  path = tmp_path / 'x.npz'
  np.savez(path, **damaged_npz(change))
  with pytest.raises(errors.UserError, match=r'x\.npz'):
    checkpoint.read(path)


@pytest.mark.parametrize(
  'index', ['[]', '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "../b"}}']
)
def test_a_damaged_index_of_shards(tmp_path, index):
  (tmp_path / 'model.safetensors.index.json').write_text(index)
  with pytest.raises(errors.UserError, match=r'index.json is damaged'):
    checkpoint.read(tmp_path)


def test_a_cut_safetensors_is_called_by_its_name(tmp_path):
  (tmp_path / 'x.safetensors').write_bytes(b'\x10\0\0')
  with pytest.raises(errors.UserError, match=r'not a \.safetensors file'):
    checkpoint.read(tmp_path / 'x.safetensors')


def test_an_attention_pooling_is_refused(tmp_path):
  params = checkpoint.load(GOLDEN / 'vit_gap.npz')
  posemb = params['Transformer'].pop('posembed_input')['pos_embedding']
  params |= {'pos_embedding': posemb, 'MAPHead_0': {'probe': np.zeros(3)}}
  np.savez(tmp_path / 'x.npz', **weights_lib.flatten({'params': params}))
  with pytest.raises(errors.UserError, match='pools by attention'):
    checkpoint.read(tmp_path / 'x.npz')


ODD_NAMES = ['a\nb', 'c\rd', 'e\x85f', 'g\u2028h', '"i"', 'j\udce9k', '', 'ä l']


def test_labels_of_any_text_survive(tmp_path):
  weights = weights_of(CONFIG, 32, len(ODD_NAMES))
  weights = weights_lib.dataclasses.replace(weights, class_names=ODD_NAMES)
  artifact.save(tmp_path / 'artifact', weights)
  assert artifact.load(tmp_path / 'artifact').class_names == ODD_NAMES
  # The weights alone find what stands beside them.
  got = checkpoint.read(tmp_path / 'artifact' / 'model.npz')
  assert got.class_names == ODD_NAMES
  lines = (tmp_path / 'artifact' / 'labels.txt').read_text().splitlines()
  assert 'ä l' in lines
  (tmp_path / 'artifact' / 'labels.txt').write_text('one\n')
  with pytest.raises(errors.UserError, match='has 1 lines, .* 8 classes'):
    artifact.load(tmp_path / 'artifact')


@pytest.mark.parametrize('resize', [None, 40, (48, 48)])
def test_an_artifact_predicts_as_evaluation_sees(tmp_path, resize):
  weights = weights_lib.dataclasses.replace(
    weights_of(CONFIG, 32), resize_test=resize
  )
  rng = np.random.default_rng(0)
  head = weights.params['head']
  head['kernel'] = rng.normal(size=head['kernel'].shape).astype(np.float32)
  artifact.save(tmp_path / 'artifact', weights)
  loaded = artifact.load(tmp_path / 'artifact')
  assert loaded.resize_test == resize
  image = rng.integers(0, 256, (50, 70, 3), np.uint8)
  image[:, :12] = 255  # Which the middle leaves out.
  cv2.imwrite(str(tmp_path / 'x.png'), image[..., ::-1])
  [prediction] = predictor.Predictor(loaded).predict(tmp_path / 'x.png')
  element = transforms.EvalImage((32, 32), resize).map({'image': image})
  pixels = augment.normalize(transforms.stack([element['image']]))
  logits = loaded.module().apply({'params': loaded.params}, pixels, train=False)
  want = dict(zip(loaded.class_names, jax.nn.softmax(logits)[0], strict=True))
  for name, probability in prediction:
    assert probability == pytest.approx(float(want[name]), rel=1e-4)


def test_how_evaluation_resizes_is_exported():
  def exported(resize, size=32):
    weights = weights_lib.dataclasses.replace(
      weights_of(CONFIG, size), resize_test=resize
    )
    processor = huggingface.export(weights)[1]['preprocessor_config.json']
    return processor, to_timm.export(weights)[1]['config.json'][
      'pretrained_cfg'
    ]

  processor, cfg = exported(None)
  assert processor['image_processor_type'] == 'ViTImageProcessor'
  assert (cfg['crop_pct'], cfg['crop_mode']) == (1.0, 'squash')
  processor, cfg = exported(39)
  assert processor['size'] == {'shortest_edge': 39}
  assert processor['crop_size'] == {'height': 32, 'width': 32}
  # As timm computes it.
  assert (math.floor(32 / cfg['crop_pct']), cfg['crop_mode']) == (39, 'center')
  processor, cfg = exported((40, 40))
  assert processor['size'] == {'height': 40, 'width': 40}
  assert (math.floor(32 / cfg['crop_pct']), cfg['crop_mode']) == (40, 'squash')


def test_an_artifact_of_a_later_version(tmp_path):
  artifact.save(tmp_path / 'artifact', weights_of(CONFIG, 32))
  path = tmp_path / 'artifact' / 'config.json'
  config = json.loads(path.read_text())
  config['model']['a_new_setting'] = 1
  path.write_text(json.dumps(config))
  with pytest.raises(errors.UserError, match='does not make a model'):
    checkpoint.read(tmp_path / 'artifact')


def test_only_heads_can_be_zero():
  params = checkpoint.load(GOLDEN / 'vit_patch16_headless.npz')
  assert not weights_lib.has_zero_head(params)
  params = checkpoint.load(GOLDEN / 'vit_token.npz')
  assert not weights_lib.has_zero_head(params)


def test_replacing_a_folder_touches_no_other(tmp_path):
  for name in ('x.tmp', 'x.old'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'precious').touch()
  before = sorted(tmp_path.rglob('*'))
  with files.replaced_folder(tmp_path / 'x') as folder:
    (folder / 'new').touch()
  with files.replaced_folder(tmp_path / 'x') as folder:
    (folder / 'newer').touch()
  with pytest.raises(KeyError), files.replaced_folder(tmp_path / 'x') as folder:
    raise KeyError
  after = sorted(tmp_path.rglob('*'))
  assert set(after) - set(before) == {tmp_path / 'x', tmp_path / 'x' / 'newer'}


@pytest.mark.parametrize('to', ['timm', 'npz'])
def test_destinations_that_cannot_be_written(tmp_path, to):
  (tmp_path / 'file').touch()
  target = tmp_path / 'file' / ('x.npz' if to == 'npz' else 'x')
  source = str(GOLDEN / 'vit_token.npz')
  result = run('vit_jax.convert', source, str(target), f'--to={to}')
  assert result.returncode == 1
  assert 'Traceback' not in result.stderr
  assert f'{target} cannot be written' in result.stderr
  (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
  with pytest.raises(errors.UserError, match='link exists'):
    convert.convert(
      checkpoint.read(source), str(tmp_path / 'link'), 'huggingface'
    )
  assert {pathlib.Path(p).name for p in tmp_path.iterdir()} == {'file', 'link'}


@pytest.mark.parametrize('stages, stem', [((), ''), ((1, 2), 'stem.')])
def test_stems_are_named_as_timm_names_them(stages, stem):
  names = timm_names.vit_names(
    1, head=True, class_token=True, fc_norm=False, stages=stages
  )
  backbone = 'patch_embed.backbone.'
  assert names['conv_root/kernel'] == f'{backbone}{stem}conv.weight'
  if stages:
    name = names['block2/unit1/conv_proj/kernel']
    assert name == f'{backbone}stages.1.blocks.0.downsample.conv.weight'
